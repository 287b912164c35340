// sinter_convert: converts files of weights between PyTorch's own format and safetensors, without Python.
//
//   sinter_convert resnet18.pth resnet18.safetensors
//   sinter_convert checkpoint.pth --list              # what is in it
//   sinter_convert run1/best.safetensors best.pth     # torch.load("best.pth", weights_only=True)

#include <exception>
#include <new>

#include "common/console.h"
#include "common/stop.h"
#include "convert.h"
#include "options.h"

int main(int argc, char** argv) {
  using sinter::examples::complain;
  sinter::examples::set_up_console();
  int code = 1;
  try {
    sinter_convert::Options options;
    if (const auto exit_code = sinter_convert::parse_options(argc, argv, options)) return *exit_code;
    sinter::examples::ignore_write_signals(true);
    sinter_convert::convert(options);
    code = 0;
  } catch (const std::bad_alloc&) {
    complain("error: out of memory");
  } catch (const std::exception& error) {
    complain("error: {}", error.what());
  }
  if (const std::string failure = sinter::examples::output_failure(); !failure.empty()) {
    complain("error: standard output: {}", failure);
    if (code == 0) code = 1;
  }
  return code;
}
