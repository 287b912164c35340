#include <algorithm>

#include <sinter/autograd/grad.h>
#include <sinter/autograd/grad_internal.h>
#include <sinter/autograd/gradient_walk.h>

namespace sinter {
namespace autograd {

std::optional<std::vector<Tensor>> RecordedRules::take(const Op& op, std::span<const Tensor> inputs,
                                                       const Attributes& attributes,
                                                       std::span<const TensorSpec> specs) {
  const OpDef& def = op.definition;
  if (def.gradient == nullptr && grad_enabled() && std::ranges::any_of(inputs, &Tensor::requires_grad)) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!def.outputs[i].differentiable || !is_float(specs[i].dtype)) continue;
      throw_error<Unsupported>(
          "[grad] '{}' has no second derivative: its gradient goes through '{}', which has none itself, so "
          "that "
          "create_graph cannot record it",
          op_ != nullptr ? op_->name() : op.name(), op.name());
    }
  }
  if (outer_ == nullptr) return std::nullopt;
  return outer_->take(op, inputs, attributes, specs);
}

void fail_flow(const Op& op, size_t output) {
  throw_error<Unsupported>(
      "[grad] '{}' has no second derivative: its gradient depends on its output '{}', which has no gradient",
      op.name(), op.definition.outputs[output].name);
}

Tensor start_of(const std::vector<Tensor>& results, size_t i, const GradOptions& options) {
  return first_gradient(results[i], options.gradients.empty() ? Tensor() : options.gradients[i], "grad");
}

namespace {

void check_arguments(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                     const GradOptions& options) {
  SINTER_CHECK(!results.empty() && !inputs.empty(), "[grad] expected results and inputs but got {} and {}",
               results.size(), inputs.size());
  SINTER_CHECK(options.gradients.empty() || options.gradients.size() == results.size(),
               "[grad] expected a gradient for each of {} results but got {}", results.size(),
               options.gradients.size());
  SINTER_CHECK(!options.create_graph || grad_enabled(),
               "[grad] expected no NoGrad under create_graph, which records, but one is alive");
  for (size_t i = 0; i < results.size(); ++i) {
    SINTER_CHECK(
        results[i].requires_grad(),
        "[grad] result {} has no history: either nothing that it was computed from requires a gradient, or "
        "it was computed while a NoGrad was alive",
        i);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    SINTER_CHECK(inputs[i].requires_grad(), "[grad] input {}, {}, does not require a gradient", i,
                 inputs[i].defined() ? to_string(inputs[i].spec()) : "an undefined tensor");
  }
}

}  // namespace
}  // namespace autograd

std::vector<Tensor> grad(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                         const GradOptions& options) {
  autograd::check_arguments(results, inputs, options);
  auto* const tracer = dynamic_cast<Tracer*>(call_tracer());
  for (const Tensor& result : results) {
    SINTER_CHECK(
        result.is_traced() == (tracer != nullptr), "[grad] {}",
        tracer != nullptr
            ? "expected a result that the traced code computed, but it was computed outside of the job"
            : "the result is traced, but no job is being traced any more");
  }
  std::string released;
  std::vector<Tensor> gradients = tracer != nullptr
                                      ? autograd::traced_gradients(*tracer, results, inputs, options)
                                      : autograd::recorded_gradients(results, inputs, options, released);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].defined() || options.allow_unused) continue;
    SINTER_CHECK(
        released.empty(),
        "[grad] the graph through '{}' was released by an earlier call, and no gradient reaches input {} "
        "without it; pass retain_graph = true to that one",
        released, i);
    throw_error<InvalidArgument>(
        "[grad] the results were not computed from input {}, {}; pass allow_unused = true to get an "
        "undefined "
        "tensor for it",
        i, inputs[i].spec());
  }
  return gradients;
}

Tensor grad(const Tensor& result, const Tensor& input, const GradOptions& options) {
  return grad(std::vector<Tensor>{result}, std::vector<Tensor>{input}, options).front();
}

}  // namespace sinter
