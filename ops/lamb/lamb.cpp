#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/lamb/lamb.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 4;  // parameter, gradient, both averages
constexpr size_t kSlotInputs = kArrays + kUpdateInputs;

void check_options(const LambOptions& options) {
  SINTER_CHECK(options.beta1 >= 0 && options.beta1 < 1, "[lamb_step] expected beta1 in [0, 1) but got {}",
               options.beta1);
  SINTER_CHECK(options.beta2 >= 0 && options.beta2 < 1, "[lamb_step] expected beta2 in [0, 1) but got {}",
               options.beta2);
  SINTER_CHECK(options.epsilon >= 0, "[lamb_step] expected epsilon >= 0 but got {}", options.epsilon);
  SINTER_CHECK(options.weight_decay >= 0, "[lamb_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
}

std::vector<TensorSpec> infer_lamb_step(const InferContext& context) {
  const auto& options = context.attributes<LambOptions>();
  check_options(options);
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    expect_update_inputs(context, slot, kArrays, options.moving_beta1);
    for (size_t i = slot + 2; i < slot + kArrays; ++i) {
      context.expect_same_dtype(i, slot);
      context.expect_shape(i, context.shape(slot));
    }
  }
  return {};
}

}  // namespace

void lamb_step(std::span<const LambSlot> slots, const Tensor& learning_rate, const LambOptions& options,
               const Tensor& gradient_factor) {
  static const Op& op = builtin("lamb_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const LambSlot& slot : slots) {
    inputs.insert(inputs.end(), {slot.parameter, slot.gradient, slot.exp_avg, slot.exp_avg_sq, slot.working,
                                 learning_rate, slot.step, gradient_factor});
  }
  call(op, inputs, options);
}

void register_lamb(OpRegistry& registry);
void register_lamb(OpRegistry& registry) {
  registry.add({.name = "lamb_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "exp_avg", .mutated = true},
                           {.name = "exp_avg_sq", .mutated = true},
                           {.name = "working", .optional = true, .mutated = true},
                           {.name = "learning_rate"},
                           {.name = "step"},
                           {.name = "gradient_factor", .optional = true}},
                .variadic = true,
                .outputs = {},
                .infer = infer_lamb_step});
}

}  // namespace sinter::ops
