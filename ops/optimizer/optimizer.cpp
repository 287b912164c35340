#include <sinter/ops/common/op_support.h>
#include <sinter/ops/optimizer/rules.h>

namespace sinter::ops {
namespace {

/// Options of `Rule`, by their names in messages.
template <class Rule>
void expect_not_negative(const char* name, double value) {
  SINTER_CHECK(value >= 0, "[{}] expected {} >= 0 but got {}", Rule::kName, name, value);
}
template <class Rule>
void expect_share(const char* name, double value) {
  SINTER_CHECK(value >= 0 && value < 1, "[{}] expected {} in [0, 1) but got {}", Rule::kName, name, value);
}

void check(const update::SGDStep& options) {
  expect_not_negative<SgdRule>("momentum", options.momentum);
  expect_not_negative<SgdRule>("weight_decay", options.weight_decay);
  SINTER_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "[sgd_step] Nesterov's step needs momentum > 0 and dampening = 0 but got {} and {}",
               options.momentum, options.dampening);
  SINTER_CHECK(!options.moving_momentum || options.momentum > 0,
               "[sgd_step] a momentum that moves needs momentum > 0 in the options too but got {}",
               options.momentum);
}

template <class Rule>
void check_adam(const typename Rule::Options& options) {
  expect_share<Rule>("beta1", options.beta1);
  expect_share<Rule>("beta2", options.beta2);
  expect_not_negative<Rule>("epsilon", options.epsilon);
  expect_not_negative<Rule>("weight_decay", options.weight_decay);
}
void check(const update::AdamWStep& options) {
  check_adam<AdamWRule>(options);
}
void check(const update::LAMBStep& options) {
  check_adam<LambRule>(options);
}

void check(const update::RMSpropStep& options) {
  expect_share<RmsPropRule>("alpha", options.alpha);
  expect_not_negative<RmsPropRule>("epsilon", options.epsilon);
  expect_not_negative<RmsPropRule>("momentum", options.momentum);
  expect_not_negative<RmsPropRule>("weight_decay", options.weight_decay);
}

void check(const update::LARSStep& options) {
  expect_share<LarsRule>("momentum", options.momentum);
  expect_not_negative<LarsRule>("weight_decay", options.weight_decay);
  SINTER_CHECK(options.trust_coefficient > 0, "[lars_step] expected trust_coefficient > 0 but got {}",
               options.trust_coefficient);
  expect_not_negative<LarsRule>("epsilon", options.epsilon);
}

/// Checks the slot that begins at input `slot` and has `arrays` arrays, but for its buffers. `moves`: another
/// number stands behind the learning rate.
void expect_slot(const InferContext& context, size_t slot, size_t arrays, bool moves) {
  const size_t parameter = slot, gradient = slot + 1, tail = slot + arrays;
  context.expect_float(parameter);
  context.expect_shape(gradient, context.shape(parameter));
  if (context.has(tail + kWorkingCopy)) {
    const DType working = context.input(tail + kWorkingCopy).dtype;
    SINTER_CHECK(context.input(parameter).dtype == DType::kFloat32 && is_half(working),
                 "[{}] expected a working copy in a 16-bit dtype of a float32 parameter but got {} of {}",
                 context.tag(), working, context.input(parameter).dtype);
    context.expect_shape(tail + kWorkingCopy, context.shape(parameter));
    context.expect_same_dtype(gradient, tail + kWorkingCopy);
  } else {
    context.expect_same_dtype(gradient, parameter);
  }
  context.expect_dtype(tail + kLearningRate, DType::kFloat64);
  context.expect_shape(tail + kLearningRate, moves ? Shape{2} : Shape{});
  if (context.has(tail + kStepCount)) {
    context.expect_dtype(tail + kStepCount, DType::kInt64);
    context.expect_shape(tail + kStepCount, {});
  }
  if (context.has(tail + kGradientFactor)) {
    context.expect_dtype(tail + kGradientFactor, DType::kFloat32);
    context.expect_shape(tail + kGradientFactor, {});
  }
}

template <class Rule>
std::vector<TensorSpec> infer_step(const InferContext& context) {
  const auto& options = context.attributes<typename Rule::Options>();
  check(options);
  constexpr double kAnyRates[2] = {};
  const typename Rule::template Element<double> element(options, kAnyRates, 1, {});
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs<Rule>) {
    expect_slot(context, slot, kArrays<Rule>, Rule::moves(options));
    for (size_t i = 0; i < Rule::kBuffers.size(); ++i) {
      const size_t buffer = slot + 2 + i;
      const bool wanted = element.uses(i);
      SINTER_CHECK(context.has(buffer) == wanted, "[{}] expected {} buffer '{}' in slot {} with {}",
                   Rule::kName, wanted ? "a" : "no", Rule::kBuffers[i].name, slot / kSlotInputs<Rule>,
                   to_string(options));
      if (!wanted) continue;
      context.expect_same_dtype(buffer, slot);
      context.expect_shape(buffer, context.shape(slot));
    }
  }
  return {};
}

template <class Rule>
void step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
          const typename Rule::Options& options, const Tensor& gradient_factor) {
  static const Op& op = builtin(Rule::kName);
  check(options);
  if (slots.empty()) return;
  std::vector<Tensor> inputs;
  inputs.reserve(slots.size() * kSlotInputs<Rule>);
  for (const UpdateSlot& slot : slots) {
    constexpr size_t kCount = Rule::kBuffers.size();
    for (size_t i = kCount; i < std::size(slot.buffers); ++i) {
      SINTER_CHECK(!slot.buffers[i].defined(), "[{}] expected buffers[{}] to be undefined", Rule::kName, i);
    }
    inputs.push_back(slot.parameter);
    inputs.push_back(slot.gradient);
    for (size_t i = 0; i < kCount; ++i) inputs.push_back(slot.buffers[i]);
    inputs.push_back(slot.working);
    inputs.push_back(learning_rate);
    inputs.push_back(Rule::kStep == StepCount::kPassedOver ? Tensor() : slot.step);
    inputs.push_back(gradient_factor);
  }
  call(op, inputs, options);
}

template <class Rule>
void add_step(OpRegistry& registry) {
  std::vector<InputDef> inputs = {{.name = "parameter", .mutated = true}, {.name = "gradient"}};
  for (const BufferName& buffer : Rule::kBuffers) {
    inputs.push_back({.name = buffer.name, .optional = buffer.optional, .mutated = true});
  }
  inputs.insert(inputs.end(), {{.name = "working", .optional = true, .mutated = true},
                               {.name = "learning_rate"},
                               {.name = "step", .optional = Rule::kStep != StepCount::kNeeds},
                               {.name = "gradient_factor", .optional = true}});
  registry.add({.name = Rule::kName,
                .inputs = std::move(inputs),
                .variadic = true,
                .outputs = {},
                .infer = infer_step<Rule>});
}

}  // namespace

void update::sgd_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
                      const update::SGDStep& options, const Tensor& gradient_factor) {
  step<SgdRule>(slots, learning_rate, options, gradient_factor);
}
void update::adamw_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
                        const update::AdamWStep& options, const Tensor& gradient_factor) {
  step<AdamWRule>(slots, learning_rate, options, gradient_factor);
}
void update::rmsprop_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
                          const update::RMSpropStep& options, const Tensor& gradient_factor) {
  step<RmsPropRule>(slots, learning_rate, options, gradient_factor);
}
void update::lars_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
                       const update::LARSStep& options, const Tensor& gradient_factor) {
  step<LarsRule>(slots, learning_rate, options, gradient_factor);
}
void update::lamb_step(std::span<const UpdateSlot> slots, const Tensor& learning_rate,
                       const update::LAMBStep& options, const Tensor& gradient_factor) {
  step<LambRule>(slots, learning_rate, options, gradient_factor);
}

void register_optimizer(OpRegistry& registry);
void register_optimizer(OpRegistry& registry) {
  for_each_rule([&]<class Rule> { add_step<Rule>(registry); });
}

}  // namespace sinter::ops
