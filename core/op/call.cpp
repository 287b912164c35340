#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <sinter/core/base/small_array.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/host_read.h>

namespace sinter {
namespace {

// Calls with up to so many tensors describe them without an allocation.
constexpr size_t kFewTensors = 8;

thread_local bool recording = true;
thread_local CallTracer* tracer = nullptr;

std::atomic<uint64_t> next_sequence = 1;

/// Checks count, presence and devices of the inputs; gives their device, if there are any.
std::optional<Device> check_inputs(const OpDef& def, std::span<const Tensor> inputs) {
  if (def.variadic) {
    SINTER_CHECK(!inputs.empty() && inputs.size() % def.inputs.size() == 0,
                 "[{}] expected a multiple of {} inputs, at least one, but got {}", def.name,
                 def.inputs.size(), inputs.size());
  } else {
    SINTER_CHECK(inputs.size() == def.inputs.size(), "[{}] expected {} inputs but got {}", def.name,
                 def.inputs.size(), inputs.size());
  }
  const Tensor* first = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const InputDef& input_def = def.input_def(i);
    if (!input.defined()) {
      SINTER_CHECK(input_def.optional, "[{}] input '{}' is undefined", def.name, input_def.name);
      continue;
    }
    if (first == nullptr) first = &input;
    SINTER_CHECK(input.device() == first->device(),
                 "[{}] expected all inputs on one device but got {} and {}", def.name, first->device(),
                 input.device());
    SINTER_CHECK(!(input_def.mutated && recording && input.requires_grad()),
                 "[{}] cannot change '{}' in place while its gradient is recorded; use sinter::NoGrad",
                 def.name, input_def.name);
  }
  return first != nullptr ? std::optional(first->device()) : std::nullopt;
}

/// Nothing but what the call changes would show a gradient that it has no rule for: `def` gives no outputs.
void check_no_gradient_is_lost(const OpDef& def, std::span<const Tensor> inputs) {
  bool changes_floats = false;  // counters have no gradient
  for (size_t i = 0; i < inputs.size(); ++i) {
    changes_floats =
        changes_floats || (inputs[i].defined() && def.input_def(i).mutated && is_float(inputs[i].dtype()));
  }
  for (size_t i = 0; changes_floats && i < inputs.size(); ++i) {
    SINTER_CHECK(
        !inputs[i].requires_grad(),
        "[{}] '{}' requires a gradient, which would be lost in a change in place; detach() it, or use "
        "sinter::NoGrad",
        def.name, def.input_def(i).name);
  }
}

/// Describes tensors in place: temporary views that are copied afterwards cost as much as a lock.
void describe(std::span<const Tensor> tensors, TensorView* views) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    const TensorSpec& spec = tensors[i].spec();
    views[i].data = tensors[i].raw_data();
    views[i].shape = spec.shape;
    views[i].dtype = spec.dtype;
    views[i].present = true;
  }
}

/// Raises the versions of what a call changes as it goes out of scope: also where the kernel throws, which
/// may have written some of it.
class Changes {
 public:
  Changes(const OpDef& def, const Attributes& attributes, std::span<const Tensor> inputs)
      : def_(def), attributes_(attributes), inputs_(inputs) {}
  ~Changes() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].defined() && def_.mutates(i, attributes_)) inputs_[i].storage()->bump_version();
    }
  }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

 private:
  const OpDef& def_;
  const Attributes& attributes_;
  std::span<const Tensor> inputs_;
};

void run(const Op& op, Device device, const InferContext& infer, std::span<const Tensor> inputs,
         std::span<const TensorSpec> specs, std::span<const Tensor> outputs) {
  SmallArray<TensorView, kFewTensors> views(inputs.size() + outputs.size());
  TensorView* const output_views = views.begin() + inputs.size();
  describe(inputs, views.begin());
  describe(outputs, output_views);
  const Changes changes(op.definition, infer.attributes(), inputs);
  dispatch(op, device, infer, specs, {views.begin(), inputs.size()}, {output_views, outputs.size()});
}

bool reads(uint64_t mask, size_t index) {
  return mask == kReadsAll || (index < 64 && (mask >> index & 1) != 0);
}

void record(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
            std::span<const TensorSpec> specs, std::span<const Tensor> outputs) {
  const OpDef& def = op.definition;
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->attributes = attributes;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  node->inputs.resize(inputs.size());
  node->outputs.resize(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) continue;
    Node::Input& recorded = node->inputs[i];
    recorded.present = true;
    recorded.spec = input.spec();
    if (const auto& producer = AutogradAccess::node(input)) {
      recorded.edge = {producer, AutogradAccess::node_output(input), {}};
    } else if (input.requires_grad()) {
      recorded.edge.leaf = input;
    }
    const size_t declared = def.variadic ? i % def.inputs.size() : i;
    if (reads(def.gradient_reads.inputs, declared)) recorded.saved = SavedArray(input);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    node->outputs[i].spec = specs[i];
    if (reads(def.gradient_reads.outputs, i)) node->outputs[i].saved = SavedArray(outputs[i]);
    if (def.outputs[i].differentiable && is_float(specs[i].dtype)) {
      AutogradAccess::set_node(outputs[i], node, static_cast<int>(i));
    }
  }
}

}  // namespace

void record_copy(const Op& op, const Tensor& x, const Tensor& y) {
  record(op, {&x, 1}, {}, {&y.spec(), 1}, {&y, 1});
}

bool grad_enabled() {
  return recording;
}

CallTracer* set_call_tracer(CallTracer* next) {
  set_host_read_observer(next != nullptr ? [](const Tensor& read) { tracer->host_reads(read); }
                                         : HostReadObserver());
  return std::exchange(tracer, next);
}

CallTracer* call_tracer() {
  return tracer;
}

NoGrad::NoGrad() : previous_(recording) {
  recording = false;
}
NoGrad::~NoGrad() {
  recording = previous_;
}

Node::~Node() {
  release();
}

void Node::release() {
  released = true;
  for (Output& output : outputs) output.saved = {};
  std::vector<std::shared_ptr<Node>> dropped;
  const auto take_edges = [&dropped](Node& node) {
    for (Input& input : node.inputs) {
      if (input.edge.node != nullptr) dropped.push_back(std::move(input.edge.node));
    }
    node.inputs.clear();
  };
  take_edges(*this);
  while (!dropped.empty()) {
    const std::shared_ptr<Node> node = std::move(dropped.back());
    dropped.pop_back();
    if (node.use_count() == 1) take_edges(*node);  // the last of its edges: a call may read a result twice
  }
}

std::vector<Tensor> call(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) {
  const OpDef& def = op.definition;
  const std::optional<Device> device = check_inputs(def, inputs);
  SmallArray<const TensorSpec*, kFewTensors> input_specs(inputs.size());
  bool differentiable = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_specs[i] = inputs[i].defined() ? &inputs[i].spec() : nullptr;
    differentiable = differentiable || inputs[i].requires_grad();
  }
  if (differentiable && recording && def.outputs.empty() && def.gradient == nullptr) [[unlikely]]
    check_no_gradient_is_lost(def, inputs);
  const InferContext infer(def, {input_specs.data(), input_specs.size()}, attributes);
  const std::vector<TensorSpec> specs = def.infer(infer);
  SINTER_ASSERT(specs.size() <= def.outputs.size(), "[{}] infer gave {} outputs for {} declared", def.name,
                specs.size(), def.outputs.size());
  SINTER_CHECK(device || !specs.empty(), "[{}] expected at least one defined input", def.name);
  if (tracer != nullptr) [[unlikely]] {
    if (auto traced = tracer->take(op, inputs, attributes, specs)) return std::move(*traced);
  }

  std::vector<Tensor> outputs;
  outputs.reserve(specs.size());
  const std::optional<int64_t> view = def.view != nullptr ? def.view(infer) : std::nullopt;
  if (view) {
    const size_t offset = inputs[0].offset_bytes() + static_cast<size_t>(*view) * size_of(specs[0].dtype);
    outputs.push_back(Tensor::over(inputs[0].storage(), offset, specs[0]));
  } else {
    for (const TensorSpec& spec : specs) outputs.push_back(Tensor::empty(spec));
    run(op, device ? *device : specs[0].device, infer, inputs, specs, outputs);
  }
  if (differentiable && recording && def.gradient != nullptr) record(op, inputs, attributes, specs, outputs);
  return outputs;
}

}  // namespace sinter
