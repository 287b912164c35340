// sinter_pack: packs a folder of images into the record files that face recognition's data sets come in, so
// that nobody needs MXNet to make them.
//
//   sinter_pack faces packed                          # faces/<person>/*.jpg; files are packed as they are
//   sinter_pack faces packed --size 112               # ... cut and resized to 112x112
//   sinter_pack photos/train packed --size 256        # a training set of photographs
//   sinter_pack photos/val packed --size 256 --name val   # and its validation set, with the same classes
//
// Trainers then take the folder: train_resnet --data packed.

#include <exception>
#include <new>

#include "common/console.h"
#include "common/stop.h"
#include "options.h"
#include "pack.h"

int main(int argc, char** argv) {
  using sinter::examples::complain;
  sinter::examples::catch_save_signals();  // there is nothing to save halfway; a job's warning is no reason
                                           // to end
  sinter::examples::set_up_console();
  sinter_pack::Options options;
  int code = 1;
  try {
    if (const auto exit_code = sinter_pack::parse_options(argc, argv, options)) return *exit_code;
    sinter::examples::ignore_write_signals(true);
    sinter::examples::catch_stop_signals();
    code = sinter_pack::pack(options);
  } catch (const std::bad_alloc&) {
    complain("error: out of memory; fewer --threads need less");
  } catch (const std::exception& error) {
    complain("error: {}", error.what());
  }
  if (const std::string failure = sinter::examples::output_failure(); !failure.empty()) {
    complain("error: standard output: {}", failure);
    if (code == 0) code = 1;
  }
  return code;
}
