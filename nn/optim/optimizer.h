// Optimizer: the base of all optimisers - parameter groups, and the state that a checkpoint keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/module/module.h>

namespace sinter::ops {
struct UpdateSlot;  // ops/optimizer/optimizer.h
}

namespace sinter::nn {

/// Parameters that are treated alike; see parameter_groups.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  double lr_scale = 1.0;                    ///< multiplies the learning rate that step() is given
  std::optional<double> weight_decay = {};  ///< the optimiser's own if not given
  /// Whether a GradScaler's or a job's `max_grad_norm` counts these gradients and limits them, or leaves them
  /// alone.
  bool clip = true;
};

/// Changes parameters by their gradients.
///
///   nn::SGD sgd(model.parameters(), {.momentum = 0.9, .weight_decay = 5e-4});
///   sgd.zero_grad();
///   backward(loss);
///   sgd.step(schedule(step));
///
/// One call at a time: a step() while another runs throws InvalidArgument.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update; never waits for the device. Parameters without a gradient are left alone, with their state.
  /// `gradient_factor`, if given, is a float32 scalar on the device that multiplies all gradients, from
  /// clip_grad_norm or a GradScaler; if it is infinite or NaN, nothing changes, step counts included. Throws
  /// InvalidArgument if the learning rate is negative or not a number, if the parameters with a gradient are
  /// not all on one device, or if one has changed its dtype, device or shape since an earlier step. Buffers
  /// follow a parameter that has been brought to another layout.
  void step(double learning_rate, const Tensor& gradient_factor = {});
  void step() = delete;  // the learning rate goes into step(lr)
  /// Drops the gradients of all parameters.
  void zero_grad();
  /// Makes all parameters start afresh, as before the first update: counts and buffers become zeros where
  /// they are. As load_state({}), but jobs go on with the graphs that they have. Does not wait for the
  /// device.
  void reset();

  /// For jobs, which repeat a step() that was traced: the learning rate that the repeated step reads from now
  /// on. Throws InvalidArgument as step() does.
  void set_learning_rate(double learning_rate);
  /// For jobs: another number whenever step() would do something else than the traced one did, because an
  /// option was changed or the tensors below are others.
  uint64_t revision() const { return revision_; }
  /// For jobs: all tensors of the optimiser's own that a step reads or changes, with names, as far as they
  /// exist.
  std::vector<std::pair<std::string, Tensor>> tensors() const;

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// The parameters of all groups.
  std::vector<Parameter> parameters() const;

  /// Copies of everything that the next step depends on besides parameters and options, in canonical layout;
  /// empty before the first update. For every parameter: "step.<name>", an int64 scalar with the number of
  /// its updates, and, once there was one, its buffers: "momentum.<name>" or "exp_avg.<name>" and
  /// "exp_avg_sq.<name>", and so on.
  State state() const;
  /// The inverse; an empty state makes all parameters start afresh. Throws InvalidArgument, and changes
  /// nothing, if the state has other names or shapes, or does not mention a parameter: it is another model's
  /// then. The message lists all of them. If not `strict`, parameters that it does not mention start afresh,
  /// and what it says of others is passed over; so it is with parameters whose names begin with one of
  /// `skip`.
  void load_state(const State& state, const LoadOptions& options = {});

 protected:
  /// A parameter with its buffers, in the order of `buffer_names`. A mixed parameter's buffers are like its
  /// master, and an update writes the working copy too.
  struct Slot {
    Parameter parameter;
    std::vector<Tensor> buffers = {};  // of the master's spec; none before the first update
    Tensor step = {};                  // int64 scalar on the device: the number of this update, from 1
    Layout layout = Layout::kNCHW;     // of the buffers: as the parameter had it when they were made
  };
  struct UpdateOptions {
    Tensor learning_rate;  // float64 scalar on the device of the slots; (2) if something moves beside it
    double weight_decay = 0.0;
    Tensor gradient_factor;  // float32 scalar there, or undefined: as of step()
  };

  /// `tag` names the optimiser in messages. Throws InvalidArgument if there is no parameter, one is undefined
  /// or listed twice, two have one name, or a scale or weight decay is negative or not finite.
  Optimizer(std::string tag, std::vector<ParameterGroup> groups, double weight_decay,
            std::vector<std::string> buffer_names);

  /// Updates the slots of one group, which are on one device. Buffers exist, zeros at first, and the step
  /// counts are those of this update. Recording is off.
  virtual void update(std::span<Slot* const> slots, const UpdateOptions& options) = 0;
  /// The same slots for the update ops, with their buffers, three at most, in order.
  static std::vector<ops::UpdateSlot> update_slots(std::span<Slot* const> slots);
  /// To be called when an option of the optimiser has changed that its updates read.
  void options_changed() { ++revision_; }
  /// Moves a number that updates read beside the learning rate, such as a momentum, so that jobs can follow
  /// it: from the first call on, `UpdateOptions::learning_rate` has two elements, the rate and this.
  void set_moving(double value);
  bool has_moving() const { return moving_.has_value(); }

 private:
  friend class GradScaler;

  /// step() with a factor that is asked for when nothing is left to refuse, so that what making it changes (a
  /// scaler's state) changes only with the step.
  struct Factors {
    Tensor clipped;      // for the groups that are clipped
    Tensor others = {};  // for the rest, if there is one
  };
  void step_with(double learning_rate, const std::function<Factors()>& make_factors);
  void check_groups() const;
  void prepare(Slot& slot);
  void set_counts(const Tensor& counts);
  void place_counts(Device device);
  void place_mask();
  std::vector<int64_t> read_counts() const;
  void check_learning_rate(double learning_rate) const;
  /// The rate of the groups with this scale, and what moves beside it, in the tensor that all steps share:
  /// only its values change.
  const Tensor& rate_on_device(double scale, double learning_rate, Device device);

  std::string tag_;
  std::vector<ParameterGroup> groups_;
  double weight_decay_;
  std::vector<std::string> buffer_names_;
  std::vector<std::vector<Slot>> slots_;  // one list per group
  // How often each slot was updated: int64 on the device, because the device decides whether a step counts;
  // undefined before the first step. The slots' `step` are its elements.
  Tensor counts_;
  // Which slots have a gradient, if not all, and the same on the device.
  std::vector<bool> mask_;
  Tensor mask_tensor_;
  struct Rate {
    double scale = 1.0;
    std::vector<double> values = {};  // the rate and, if something moves, that
    Tensor tensor = {};               // the same on the device
  };
  std::vector<Rate> rates_;
  std::optional<double> moving_;
  uint64_t revision_ = 0;
  ExclusiveUse use_;
};

/// The Euclidean norm of all gradients together: a float64 scalar on their device, computed in double
/// precision. Infinity and NaN show. Throws InvalidArgument if no parameter has a gradient.
Tensor grad_norm(const std::vector<Parameter>& parameters);

struct ClippedGradients {
  Tensor norm;    ///< float64 scalar: grad_norm
  Tensor factor;  ///< float32 scalar: min(1, max_norm / (norm + 1e-6)), as in PyTorch; NaN if the norm is not
                  ///< finite
};

/// Limits the norm of all gradients to `max_norm` > 0 in the step that is given the factor:
/// `sgd.step(lr, nn::clip_grad_norm(parameters, 5.0).factor)`. Alone it limits nothing: gradients stay as
/// they are, nothing waits for the device, and a norm that is not finite makes the step skip its update.
/// Source: R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", ICML
/// 2013.
[[nodiscard]] ClippedGradients clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm);

}  // namespace sinter::nn
