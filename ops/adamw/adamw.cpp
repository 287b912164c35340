#include <sinter/ops/adamw/adamw.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/parameter_update.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 5;  // parameter, gradient, both averages, the largest square
constexpr size_t kSlotInputs = kArrays + kUpdateInputs;

void check_options(const AdamWOptions& options) {
  SINTER_CHECK(options.beta1 >= 0 && options.beta1 < 1, "[adamw_step] expected beta1 in [0, 1) but got {}",
               options.beta1);
  SINTER_CHECK(options.beta2 >= 0 && options.beta2 < 1, "[adamw_step] expected beta2 in [0, 1) but got {}",
               options.beta2);
  SINTER_CHECK(options.epsilon >= 0, "[adamw_step] expected epsilon >= 0 but got {}", options.epsilon);
  SINTER_CHECK(options.weight_decay >= 0, "[adamw_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
}

std::vector<TensorSpec> infer_adamw_step(const InferContext& context) {
  const auto& options = context.attributes<AdamWOptions>();
  check_options(options);
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    expect_update_inputs(context, slot, kArrays, options.moving_beta1);
    SINTER_CHECK(context.has(slot + 4) == options.amsgrad,
                 "[adamw_step] expected {} max_exp_avg_sq in slot {} {} amsgrad",
                 options.amsgrad ? "a" : "no", slot / kSlotInputs, options.amsgrad ? "for" : "without");
    for (size_t i = slot + 2; i < slot + kArrays; ++i) {
      if (!context.has(i)) continue;
      context.expect_same_dtype(i, slot);
      context.expect_shape(i, context.shape(slot));
    }
  }
  return {};
}

}  // namespace

void adamw_step(std::span<const AdamWSlot> slots, const Tensor& learning_rate, const AdamWOptions& options,
                const Tensor& gradient_factor) {
  static const Op& op = builtin("adamw_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const AdamWSlot& slot : slots) {
    inputs.insert(inputs.end(),
                  {slot.parameter, slot.gradient, slot.exp_avg, slot.exp_avg_sq, slot.max_exp_avg_sq,
                   slot.working, learning_rate, slot.step, gradient_factor});
  }
  call(op, inputs, options);
}

void register_adamw(OpRegistry& registry);
void register_adamw(OpRegistry& registry) {
  registry.add({.name = "adamw_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "exp_avg", .mutated = true},
                           {.name = "exp_avg_sq", .mutated = true},
                           {.name = "max_exp_avg_sq", .optional = true, .mutated = true},
                           {.name = "working", .optional = true, .mutated = true},
                           {.name = "learning_rate"},
                           {.name = "step"},
                           {.name = "gradient_factor", .optional = true}},
                .variadic = true,
                .outputs = {},
                .infer = infer_adamw_step});
}

}  // namespace sinter::ops
