// sinter_curves: draws the curves of several runs into one picture, from what they have logged.
//
//   sinter_curves run1 run2 -o curves.svg                  # over epochs
//   sinter_curves run1 run2 -o curves.svg --over seconds   # which is there first?

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/log/run_log.h>

#include "common/console.h"
#include "common/text.h"
#include "curves/run_curves.h"
#include "run/command_line.h"
#include "run/help.h"
#include "run/output_files.h"
#include "run/program.h"

namespace {

namespace fs = std::filesystem;
namespace examples = sinter::examples;
using examples::Over;
using examples::RunCurves;

constexpr size_t kMostRuns = 10;  // as many as there are colours

struct Options {
  std::vector<std::string> runs;
  std::string names;  ///< with commas between them
  std::string output;
  std::string over = "epochs";
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("runs", options.runs,
                 "Folders of runs, up to 10, as --log-dir and --checkpoints of trainers name them")
      ->required()
      ->check(examples::folder());
  app.option_defaults()->group("Picture");
  app.add_option("-o,--output", options.output,
                 "The picture, an SVG file (.svg); one that is there is replaced")
      ->required()
      ->check(examples::file());
  app.add_option("--over", options.over,
                 "What the curves stand over. Seconds are those of training: pauses before --resume do not "
                 "count")
      ->capture_default_str()
      ->check(examples::one_of({"epochs", "steps", "seconds"}));
  app.add_option("--names", options.names,
                 "Names of the runs in the legend, with commas between them. Default: their folders")
      ->type_name("NAMES");
  app.option_defaults()->group(examples::kSystemGroup);
  examples::set_help_and_version(
      app, {.first = {"--output"},
            .examples = {"sinter_curves run1 -o curves.svg", "sinter_curves run1 run2 -o curves.svg",
                         "sinter_curves run1 run2 -o curves.svg --over seconds",
                         "sinter_curves run1 run2 -o curves.svg --names sgd,adam"},
            .notes = "Exit code: 0 the picture is drawn; 1 an error; 2 a mistake on the command line."});
}

/// What the legend calls the runs.
std::vector<std::string> names_of(const Options& options) {
  if (options.names.empty()) return options.runs;
  std::vector<std::string> names(1);
  for (const char c : options.names) {
    if (c == ',') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

/// Why these options do not go together; empty if they do.
std::string mistake_in(const Options& options) {
  if (options.runs.size() > kMostRuns)
    return fmt::format("expected at most {} runs but got {}", kMostRuns, options.runs.size());
  if (const std::string ending = fs::path(options.output).extension().string(); ending != ".svg")
    return fmt::format("--output {}: expected a name that ends in .svg", options.output);
  const std::vector<std::string> names = names_of(options);
  if (names.size() != options.runs.size())
    return fmt::format("--names: expected {}, one for each run, but got {}",
                       examples::counted(options.runs.size(), "name"), names.size());
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!options.names.empty() && (name.empty() || !seen.insert(name).second))
      return fmt::format("--names: expected different names but got '{}'", name);
  }
  std::set<fs::path> folders;
  for (const std::string& run : options.runs) {
    std::error_code ignored;
    if (!folders.insert(fs::weakly_canonical(fs::absolute(run), ignored)).second)
      return fmt::format("{}: is named twice", run);
  }
  return {};
}

/// Whether the last line of a file lacks its end, as a killed writer leaves it.
bool is_cut(const fs::path& path) {
  sinter::InputFile file(path);
  char last = '\n';
  if (file.size() > 0) file.read(file.size() - 1, std::as_writable_bytes(std::span(&last, 1)));
  return last != '\n';
}

RunCurves read_run(const std::string& folder, Over over) {
  const fs::path log = fs::path(folder) / sinter::nn::RunLog::kJsonName;
  std::error_code ignored;
  if (!fs::exists(log, ignored))
    throw sinter::IoError(
        fmt::format("{}: expected a run's folder but it has no {}", folder, sinter::nn::RunLog::kJsonName));
  RunCurves run = examples::read_curves(folder);
  if (is_cut(log)) examples::complain("warning: {}: the last line is cut short, and left out", log.string());
  if (run.tags.empty())
    throw sinter::IoError(fmt::format("{}: expected losses or accuracies but none are logged", log.string()));
  if (over == Over::kEpochs && run.epochs.empty())
    throw sinter::IoError(
        fmt::format("{}: no epoch is complete yet; --over steps shows what there is", log.string()));
  return run;
}

int draw(const Options& options) {
  const Over over = options.over == "epochs"  ? Over::kEpochs
                    : options.over == "steps" ? Over::kSteps
                                              : Over::kSeconds;
  examples::check_file("--output", options.output);
  std::vector<RunCurves> runs;
  for (size_t i = 0; i < options.runs.size(); ++i) {
    runs.push_back(read_run(options.runs[i], over));
    runs.back().name = names_of(options)[i];
  }
  sinter::nn::write_charts(options.output, examples::charts_of(runs, over));
  examples::say("{}: {} run{} over {}\n", options.output, runs.size(), runs.size() == 1 ? "" : "s",
                options.over);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program(
      [&] {
        CLI::App app("Draws losses, accuracies and learning rate of runs into one picture.", "sinter_curves");
        Options options;
        add_options(app, options);
        std::set<std::string> given;
        if (const auto exit_code = examples::parse(app, argc, argv, given)) return *exit_code;
        if (const std::string mistake = mistake_in(options); !mistake.empty())
          return examples::refuse(app, mistake);
        return draw(options);
      },
      {.memory = "", .system = nullptr});
}
