// sinter_convert: converts files of weights between PyTorch's own format and safetensors, without Python.
//
//   sinter_convert resnet18.pth resnet18.safetensors
//   sinter_convert checkpoint.pth --list              # what is in it
//   sinter_convert run1/best.safetensors best.pth     # torch.load("best.pth", weights_only=True)

#include "common/stop.h"
#include "convert.h"
#include "options.h"
#include "run/program.h"

int main(int argc, char** argv) {
  return sinter::examples::run_program(
      [&] {
        sinter_convert::Options options;
        if (const auto exit_code = sinter_convert::parse_options(argc, argv, options)) return *exit_code;
        sinter::examples::ignore_write_signals(true);
        sinter_convert::convert(options);
        return 0;
      },
      {.memory = "", .system = nullptr});
}
