// RMSprop.
#pragma once

#include <concepts>

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct RMSpropOptions {
  double alpha = 0.99;  ///< the share of the average of squares that a step keeps
  double epsilon = 1e-8;
  double momentum = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool centered = false;      ///< divide by the deviation of the gradient rather than by its norm
  bool maximize = false;      ///< climb instead of descend
};

/// The same numbers as torch.optim.RMSprop; the formulas and sources stand at ops::update::rmsprop_step.
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(std::vector<Parameter> parameters, const RMSpropOptions& options = {});
  explicit RMSprop(std::vector<ParameterGroup> groups, const RMSpropOptions& options = {});
  template <std::convertible_to<double> Rate>
  RMSprop(const auto&, Rate) = delete;  // the learning rate goes into step(lr)

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  RMSpropOptions options_;
};

}  // namespace sinter::nn
