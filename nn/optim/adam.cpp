#include <cmath>

#include <sinter/nn/optim/adam.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::nn {
namespace {

std::vector<ParameterGroup> one_group(std::vector<Parameter> parameters) {
  return {{.parameters = std::move(parameters)}};
}

AdamOptions as_adam(const AdamWOptions& options) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .amsgrad = options.amsgrad,
          .maximize = options.maximize};
}

std::vector<std::string> buffer_names(const AdamOptions& options) {
  std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

bool is_beta(double beta) {
  return beta >= 0.0 && beta < 1.0;
}

}  // namespace

Adam::Adam(const char* name, std::vector<ParameterGroup> groups, const AdamOptions& options, bool decoupled)
    : Optimizer(name, std::move(groups), options.weight_decay, buffer_names(options)),
      options_(options),
      decoupled_(decoupled) {
  SINTER_CHECK(is_beta(options.beta1) && is_beta(options.beta2),
               "[{}] expected betas in [0, 1) but got {} and {}", name, options.beta1, options.beta2);
  SINTER_CHECK(options.epsilon >= 0.0 && std::isfinite(options.epsilon),
               "[{}] expected an epsilon >= 0 but got {}", name, options.epsilon);
}

Adam::Adam(std::vector<Parameter> parameters, const AdamOptions& options)
    : Adam(one_group(std::move(parameters)), options) {}
Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options)
    : Adam("adam", std::move(groups), options, false) {}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options)
    : AdamW(one_group(std::move(parameters)), options) {}
AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Adam("adamw", std::move(groups), as_adam(options), true) {}

void Adam::set_beta1(double beta1) {
  SINTER_CHECK(is_beta(beta1), "[adam] expected beta1 in [0, 1) but got {}", beta1);
  if (options_.beta1 == beta1) return;
  options_.beta1 = beta1;
  set_moving(beta1);
}

void Adam::update(std::span<Slot* const> slots, const UpdateOptions& options) {
  ops::update::adamw_step(update_slots(slots), options.learning_rate,
                          {.beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .epsilon = options_.epsilon,
                           .weight_decay = options.weight_decay,
                           .decoupled = decoupled_,
                           .amsgrad = options_.amsgrad,
                           .maximize = options_.maximize,
                           .moving_beta1 = has_moving()},
                          options.gradient_factor);
}

}  // namespace sinter::nn
