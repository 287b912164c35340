#include <sinter/ops/common/op_support.h>
#include <sinter/ops/sgd/sgd.h>

namespace sinter::ops {
namespace {

constexpr size_t kSlotInputs = 4;

void check_options(const SgdOptions& options) {
  SINTER_CHECK(options.momentum >= 0, "[sgd_step] expected momentum >= 0 but got {}", options.momentum);
  SINTER_CHECK(options.weight_decay >= 0, "[sgd_step] expected weight_decay >= 0 but got {}",
               options.weight_decay);
  SINTER_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "[sgd_step] Nesterov's step needs momentum > 0 and dampening = 0 but got {} and {}",
               options.momentum, options.dampening);
}

std::vector<TensorSpec> infer_sgd_step(const InferContext& context) {
  const auto& options = context.attributes<SgdOptions>();
  check_options(options);
  const bool wanted = options.momentum != 0;
  for (size_t i = 0; i < context.input_count(); i += kSlotInputs) {
    context.expect_float(i);
    context.expect_same_dtype(i + 1, i);
    context.expect_shape(i + 1, context.shape(i));
    SINTER_CHECK(context.has(i + 2) == wanted,
                 "[sgd_step] expected {} momentum buffer in slot {} for momentum {}", wanted ? "a" : "no",
                 i / kSlotInputs, options.momentum);
    if (wanted) {
      context.expect_same_dtype(i + 2, i);
      context.expect_shape(i + 2, context.shape(i));
    }
    context.expect_dtype(i + 3, DType::kFloat64);
    context.expect_shape(i + 3, {});
  }
  return {};
}

}  // namespace

void sgd_step(std::span<const SgdSlot> slots, const Tensor& learning_rate, const SgdOptions& options) {
  static const Op& op = builtin("sgd_step");
  check_options(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs);
  for (const SgdSlot& slot : slots) {
    inputs.insert(inputs.end(), {slot.parameter, slot.gradient, slot.momentum, learning_rate});
  }
  call(op, inputs, options);
}

void register_sgd(OpRegistry& registry);
void register_sgd(OpRegistry& registry) {
  registry.add({.name = "sgd_step",
                .inputs = {{.name = "parameter", .mutated = true},
                           {.name = "gradient"},
                           {.name = "momentum", .optional = true, .mutated = true},
                           {.name = "learning_rate"}},
                .variadic = true,
                .outputs = {},
                .infer = infer_sgd_step});
}

}  // namespace sinter::ops
