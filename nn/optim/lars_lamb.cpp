#include <algorithm>
#include <cmath>

#include <sinter/nn/optim/lars_lamb.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::nn {
namespace {

bool is_below_one(double beta) {
  return beta >= 0.0 && beta < 1.0;
}

/// Moves norms and biases, which have fewer than two axes, behind the slots that adapt, and returns them.
std::span<const ops::UpdateSlot> split_plain(std::span<ops::UpdateSlot> slots, bool adapt_all) {
  return std::ranges::stable_partition(
      slots, [&](const ops::UpdateSlot& slot) { return adapt_all || slot.parameter.shape().rank() >= 2; });
}

}  // namespace

LARS::LARS(std::vector<Parameter> parameters, const LARSOptions& options)
    : LARS(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, options) {}

LARS::LARS(std::vector<ParameterGroup> groups, const LARSOptions& options)
    : Optimizer("lars", std::move(groups), options.weight_decay, {"momentum"}), options_(options) {
  SINTER_CHECK(options.momentum >= 0.0 && options.momentum < 1.0,
               "[lars] expected a momentum in [0, 1) but got {}", options.momentum);
  SINTER_CHECK(options.trust_coefficient > 0.0 && std::isfinite(options.trust_coefficient),
               "[lars] expected a trust coefficient > 0 but got {}", options.trust_coefficient);
  SINTER_CHECK(options.epsilon >= 0.0 && std::isfinite(options.epsilon),
               "[lars] expected an epsilon >= 0 but got {}", options.epsilon);
}

void LARS::set_momentum(double momentum) {
  SINTER_CHECK(momentum >= 0.0 && momentum < 1.0, "[lars] expected a momentum in [0, 1) but got {}",
               momentum);
  if (options_.momentum == momentum) return;
  options_.momentum = momentum;
  set_moving(momentum);
}

void LARS::update(std::span<Slot* const> slots, const UpdateOptions& options) {
  std::vector<ops::UpdateSlot> updates = update_slots(slots);
  const std::span plain = split_plain(updates, options_.adapt_all);
  ops::update::LARSStep step{.momentum = options_.momentum,
                             .weight_decay = options.weight_decay,
                             .trust_coefficient = options_.trust_coefficient,
                             .epsilon = options_.epsilon,
                             .nesterov = options_.nesterov,
                             .moving_momentum = has_moving()};
  ops::update::lars_step({updates.data(), plain.data()}, options.learning_rate, step,
                         options.gradient_factor);
  step.adapts = false;
  ops::update::lars_step(plain, options.learning_rate, step, options.gradient_factor);
}

LAMB::LAMB(std::vector<Parameter> parameters, const LAMBOptions& options)
    : LAMB(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, options) {}

LAMB::LAMB(std::vector<ParameterGroup> groups, const LAMBOptions& options)
    : Optimizer("lamb", std::move(groups), options.weight_decay, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  SINTER_CHECK(is_below_one(options.beta1) && is_below_one(options.beta2),
               "[lamb] expected betas in [0, 1) but got {} and {}", options.beta1, options.beta2);
  SINTER_CHECK(options.epsilon >= 0.0 && std::isfinite(options.epsilon),
               "[lamb] expected an epsilon >= 0 but got {}", options.epsilon);
}

void LAMB::set_beta1(double beta1) {
  SINTER_CHECK(is_below_one(beta1), "[lamb] expected beta1 in [0, 1) but got {}", beta1);
  if (options_.beta1 == beta1) return;
  options_.beta1 = beta1;
  set_moving(beta1);
}

void LAMB::update(std::span<Slot* const> slots, const UpdateOptions& options) {
  std::vector<ops::UpdateSlot> updates = update_slots(slots);
  const std::span plain = split_plain(updates, options_.adapt_all);
  ops::update::LAMBStep step{.beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .epsilon = options_.epsilon,
                             .weight_decay = options.weight_decay,
                             .moving_beta1 = has_moving()};
  ops::update::lamb_step({updates.data(), plain.data()}, options.learning_rate, step,
                         options.gradient_factor);
  step.adapts = false;
  ops::update::lamb_step(plain, options.learning_rate, step, options.gradient_factor);
}

}  // namespace sinter::nn
