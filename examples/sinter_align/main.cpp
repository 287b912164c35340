// sinter_align: turns, scales and cuts photographs so that each face lies where networks expect it, by five
// points of it that a detector has found.
//
//   sinter_align photos landmarks.csv aligned                 # 112x112, as InsightFace's networks take them
//   sinter_align photos landmarks.csv aligned --format png    # ... without loss
//   sinter_align aligned points.csv --check                   # are they aligned?
//
// The output has the folders of the photographs: aligned/<person>/<picture>.jpg, which
// `train_insightface --data aligned` takes.

#include <exception>
#include <new>

#include "align.h"
#include "common/console.h"
#include "common/stop.h"
#include "options.h"

int main(int argc, char** argv) {
  using sinter::examples::complain;
  sinter::examples::catch_save_signals();  // there is nothing to save halfway; a job's warning is no reason
                                           // to end
  sinter::examples::set_up_console();
  sinter_align::Options options;
  int code = 1;
  try {
    if (const auto exit_code = sinter_align::parse_options(argc, argv, options)) return *exit_code;
    sinter::examples::ignore_write_signals(true);
    sinter::examples::catch_stop_signals();
    code = options.check ? sinter_align::check(options) : sinter_align::align(options);
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
