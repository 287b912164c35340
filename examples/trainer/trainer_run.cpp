#include "trainer/trainer_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include <fmt/core.h>

#include <sinter/core/base/log.h>
#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "common/text.h"
#include "run/model_files.h"
#include "run/processes.h"

namespace sinter::examples {

namespace fs = std::filesystem;

namespace {

/// Differs between checkpoints of other contents: the manifest has the checksum of every file.
std::string digest_of(const nn::LoadedCheckpoint& checkpoint) {
  std::ifstream manifest(checkpoint.folder / "manifest.txt", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(manifest), {});
  return fmt::format("{:016x}", std::hash<std::string>()(text));
}

}  // namespace

int run_ranks(TrainerOptions& options, char** argv, const std::string& purpose,
              const std::function<int(const Communicator& ranks, Device device)>& body) {
  log::level();  // warns of a SINTER_LOG that is no level
  const ProcessEnvironment environment = read_process_environment();
  const ProcessCount count = {options.gpus > 0 ? "--gpus" : "--processes",
                              std::max(options.gpus, options.processes)};
  if (must_start(count, environment)) {
    if (options.gpus > 0 && !is_available(Device::cuda())) backend_of(Device::cuda());  // throws, saying why
    return run_processes(argv, count.count);
  }
  if (environment.size > 1) set_complaint_prefix(fmt::format("[rank {}] ", environment.rank));
  const Device device = device_of_rank(options.device, options.gpus, options.processes, environment);
  const std::shared_ptr<Communicator> ranks = Communicator::join(
      environment, {.device = device, .timeout = options.rank_timeout, .purpose = purpose});
  if (ranks->rank() == 0) tell_passed_over(options);
  try {
    const int code = body(*ranks, device);
    ranks->leave();
    return code;
  } catch (const std::exception& error) {
    ranks->fail(error.what());
    throw;
  }
}

void prepare_plan(TrainerOptions& options) {
  for (std::string* file :
       {&options.save_weights, &options.exported.path, &options.report, &options.write_recipe,
        &options.checkpoints, &options.log_dir, &options.log, &options.trace, &options.report_html})
    file->clear();
  options.resume = false;
  // The GPU that --for stands for need not be here.
  if (options.plans_for_gpu() && options.decode == "gpu") options.decode = "auto";
}

void be_one_of_many(TrainerOptions& options, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  options.threads = threads_of_rank(options.threads, ranks.environment());
  if (ranks.rank() == 0) return;
  be_quiet();
  options.save_weights.clear();
  options.exported.path.clear();
  options.report.clear();
  options.write_recipe.clear();
  options.log.clear();
  options.trace.clear();
  options.report_html.clear();
  options.profile = 0;
}

void check_common_files(const TrainerOptions& options) {
  if (!options.save_weights.empty()) check_file("--save-weights", options.save_weights);
  if (!options.exported.path.empty()) check_file("--export", options.exported.path);
  if (!options.report.empty()) check_file("--report", options.report);
  if (!options.write_recipe.empty()) check_file("--write-recipe", options.write_recipe);
}

void check_run_files(const TrainerOptions& options, std::optional<FolderLock>& lock) {
  if (!options.trace.empty()) check_file("--trace", options.trace);
  if (!options.report_html.empty()) check_file("--report-html", options.report_html);
  if (!options.log.empty()) {
    check_file("--log", options.log);
    std::error_code missing;
    if (!options.resume && fs::file_size(options.log, missing) > 0 && !missing) {
      throw Error(
          fmt::format("--log {} holds another run's lines; name another file, or remove it", options.log));
    }
  }
  if (!options.checkpoints.empty()) {
    check_checkpoints(options.checkpoints, options.resume);
    lock.emplace("--checkpoints", options.checkpoints);
  }
  if (!options.log_folder().empty())
    RunFolder::check(options.log_option(), options.log_folder(), options.resume);
}

void check_room(const TrainerOptions& options, uint64_t weight_bytes, uint64_t checkpoint_bytes) {
  check_room("--save-weights", options.save_weights, fs::path(options.save_weights).parent_path(),
             weight_bytes);
  check_room("--export", options.exported.path, fs::path(options.exported.path).parent_path(), weight_bytes);
  if (checkpoint_bytes > 0)
    check_room("--checkpoints", options.checkpoints, options.checkpoints, checkpoint_bytes);
}

void identify_run(const std::optional<nn::LoadedCheckpoint>& checkpoint, const Communicator& ranks,
                  TrainerOptions& options) {
  if (checkpoint && checkpoint->data.values.contains("run"))
    options.run = checkpoint->data.value<std::string>("run");
  const bool has_log = options.resume && !options.evaluate && !options.log_folder().empty();
  if (has_log && ranks.rank() == 0) {
    options.run =
        RunFolder::check_run(options.log_option(), options.log_folder(), options.run, options.checkpoints);
  }
  if (options.run.empty()) options.run = new_run();
}

void check_place(const TrainerOptions& options, const char* data_argument) {
  std::error_code ignored;
  if (fs::exists(options.checkpoints, ignored) && !fs::is_directory(options.checkpoints, ignored))
    return;  // told later
  if (nn::CheckpointFolder(options.checkpoints).latest()) return;
  const auto begun = RunFolder::last_words(options.log_folder());
  if (!begun)
    throw Error(fmt::format("there is no checkpoint in {}; to begin a run there: --data {}",
                            options.checkpoints, data_argument));
  const auto without_resume = [](std::vector<std::string> words) {
    std::erase(words, "--resume");
    return words;
  };
  const std::vector<std::string> words = without_resume(*begun);
  if (words == without_resume(options.words)) return;
  std::string text;
  for (const std::string& word : words) text += quoted(word) + " ";
  throw Error(
      fmt::format("the run in {} was stopped before its first checkpoint; begin it again with its "
                  "own options: {}--resume",
                  options.checkpoints, text));
}

std::vector<Fact> facts_of(const TrainerOptions& options,
                           const std::optional<nn::LoadedCheckpoint>& checkpoint,
                           const std::vector<Fact>& of_data, const Recipe& recipe) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  std::vector<Fact> facts = {
      {"the newest checkpoint (--checkpoints must be one folder for all)",
       checkpoint ? text(checkpoint->data.value<int64_t>("step")) : "none", options.checkpoints},
      {"the contents of the newest checkpoint (their digest)", checkpoint ? digest_of(*checkpoint) : "none",
       options.checkpoints}};
  facts.insert(facts.end(), of_data.begin(), of_data.end());
  facts.insert(facts.end(), {{"whether there are --checkpoints", text(!options.checkpoints.empty())},
                             {"--eager", text(!options.job)},
                             {"--evaluate", text(options.evaluate)},
                             {"--plan", text(options.plan)},
                             {"--batch auto", text(options.batch_auto)},
                             {"--max-steps", text(options.max_steps)},
                             {"--checkpoint-every", text(options.checkpoint_every)},
                             {"--load-weights", text(!options.load_weights.empty())}});
  for (const auto& [option, value] : recipe) facts.push_back({option, value});
  return facts;
}

void write_weights(Ending& ending, const TrainerOptions& options, const TrainerBase& trainer,
                   const std::function<nn::State()>& weights, const std::function<void()>& export_model) {
  if (!options.save_weights.empty()) {
    ending.attempt([&] {
      write_weights_file(options.save_weights, weights(), trainer.metadata());
      say("weights written to {}\n", options.save_weights);
    });
  }
  if (!options.exported.path.empty()) ending.attempt(export_model);
}

void write_report(Ending& ending, const TrainerOptions& options, TrainerBase& trainer,
                  const std::string& report) {
  if (!options.report.empty()) ending.attempt([&] { write_text(options.report, report); });
  if (RunFolder* folder = trainer.run_folder()) {
    ending.attempt([&] { folder->close(); });
    ending.attempt([&] { folder->write_report(report); });
  }
  if (!trainer.save_failure().empty())
    ending.fail(fmt::format("the last steps are in no checkpoint: {}", trainer.save_failure()));
  if (!trainer.best_failure().empty())
    ending.fail(fmt::format("the best weights, of step {}, are in no {}: {}", trainer.best().step, kBestName,
                            trainer.best_failure()));
}

std::string how_to_go_on(const TrainerOptions& options) {
  if (options.checkpoints.empty()) return "; without --checkpoints it cannot go on";
  std::string words = "; go on with --checkpoints " + quoted(options.checkpoints);
  if (!options.log_dir.empty()) words += " --log-dir " + quoted(options.log_dir);
  if (!options.log.empty()) words += " --log " + quoted(options.log);
  return words + " --resume";
}

}  // namespace sinter::examples
