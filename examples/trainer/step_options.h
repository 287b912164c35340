// What a trainer's options say about steps: how many images they take, how they change weights, and what of
// them is measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/nn/schedule/plateau.h>
#include <sinter/nn/schedule/schedule.h>

#include "trainer/option_table.h"

namespace sinter::examples {

/// The course of the learning rate beside --schedule and --warmup, and when a run ends early.
struct CourseOptions {
  int64_t warmup_epochs = 0;      // 0: a share of the run
  std::string milestones;         // of multi-step: epochs in ascending order
  double gamma = 0.1;             // of multi-step and plateau: what a reduction multiplies the rate by
  double power = 2.0;             // of polynomial
  bool cycle_momentum = false;    // of one-cycle
  int64_t plateau_patience = 10;  // of plateau: epochs
  int64_t patience = 0;           // epochs without a better test that end the run; 0: it goes on
};

/// Values without a default depend on the optimiser, the data and the device; the program's complete() fills
/// them in.
struct StepOptions {
  std::optional<int64_t> epochs;
  std::optional<int64_t> batch;
  bool batch_auto = false;        // settle_batch() decides it
  int64_t accumulate = 1;         // batches whose gradients make one step
  std::string optimizer = "sgd";  // or adamw, adam, rmsprop, lars, lamb
  std::optional<double> lr;
  std::string schedule = "one-cycle";
  nn::Anneal cycle = nn::Anneal::kLinear;  // of one-cycle; no option
  std::optional<double> warmup;            // share of the run
  double momentum = 0.9;
  std::optional<bool> nesterov;
  double beta1 = 0.9, beta2 = 0.999;  // of adamw, adam and lamb
  double trust_coefficient = 0.001;   // of lars
  std::optional<double> weight_decay;
  bool decay_norms = false;
  double ema = 0.0;   // the share of averages of the weights that a step keeps; 0: there are none
  double clip = 0.0;  // largest norm of gradients; 0: no limit
  CourseOptions course;

  std::string decode = "auto";  // auto: on the GPU's engines if it has some; or cpu, gpu
  int64_t profile = 0;          // steps to time op by op; 0: none
  std::string trace;            // a JSON file of these steps
  std::string report_html;      // an HTML file of the job
  double memory_limit = 0;      // GiB between the calls of a job's step; 0: none
  std::string log;              // a CSV file

  bool has_momentum() const {
    return optimizer == "sgd" || optimizer == "lars" || optimizer == "rmsprop";
  }  // else it has betas
  /// Images of a step, of all processes together: as many as --batch says, or all that there are.
  int64_t batch_of(int64_t images) const { return std::min(*batch, images); }
  /// The same; throws InvalidArgument where so many processes cannot share it equally.
  int64_t shared_batch(int64_t images, int64_t processes) const;
  /// Copies of a weight in a checkpoint: itself, and what the optimiser keeps of it.
  uint64_t weight_copies() const;
  /// --memory-limit in bytes.
  std::optional<size_t> memory_bytes() const;
  nn::data::DecodeOn decode_on() const;
};

/// The lines of --help that differ from one trainer to the next, as their defaults do.
struct StepHelp {
  const char *epochs, *batch, *lr, *warmup, *nesterov, *weight_decay, *decay_norms, *ema, *plateau, *decode;
};

/// --epochs, --batch and --accumulate.
void add_length_rows(OptionTable& table, StepOptions& options, const StepHelp& help);
/// From --optimizer to --clip.
void add_optimizer_rows(OptionTable& table, StepOptions& options, const StepHelp& help);
/// The optimisers that --lr is of: all.
std::vector<std::string> optimizer_names();

/// Mistakes in what --schedule is given; empty if there is none.
std::string check_course(const StepOptions& options, const std::set<std::string>& given);

/// "learning rate 0.1 (one-cycle, warm-up 20 %), ..."
std::string describe_optimizer(const StepOptions& options);
/// "30 epochs, batch 128, seed 0", of so many images of training.
std::string describe_length(const StepOptions& options, int64_t images, uint64_t seed);

std::unique_ptr<nn::Optimizer> make_optimizer(const StepOptions& options,
                                              std::vector<nn::ParameterGroup> groups);
/// The learning rate over the steps of all epochs; of --schedule plateau the warm-up alone, to --lr.
nn::Schedule make_schedule(const StepOptions& options, int64_t steps_per_epoch);
/// What --schedule plateau multiplies that rate by; none for another schedule.
std::optional<nn::ReduceOnPlateau> make_plateau(const StepOptions& options);
/// Sets the momentum of a step of a run of `steps`, if --cycle-momentum moves it.
void set_momentum(const StepOptions& options, int64_t steps, int64_t step, nn::Optimizer& optimizer);

/// The numbers of a list such as "30,60,80" or "1,0.5", finite and from 0 on; none for another text.
std::optional<std::vector<double>> parse_numbers(std::string_view text);
/// The same; throws InvalidArgument with the option's name for another text.
std::vector<double> numbers_of(const char* option, const std::string& text);

}  // namespace sinter::examples
