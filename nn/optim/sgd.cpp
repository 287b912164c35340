#include <cmath>

#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::nn {
namespace {

std::vector<std::string> buffer_names(const SGDOptions& options) {
  if (options.momentum == 0.0) return {};
  return {"momentum"};
}

}  // namespace

SGD::SGD(std::vector<Parameter> parameters, const SGDOptions& options)
    : SGD(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, options) {}

SGD::SGD(std::vector<ParameterGroup> groups, const SGDOptions& options)
    : Optimizer("sgd", std::move(groups), options.weight_decay, buffer_names(options)), options_(options) {
  SINTER_CHECK(options.momentum >= 0.0 && options.momentum < 1.0,
               "[sgd] expected a momentum in [0, 1) but got {}", options.momentum);
  SINTER_CHECK(std::isfinite(options.dampening), "[sgd] expected a finite dampening but got {}",
               options.dampening);
  SINTER_CHECK(
      !options.nesterov || (options.momentum > 0.0 && options.dampening == 0.0),
      "[sgd] Nesterov momentum needs a momentum > 0 and no dampening but got momentum {} and dampening {}",
      options.momentum, options.dampening);
}

void SGD::set_momentum(double momentum) {
  SINTER_CHECK(options_.momentum > 0.0 && momentum > 0.0 && momentum < 1.0,
               "[sgd] expected a momentum in (0, 1) in place of one but got {} in place of {}", momentum,
               options_.momentum);
  if (options_.momentum == momentum) return;
  options_.momentum = momentum;
  set_moving(momentum);
}

void SGD::update(std::span<Slot* const> slots, const UpdateOptions& options) {
  ops::update::sgd_step(update_slots(slots), options.learning_rate,
                        {.momentum = options_.momentum,
                         .dampening = options_.dampening,
                         .weight_decay = options.weight_decay,
                         .nesterov = options_.nesterov,
                         .maximize = options_.maximize,
                         .moving_momentum = has_moving()},
                        options.gradient_factor);
}

}  // namespace sinter::nn
