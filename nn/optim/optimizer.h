// Optimizer: the base of all optimisers - parameter groups, and the state that a checkpoint keeps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// Parameters that are treated alike.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  double lr_scale = 1.0;                    ///< multiplies the learning rate that step() is given
  std::optional<double> weight_decay = {};  ///< the optimiser's own if not given
};

/// The groups for weight decay on filters and matrices only; see split_decay.
std::vector<ParameterGroup> decay_groups(const std::vector<Parameter>& parameters);

/// Changes parameters by their gradients.
///
///   nn::Sgd sgd(model.parameters(), {.momentum = 0.9, .weight_decay = 5e-4});
///   sgd.zero_grad();
///   backward(loss);
///   sgd.step(schedule(step));
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update. Parameters without a gradient are left alone, with their state. Throws InvalidArgument if
  /// the learning rate is negative or not a number, or if a parameter has changed its dtype, device or shape
  /// since an earlier step.
  void step(double learning_rate);
  /// Drops the gradients of all parameters.
  void zero_grad();

  const std::vector<ParameterGroup>& groups() const { return groups_; }

  /// Copies of everything that the next step depends on besides parameters and options, in canonical layout.
  /// For every parameter that has been updated: "step.<name>", an int64 scalar with the number of updates,
  /// and its buffers, "momentum.<name>" or "exp_avg.<name>" and "exp_avg_sq.<name>".
  State state() const;
  /// The inverse. Parameters that `state` does not mention start afresh. Throws InvalidArgument, and changes
  /// nothing, if the state has other names or shapes; the message lists all of them.
  void load_state(const State& state);

 protected:
  /// A parameter with its buffers, in the order of `buffer_names`.
  struct Slot {
    Parameter parameter;
    int64_t updates = 0;               // so far
    std::vector<Tensor> buffers = {};  // of the parameter's spec; none before the first update
  };
  struct UpdateOptions {
    Tensor learning_rate;  // float64 scalar on the device of the slots
    double weight_decay = 0.0;
    int64_t updates = 0;  // of each slot before this one
  };

  /// `tag` names the optimiser in messages. Throws InvalidArgument if there is no parameter, one is undefined
  /// or listed twice, two have one name, or a scale or weight decay is negative.
  Optimizer(std::string tag, std::vector<ParameterGroup> groups, double weight_decay,
            std::vector<std::string> buffer_names);

  /// Updates slots that agree in dtype, device and number of earlier updates. Buffers exist, zeros at first.
  /// Recording is off.
  virtual void update(std::span<Slot* const> slots, const UpdateOptions& options) = 0;

 private:
  void check_groups() const;
  void prepare(Slot& slot) const;

  std::string tag_;
  std::vector<ParameterGroup> groups_;
  double weight_decay_;
  std::vector<std::string> buffer_names_;
  std::vector<std::vector<Slot>> slots_;  // one list per group
};

/// Scales all gradients so that their common Euclidean norm is at most `max_norm`; gives the norm before,
/// computed in float32 or better. As in PyTorch the factor is max_norm / (norm + 1e-6). A norm that is not
/// finite leaves all gradients as they are: check the result. Waits for the device. Source: R. Pascanu, T.
/// Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm);

}  // namespace sinter::nn
