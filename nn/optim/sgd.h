// Stochastic gradient descent with momentum.
#pragma once

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct SgdOptions {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool nesterov = false;      ///< needs momentum > 0 and no dampening
};

/// The same numbers as torch.optim.SGD; the formulas stand at ops::sgd_step.
/// Source of the Nesterov form: I. Sutskever et al., "On the importance of initialization and momentum", ICML
/// 2013.
class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<Parameter> parameters, const SgdOptions& options = {});
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  SgdOptions options_;
};

}  // namespace sinter::nn
