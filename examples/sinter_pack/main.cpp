// sinter_pack: packs a folder of images into the record files that face recognition's data sets come in, so
// that nobody needs MXNet to make them.
//
//   sinter_pack faces packed                          # faces/<person>/*.jpg; files are packed as they are
//   sinter_pack faces packed --size 112               # ... cut and resized to 112x112
//   sinter_pack photos/train packed --size 256        # a training set of photographs
//   sinter_pack photos/val packed --size 256 --name val   # and its validation set, with the same classes
//
// Trainers then take the folder: train_resnet --data packed.

#include "common/stop.h"
#include "options.h"
#include "pack.h"
#include "run/program.h"

int main(int argc, char** argv) {
  sinter::examples::catch_save_signals();  // there is nothing to save halfway: that is no reason to end
  return sinter::examples::run_program(
      [&] {
        sinter_pack::Options options;
        if (const auto exit_code = sinter_pack::parse_options(argc, argv, options)) return *exit_code;
        sinter::examples::ignore_write_signals(true);
        sinter::examples::catch_stop_signals();
        return sinter_pack::pack(options);
      },
      {.memory = "; fewer --threads need less", .system = nullptr});
}
