#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/lars/lars.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 3;  // parameter, gradient, momentum
constexpr size_t kSlotInputs = kArrays + kUpdateInputs;

void check_options(const LarsOptions& options) {
  SINTER_CHECK(options.momentum >= 0 && options.momentum < 1,
               "[lars_step] expected momentum in [0, 1) but got {}", options.momentum);
  SINTER_CHECK(options.weight_decay >= 0, "[lars_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
  SINTER_CHECK(options.trust_coefficient > 0, "[lars_step] expected trust_coefficient > 0 but got {}",
               options.trust_coefficient);
  SINTER_CHECK(options.epsilon >= 0, "[lars_step] expected epsilon >= 0 but got {}", options.epsilon);
}

std::vector<TensorSpec> infer_lars_step(const InferContext& context) {
  const auto& options = context.attributes<LarsOptions>();
  check_options(options);
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    expect_update_inputs(context, slot, kArrays, options.moving_momentum);
    context.expect_same_dtype(slot + 2, slot);
    context.expect_shape(slot + 2, context.shape(slot));
  }
  return {};
}

}  // namespace

void lars_step(std::span<const LarsSlot> slots, const Tensor& learning_rate, const LarsOptions& options,
               const Tensor& gradient_factor) {
  static const Op& op = builtin("lars_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const LarsSlot& slot : slots) {
    inputs.insert(inputs.end(), {slot.parameter, slot.gradient, slot.momentum, slot.working, learning_rate,
                                 Tensor(), gradient_factor});
  }
  call(op, inputs, options);
}

void register_lars(OpRegistry& registry);
void register_lars(OpRegistry& registry) {
  registry.add({.name = "lars_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "momentum", .mutated = true},
                           {.name = "working", .optional = true, .mutated = true},
                           {.name = "learning_rate"},
                           {.name = "step", .optional = true},
                           {.name = "gradient_factor", .optional = true}},
                .variadic = true,
                .outputs = {},
                .infer = infer_lars_step});
}

}  // namespace sinter::ops
