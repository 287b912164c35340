#include "ijb_options.h"

#include <CLI/CLI.hpp>

#include "run/command_line.h"

namespace train_insightface {

using sinter::examples::file;
using sinter::examples::folder;
using sinter::examples::one_of;

void add_ijb_options(CLI::App& app, Options& options) {
  app.add_option(
         "--ijb", options.ijb,
         "Only test with IJB-B or IJB-C: a folder with loose_crop and meta; needs weights as --evaluate "
         "does, or --ijb-embeddings")
      ->check(folder());
  app.add_option(
         "--ijb-embeddings", options.ijb_embeddings,
         "Embeddings of its pictures that were made elsewhere: safetensors with 'embeddings' (N, D), as "
         "the network gives them, in the order of the lists")
      ->check(file())
      ->needs("--ijb");
  app.add_option("--ijb-lengths", options.ijb_lengths,
                 "Let embeddings keep their lengths as they are added up, or bring each to length one (unit)")
      ->capture_default_str()
      ->check(one_of({"keep", "unit"}))
      ->needs("--ijb");
  app.add_option("--ijb-score", options.ijb_score,
                 "Multiply each embedding by the detector's score: use or ignore")
      ->capture_default_str()
      ->check(one_of({"use", "ignore"}))
      ->needs("--ijb");
}

}  // namespace train_insightface
