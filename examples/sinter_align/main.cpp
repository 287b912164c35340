// sinter_align: turns, scales and cuts photographs so that each face lies where networks expect it, by five
// points of it that a detector has found.
//
//   sinter_align photos landmarks.csv aligned                 # 112x112, as InsightFace's networks take them
//   sinter_align photos landmarks.csv aligned --format png    # ... without loss
//   sinter_align aligned points.csv --check                   # are they aligned?
//
// The output has the folders of the photographs: aligned/<person>/<picture>.jpg, which
// `train_insightface --data aligned` takes.

#include "align.h"
#include "common/stop.h"
#include "options.h"
#include "run/program.h"

int main(int argc, char** argv) {
  sinter::examples::catch_save_signals();  // there is nothing to save halfway: that is no reason to end
  return sinter::examples::run_program(
      [&] {
        sinter_align::Options options;
        if (const auto exit_code = sinter_align::parse_options(argc, argv, options)) return *exit_code;
        sinter::examples::ignore_write_signals(true);
        sinter::examples::catch_stop_signals();
        return options.check ? sinter_align::check(options) : sinter_align::align(options);
      },
      {.memory = "; fewer --threads need less", .system = nullptr});
}
