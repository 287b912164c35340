#include <sinter/nn/optim/rmsprop.h>
#include <sinter/ops/rmsprop/rmsprop.h>

namespace sinter::nn {
namespace {

std::vector<std::string> buffer_names(const RMSpropOptions& options) {
  std::vector<std::string> names{"square_avg"};
  if (options.centered) names.push_back("grad_avg");
  if (options.momentum != 0.0) names.push_back("momentum");
  return names;
}

}  // namespace

RMSprop::RMSprop(std::vector<Parameter> parameters, const RMSpropOptions& options)
    : RMSprop(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, options) {}

RMSprop::RMSprop(std::vector<ParameterGroup> groups, const RMSpropOptions& options)
    : Optimizer("rmsprop", std::move(groups), options.weight_decay, buffer_names(options)),
      options_(options) {
  SINTER_CHECK(options.alpha >= 0.0 && options.alpha < 1.0, "[rmsprop] expected alpha in [0, 1) but got {}",
               options.alpha);
  SINTER_CHECK(options.epsilon >= 0.0, "[rmsprop] expected an epsilon >= 0 but got {}", options.epsilon);
  SINTER_CHECK(options.momentum >= 0.0 && options.momentum < 1.0,
               "[rmsprop] expected a momentum in [0, 1) but got {}", options.momentum);
}

void RMSprop::update(std::span<Slot* const> slots, const UpdateOptions& options) {
  std::vector<ops::RmsPropSlot> updates;
  updates.reserve(slots.size());
  for (const Slot* slot : slots) {
    const Parameter& parameter = slot->parameter;
    updates.push_back({.parameter = parameter.master(),
                       .gradient = parameter.grad(),
                       .square_avg = slot->buffers[0],
                       .grad_avg = options_.centered ? slot->buffers[1] : Tensor(),
                       .momentum = options_.momentum != 0.0 ? slot->buffers.back() : Tensor(),
                       .working = parameter.working()});
  }
  ops::rmsprop_step(updates, options.learning_rate,
                    {.alpha = options_.alpha,
                     .epsilon = options_.epsilon,
                     .momentum = options_.momentum,
                     .weight_decay = options.weight_decay,
                     .centered = options_.centered,
                     .maximize = options_.maximize},
                    options.gradient_factor);
}

}  // namespace sinter::nn
