#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/sgd/sgd.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 3;  // parameter, gradient, momentum
constexpr size_t kSlotInputs = kArrays + kUpdateInputs;

void check_options(const SgdOptions& options) {
  SINTER_CHECK(options.momentum >= 0, "[sgd_step] expected momentum >= 0 but got {}", options.momentum);
  SINTER_CHECK(options.weight_decay >= 0, "[sgd_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
  SINTER_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "[sgd_step] Nesterov's step needs momentum > 0 and dampening = 0 but got {} and {}",
               options.momentum, options.dampening);
  SINTER_CHECK(!options.moving_momentum || options.momentum > 0,
               "[sgd_step] a momentum that moves needs momentum > 0 in the options too but got {}",
               options.momentum);
}

std::vector<TensorSpec> infer_sgd_step(const InferContext& context) {
  const auto& options = context.attributes<SgdOptions>();
  check_options(options);
  const bool wanted = options.momentum != 0;
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    expect_update_inputs(context, slot, kArrays, options.moving_momentum);
    SINTER_CHECK(context.has(slot + 2) == wanted,
                 "[sgd_step] expected {} momentum buffer in slot {} for momentum {}", wanted ? "a" : "no",
                 slot / kSlotInputs, options.momentum);
    if (wanted) {
      context.expect_same_dtype(slot + 2, slot);
      context.expect_shape(slot + 2, context.shape(slot));
    }
  }
  return {};
}

}  // namespace

void sgd_step(std::span<const SgdSlot> slots, const Tensor& learning_rate, const SgdOptions& options,
              const Tensor& gradient_factor) {
  static const Op& op = builtin("sgd_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const SgdSlot& slot : slots) {
    inputs.insert(inputs.end(), {slot.parameter, slot.gradient, slot.momentum, slot.working, learning_rate,
                                 slot.step, gradient_factor});
  }
  call(op, inputs, options);
}

void register_sgd(OpRegistry& registry);
void register_sgd(OpRegistry& registry) {
  registry.add({.name = "sgd_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "momentum", .optional = true, .mutated = true},
                           {.name = "working", .optional = true, .mutated = true},
                           {.name = "learning_rate"},
                           {.name = "step", .optional = true},
                           {.name = "gradient_factor", .optional = true}},
                .variadic = true,
                .outputs = {},
                .infer = infer_sgd_step});
}

}  // namespace sinter::ops
