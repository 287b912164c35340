// Stochastic gradient descent with momentum.
#pragma once

#include <concepts>

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct SGDOptions {
  double momentum = 0.0;  ///< in [0, 1): from 1 on, steps never stop growing
  double dampening = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool nesterov = false;      ///< needs momentum > 0 and no dampening
  bool maximize = false;      ///< climb instead of descend
};

/// The same numbers as torch.optim.SGD; the formulas stand at ops::update::sgd_step.
/// Source of the Nesterov form: I. Sutskever et al., "On the importance of initialization and momentum", ICML
/// 2013.
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Parameter> parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<ParameterGroup> groups, const SGDOptions& options = {});
  template <std::convertible_to<double> Rate>
  SGD(const auto&, Rate) = delete;  // the learning rate goes into step(lr)

  /// Another momentum from the next step on, for schedules that move it: OneCycleSchedule::momentum. A job
  /// reads it as it reads the learning rate: only the first call makes another graph. Throws
  /// InvalidArgument unless it is in (0, 1) and so was that of the options, which decides whether there are
  /// buffers.
  void set_momentum(double momentum);

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  SGDOptions options_;
};

}  // namespace sinter::nn
