#include "outputs.h"

#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "run/run_folder.h"

namespace train_resnet {

namespace fs = std::filesystem;
using sinter::Error;
using sinter::examples::check_file;

namespace {

void check_log(const Options& options) {
  check_file("--log", options.log);
  std::error_code missing;
  if (!options.resume && fs::file_size(options.log, missing) > 0 && !missing) {
    throw Error(
        fmt::format("--log {} holds another run's lines; name another file, or remove it", options.log));
  }
}

}  // namespace

Outputs::Outputs(const Options& options) {
  if (!options.save_weights.empty()) check_file("--save-weights", options.save_weights);
  if (!options.exported.path.empty()) check_file("--export", options.exported.path);
  if (!options.report.empty()) check_file("--report", options.report);
  if (!options.write_recipe.empty()) check_file("--write-recipe", options.write_recipe);
  if (options.evaluate) return;
  if (!options.trace.empty()) check_file("--trace", options.trace);
  if (!options.log.empty()) check_log(options);
  if (!options.checkpoints.empty()) {
    sinter::examples::check_checkpoints(options.checkpoints, options.resume);
    lock_.emplace("--checkpoints", options.checkpoints);
  }
  if (!options.log_folder().empty())
    sinter::examples::RunFolder::check(options.log_option(), options.log_folder(), options.resume);
}

void Outputs::check_room(const Options& options, uint64_t weight_bytes, uint64_t checkpoint_bytes) {
  using sinter::examples::check_room;
  check_room("--save-weights", options.save_weights, fs::path(options.save_weights).parent_path(),
             weight_bytes);
  check_room("--export", options.exported.path, fs::path(options.exported.path).parent_path(), weight_bytes);
  if (!options.evaluate)
    check_room("--checkpoints", options.checkpoints, options.checkpoints, checkpoint_bytes);
}

}  // namespace train_resnet
