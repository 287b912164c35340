// Averages of a model's parameters: EMA, which is kept beside them, and Lookahead, which they return to.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/module/module.h>

namespace sinter {
class Communicator;
}

namespace sinter::nn {

namespace detail {

struct AverageSlot {
  Variable variable;
  Tensor average;
  Layout layout;  // of the average: as the variable had it
};

}  // namespace detail

struct EMAOptions {
  double decay = 0.999;  ///< in [0, 1): the share of the average that an update keeps
  /// The average starts fast: update n, from 1, keeps min(decay, (1 + n) / (10 + n)).
  bool warmup = false;
};

/// The exponential moving average of a model's parameters, which often tests better than the parameters
/// themselves:
///
///   nn::EMA ema(model, {.decay = 0.9995});
///   ... optimizer.step(lr); ema.update();
///   nn::ResNet averaged = nn::clone(model);
///   ema.copy_to(averaged);
///
/// It begins as a copy of the parameters. The average of a 16-bit parameter is kept in float32. Buffers
/// (running statistics) are not averaged: those of the model are taken as they are. Source: B. Polyak,
/// A. Juditsky, "Acceleration of stochastic approximation by averaging", SIAM Journal on Control and
/// Optimization 1992.
///
/// One call at a time: an update() while another runs throws InvalidArgument.
class EMA {
 public:
  /// Throws InvalidArgument for a decay out of range or a model without parameters.
  explicit EMA(const ModuleBase& model, const EMAOptions& options = {});

  /// average = decay * average + (1 - decay) * parameter, in one call for all parameters; does not wait for
  /// the device. Call it after the optimiser's step. Throws InvalidArgument if a parameter has changed its
  /// dtype or device since the start: make the EMA of a model that is where it trains.
  void update();
  /// For jobs, which repeat an update() that was traced: sets the share that the repeated update keeps; all
  /// tensors of its own that an update reads or changes, with names.
  void set_decay();
  /// Another number whenever load_state() has exchanged them.
  uint64_t revision() const { return revision_; }
  std::vector<std::pair<std::string, Tensor>> tensors();
  /// The averages with their names, "average.<name>", but those of `sharded`: parameters of which each rank
  /// has a part of its own. What nn::check_parameters_equal takes.
  std::vector<std::pair<std::string, Tensor>> averages(const std::vector<Parameter>& sharded = {}) const;
  /// Lets all ranks go on from the averages, and the number of updates, of rank 0; but for those of
  /// `sharded`. Throws CommunicationError on all ranks if names or shapes differ.
  void broadcast(const Communicator& ranks, const std::vector<Parameter>& sharded = {});
  /// Updates so far.
  int64_t updates() const { return updates_; }

  /// The averages and the model's present buffers under the names and in the layout of Module::state(): to
  /// be saved, or loaded into another model.
  State averaged_state() const;
  /// Loads averaged_state() into a model of the same kind, usually a clone.
  void copy_to(const ModuleBase& target) const { target.load_state(averaged_state()); }

  /// For checkpoints: "updates" and "average.<name>" for every parameter, and the inverse, which throws
  /// InvalidArgument, and changes nothing, if names or shapes are others.
  State state() const;
  void load_state(const State& state);

 private:
  using Slot = detail::AverageSlot;

  double decay_at(int64_t update) const;
  void follow_layouts();
  void write_decay();

  ModuleBase model_;
  EMAOptions options_;
  std::vector<Slot> slots_;
  int64_t updates_ = 0;
  Tensor rate_;  // 1 - decay, a float64 scalar on the device
  double rate_value_ = 0.0;
  Tensor minus_one_;  // the factor on "gradients"
  uint64_t revision_ = 0;
  ExclusiveUse use_;
};

/// A slow average that the model itself goes back to every few steps: an optimiser explores from there, and
/// the average follows it part of the way.
///
///   nn::Lookahead lookahead(model);
///   ... every fifth step: lookahead.update(decay);
///
/// Parameters and floating-point buffers (running statistics) take part, 16-bit working copies follow. Steps
/// of a job and updates may alternate: no graph is made again. Source: M. Zhang et al., "Lookahead optimizer:
/// k steps forward, 1 step back", NeurIPS 2019.
class Lookahead {
 public:
  /// The average begins at the model's values. Throws InvalidArgument for a model without parameters, or one
  /// whose parameters and buffers are not on one device and float32 or float64: in 16 bits an average would
  /// stand still (see ModuleBase::to_mixed).
  explicit Lookahead(const ModuleBase& model);

  /// average = decay * average + (1 - decay) * value, and then value = average, in two calls for all of the
  /// model and one for each working copy; does not wait for the device. A decay of 1 takes the model back to
  /// the average, even from infinity or NaN, one of 0 the average to the model. Throws InvalidArgument for a
  /// decay outside [0, 1], and if the model has changed its dtype or device.
  void update(double decay);
  /// Begins again at the model's present values.
  void reset();

  /// For checkpoints: "average.<name>" of everything that takes part, in the layout of Module::state(), and
  /// the inverse, which throws InvalidArgument, and changes nothing, if names, shapes or dtypes are others.
  State state() const;
  void load_state(const State& state);

 private:
  void check();

  std::vector<detail::AverageSlot> slots_;
  Tensor rate_;       // float64 scalar on the device: the share of the way back
  Tensor one_;        // float64 scalar
  Tensor minus_one_;  // float32 scalar, the factor on "gradients"
  double rate_value_ = 1.0;
  ExclusiveUse use_;
};

}  // namespace sinter::nn
