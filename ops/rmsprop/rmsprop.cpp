#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/rmsprop/rmsprop.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 5;  // parameter, gradient, both averages, momentum
constexpr size_t kSlotInputs = kArrays + kUpdateInputs;

void check_options(const RmsPropOptions& options) {
  SINTER_CHECK(options.alpha >= 0 && options.alpha < 1, "[rmsprop_step] expected alpha in [0, 1) but got {}",
               options.alpha);
  SINTER_CHECK(options.epsilon >= 0, "[rmsprop_step] expected epsilon >= 0 but got {}", options.epsilon);
  SINTER_CHECK(options.momentum >= 0, "[rmsprop_step] expected momentum >= 0 but got {}", options.momentum);
  SINTER_CHECK(options.weight_decay >= 0, "[rmsprop_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
}

std::vector<TensorSpec> infer_rmsprop_step(const InferContext& context) {
  const auto& options = context.attributes<RmsPropOptions>();
  check_options(options);
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    expect_update_inputs(context, slot, kArrays);
    SINTER_CHECK(
        context.has(slot + 3) == options.centered && context.has(slot + 4) == (options.momentum != 0),
        "[rmsprop_step] expected {} grad_avg and {} momentum buffer in slot {}",
        options.centered ? "a" : "no", options.momentum != 0 ? "a" : "no", slot / kSlotInputs);
    for (size_t i = slot + 2; i < slot + kArrays; ++i) {
      if (!context.has(i)) continue;
      context.expect_same_dtype(i, slot);
      context.expect_shape(i, context.shape(slot));
    }
  }
  return {};
}

}  // namespace

void rmsprop_step(std::span<const RmsPropSlot> slots, const Tensor& learning_rate,
                  const RmsPropOptions& options, const Tensor& gradient_factor) {
  static const Op& op = builtin("rmsprop_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const RmsPropSlot& slot : slots) {
    inputs.insert(inputs.end(), {slot.parameter, slot.gradient, slot.square_avg, slot.grad_avg, slot.momentum,
                                 slot.working, learning_rate, Tensor(), gradient_factor});
  }
  call(op, inputs, options);
}

void register_rmsprop(OpRegistry& registry);
void register_rmsprop(OpRegistry& registry) {
  registry.add({.name = "rmsprop_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "square_avg", .mutated = true},
                           {.name = "grad_avg", .optional = true, .mutated = true},
                           {.name = "momentum", .optional = true, .mutated = true},
                           {.name = "working", .optional = true, .mutated = true},
                           {.name = "learning_rate"},
                           {.name = "step", .optional = true},
                           {.name = "gradient_factor", .optional = true}},
                .variadic = true,
                .outputs = {},
                .infer = infer_rmsprop_step});
}

}  // namespace sinter::ops
