// LARS and LAMB: SGD and Adam whose steps are as long as each parameter's norm allows, for large batches.
#pragma once

#include <concepts>

#include <sinter/nn/optim/optimizer.h>

namespace sinter::nn {

struct LARSOptions {
  double momentum = 0.9;
  double weight_decay = 0.0;         ///< added to the gradient, times the parameter
  double trust_coefficient = 0.001;  ///< the length of a step in units of the parameter's norm
  double epsilon = 1e-8;
  bool nesterov = false;
  /// A trust ratio for parameters of fewer than two axes too: norms and biases, for which it is 1 otherwise.
  bool adapt_all = false;
};

/// Layer-wise adaptive rate scaling: each parameter's gradient, with its weight decay, is multiplied by a
/// trust ratio, trust_coefficient * |parameter| / (|gradient| + weight_decay * |parameter| + epsilon), before
/// SGD with momentum takes it; 1 where a norm is 0 and for norms and biases. The formulas stand at
/// ops::update::lars_step. Give it parameter_groups() without decay_vectors, so that norms and biases have no
/// weight decay either. Source: Y. You, I. Gitman, B. Ginsburg, "Large batch training of convolutional
/// networks", 2017.
class LARS : public Optimizer {
 public:
  explicit LARS(std::vector<Parameter> parameters, const LARSOptions& options = {});
  explicit LARS(std::vector<ParameterGroup> groups, const LARSOptions& options = {});
  template <std::convertible_to<double> Rate>
  LARS(const auto&, Rate) = delete;  // the learning rate goes into step(lr)

  /// Another momentum from the next step on, as SGD::set_momentum. Throws InvalidArgument unless it is in
  /// [0, 1).
  void set_momentum(double momentum);

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  LARSOptions options_;
};

struct LAMBOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 1e-2;  ///< added to the direction, times the parameter
  /// A trust ratio for parameters of fewer than two axes too: norms and biases, for which it is 1 otherwise.
  bool adapt_all = false;
};

/// Layer-wise adaptive moments: Adam's bias-corrected direction plus weight decay, brought to the norm of the
/// parameter by the trust ratio |parameter| / |direction|; 1 where a norm is 0 and for norms and biases. The
/// formulas stand at ops::update::lamb_step. Give it parameter_groups() without decay_vectors, so that norms
/// and biases have no weight decay either. Source: Y. You et al., "Large batch optimization for deep
/// learning: training BERT in 76 minutes", ICLR 2020.
class LAMB : public Optimizer {
 public:
  explicit LAMB(std::vector<Parameter> parameters, const LAMBOptions& options = {});
  explicit LAMB(std::vector<ParameterGroup> groups, const LAMBOptions& options = {});
  template <std::convertible_to<double> Rate>
  LAMB(const auto&, Rate) = delete;  // the learning rate goes into step(lr)

  /// Another beta1 from the next step on, as Adam::set_beta1. Throws InvalidArgument unless it is in [0, 1).
  void set_beta1(double beta1);

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override;

 private:
  LAMBOptions options_;
};

}  // namespace sinter::nn
