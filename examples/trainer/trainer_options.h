// What the options of all trainers have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/base/dtype.h>
#include <sinter/core/op/attributes.h>

#include "run/export_model.h"
#include "run/help.h"
#include "trainer/option_table.h"
#include "trainer/plan_options.h"
#include "trainer/step_options.h"

namespace sinter::examples {

/// Files that a run writes, by option.
using OutputFiles = std::vector<std::pair<const char*, const std::string&>>;

/// What the user asked for. Values without a default depend on the device, and are filled in by
/// complete_common().
struct TrainerOptions : StepOptions, PlanOptions {
  std::string data;
  std::optional<Layout> layout;
  std::optional<std::string> given_layout;  // what recipes keep, as the default is another on a GPU
  std::optional<std::string> precision;     // f32, tf32, mixed-f16 or mixed-bf16
  bool sync_batch_norm = false;             // norms take the statistics of all processes together
  uint64_t seed = 0;

  std::string device = "auto";  // auto: a GPU if there is one
  int processes = 1;            // that this program starts itself on this machine
  int gpus = 0;                 // the same, each on a GPU of its own
  double rank_timeout = 600;    // seconds that an operation may wait for other processes
  int threads = 0;              // 0: all processors
  std::optional<int> workers;
  double read_timeout = 0;  // seconds for one image; 0: no limit
  int64_t max_damaged = 0;  // images of each data set
  int64_t max_steps = 0;    // stop after so many steps of the run; 0: train to the end
  bool job = true;  // a step is one job, made of the model's code once; else that code runs at every step
  bool evaluate = false;

  std::string checkpoints;       // folder; empty: none are saved
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  bool resume = false;
  bool change_recipe = false;
  std::string recipe, write_recipe;        // JSON files
  std::string load_weights, save_weights;  // files of weights
  std::string key;                         // which dict of a PyTorch file
  ExportOptions exported;                  // an ONNX file
  std::string report;                      // a JSON file
  std::string log_dir;                     // folder; empty: that of checkpoints, if there is one
  int64_t log_every = 0;                   // steps; 0: twenty times an epoch, but at least every 50

  std::string run;              // which run checkpoints and log are of: see new_run()
  std::set<std::string> given;  // the options that stood on the command line or in --recipe, as "--lr"
  std::set<std::string> typed;  // of them, those of the command line
  std::vector<std::string> passed_over;  // of them, those that have no use in what is done
  std::vector<std::string> words;        // the command line behind the program's name

  bool is_given(const std::string& option) const { return given.contains(option); }
  /// Whether --plan is of a GPU that this machine need not have.
  bool plans_for_gpu() const { return plan && memory > 0 && device == "auto"; }
  bool is_half() const { return precision->starts_with("mixed-"); }
  /// Where the run tells of itself; empty: nowhere.
  const std::string& log_folder() const { return log_dir.empty() ? checkpoints : log_dir; }
  /// The option that says so.
  const char* log_option() const { return log_dir.empty() ? "--checkpoints" : "--log-dir"; }
  /// The files that are written in one go.
  OutputFiles output_files() const;
};

/// The lines of --help that differ from one trainer to the next.
struct CommonHelp {
  StepHelp steps;
  const char *gpus, *read_timeout, *max_damaged, *evaluate, *checkpoints, *load_weights, *save_weights,
      *report;
};

/// --layout and --precision.
void add_arithmetic_rows(OptionTable& table, TrainerOptions& options);
void add_sync_batch_norm_row(OptionTable& table, TrainerOptions& options);
void add_seed_row(OptionTable& table, TrainerOptions& options);
/// The groups "Files" and kSystemGroup.
void add_common_rows(OptionTable& table, TrainerOptions& options, const CommonHelp& help);

/// A trainer's command line.
struct TrainerProgram {
  const char *name, *description;
  std::vector<std::string> first, examples;  // as of HelpPage
  /// Takes a recipe, and gives the options that it took.
  std::function<std::set<std::string>(const Recipe&)> adopt;
  /// Mistakes in how options go together; empty if there is none.
  std::function<std::string()> check_together;
  /// What is done in place of training; none: it trains.
  std::function<std::optional<OtherMode>()> mode;
};

/// A mode with what all of them use that run a network: weights, a device, an ONNX file, and `more`.
OtherMode mode_with_weights(const char* option, const TrainerOptions& options,
                            std::initializer_list<const char*> more);
/// Says which options were given and have no use in what is done.
void tell_passed_over(const TrainerOptions& options);

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, const TrainerProgram& program,
                                 const OptionTable& table, TrainerOptions& options);

/// Makes `options` those of the recipe wherever the command line says nothing. An optimiser that the command
/// line changes gets its own defaults in place of the other's learning rate, momentum and weight decay.
/// Gives the options that it took from the recipe. Throws InvalidArgument for words that the command line
/// would not take.
std::set<std::string> adopt_recipe(const OptionTable& table, const Recipe& recipe,
                                   const TrainerOptions& options);

/// Mistakes that all trainers share, two options with one file among them; empty if there is none.
std::string check_common(const TrainerOptions& options, const OutputFiles& files);

/// "--evaluate needs weights: ...", which says how to name them.
std::string needs_weights(const char* option, const TrainerOptions& options);

/// Fills in what depends on the device: a GPU computes in mixed precision.
void complete_common(TrainerOptions& options, Device device);

/// The dtype that the network computes in.
DType compute_dtype(const TrainerOptions& options);

/// Rows of names and values, with --recipe before them, as a table for the start of a run.
std::string describe_rows(const TrainerOptions& options,
                          const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace sinter::examples
