// The optimiser and the learning rate that a trainer's options ask for.
#include <algorithm>
#include <utility>

#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/lars_lamb.h>
#include <sinter/nn/optim/rmsprop.h>
#include <sinter/nn/optim/sgd.h>

#include "trainer/step_options.h"

namespace sinter::examples {
namespace {

/// The share of the run in which the learning rate rises.
double warmup_share(const StepOptions& options) {
  if (options.course.warmup_epochs == 0) return *options.warmup;
  return std::min(1.0,
                  static_cast<double>(options.course.warmup_epochs) / static_cast<double>(*options.epochs));
}

nn::OneCycleSchedule one_cycle(const StepOptions& options, int64_t steps) {
  return {.peak = *options.lr,
          .steps = std::max<int64_t>(steps, 2),
          .warmup_fraction = warmup_share(options),
          .anneal = options.cycle};
}

}  // namespace

std::unique_ptr<nn::Optimizer> make_optimizer(const StepOptions& options,
                                              std::vector<nn::ParameterGroup> groups) {
  const double beta1 = options.beta1, beta2 = options.beta2, decay = *options.weight_decay;
  const double momentum = options.momentum;
  const auto make = [&]<class T, class O>(const O& of_optimizer) -> std::unique_ptr<nn::Optimizer> {
    return std::make_unique<T>(std::move(groups), of_optimizer);
  };
  if (options.optimizer == "adamw")
    return make.operator()<nn::AdamW>(
        nn::AdamWOptions{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay});
  if (options.optimizer == "adam")
    return make.operator()<nn::Adam>(nn::AdamOptions{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay});
  if (options.optimizer == "rmsprop")
    return make.operator()<nn::RMSprop>(nn::RMSpropOptions{.momentum = momentum, .weight_decay = decay});
  if (options.optimizer == "lamb")
    return make.operator()<nn::LAMB>(nn::LAMBOptions{.beta1 = beta1, .beta2 = beta2, .weight_decay = decay});
  if (options.optimizer == "lars")
    return make.operator()<nn::LARS>(nn::LARSOptions{.momentum = momentum,
                                                     .weight_decay = decay,
                                                     .trust_coefficient = options.trust_coefficient,
                                                     .nesterov = *options.nesterov});
  return make.operator()<nn::SGD>(nn::SGDOptions{
      .momentum = momentum, .weight_decay = decay, .nesterov = *options.nesterov && momentum > 0});
}

nn::Schedule make_schedule(const StepOptions& options, int64_t steps_per_epoch) {
  const double lr = *options.lr;
  const int64_t steps = *options.epochs * steps_per_epoch;
  if (options.schedule == "one-cycle") return one_cycle(options, steps);
  const auto warmup = static_cast<int64_t>(warmup_share(options) * static_cast<double>(steps) + 1e-6);
  const int64_t rest = std::max<int64_t>(steps - warmup, 1);
  if (options.schedule == "cosine") return nn::Warmup{nn::CosineSchedule{.base = lr, .steps = rest}, warmup};
  if (options.schedule == "polynomial")
    return nn::Warmup{nn::PolynomialSchedule{.base = lr, .steps = rest, .power = options.course.power},
                      warmup};
  if (options.schedule == "step")
    return nn::Warmup{nn::StepSchedule{.base = lr, .every = std::max<int64_t>(rest / 3, 1)}, warmup};
  if (options.schedule == "multi-step") {
    // Milestones count from the run's start, and Warmup begins what it leads to at its own step 0.
    std::vector<int64_t> milestones;
    for (const double epoch : numbers_of("--milestones", options.course.milestones))
      milestones.push_back(std::max<int64_t>(static_cast<int64_t>(epoch) * steps_per_epoch - warmup, 0));
    return nn::Warmup{
        nn::MultiStepSchedule{.base = lr, .milestones = std::move(milestones), .gamma = options.course.gamma},
        warmup};
  }
  return nn::Warmup{[lr](int64_t) { return lr; }, warmup};
}

std::optional<nn::ReduceOnPlateau> make_plateau(const StepOptions& options) {
  if (options.schedule != "plateau") return std::nullopt;
  return nn::ReduceOnPlateau(
      {.base = 1.0, .factor = options.course.gamma, .patience = options.course.plateau_patience});
}

void set_momentum(const StepOptions& options, int64_t steps, int64_t step, nn::Optimizer& optimizer) {
  if (!options.course.cycle_momentum) return;
  if (auto* const sgd = dynamic_cast<nn::SGD*>(&optimizer); sgd != nullptr && options.schedule == "one-cycle")
    sgd->set_momentum(one_cycle(options, steps).momentum(step));
}

}  // namespace sinter::examples
