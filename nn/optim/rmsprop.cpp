#include <sinter/nn/optim/rmsprop.h>
#include <sinter/ops/optimizer/optimizer.h>

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
  std::vector<ops::UpdateSlot> updates = update_slots(slots);
  if (!options_.centered) {
    for (ops::UpdateSlot& update : updates) std::swap(update.buffers[1], update.buffers[2]);  // the momentum
  }
  ops::update::rmsprop_step(updates, options.learning_rate,
                            {.alpha = options_.alpha,
                             .epsilon = options_.epsilon,
                             .momentum = options_.momentum,
                             .weight_decay = options.weight_decay,
                             .centered = options_.centered,
                             .maximize = options_.maximize},
                            options.gradient_factor);
}

}  // namespace sinter::nn
