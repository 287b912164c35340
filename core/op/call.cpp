#include <algorithm>
#include <atomic>

#include <sinter/core/base/small_array.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {
namespace {

// Calls with up to so many tensors describe them without an allocation.
constexpr size_t kFewTensors = 8;

thread_local bool recording = true;

std::atomic<uint64_t> next_sequence = 1;

std::atomic<CallObserver*> call_observer = nullptr;

/// Checks count, presence and devices of the inputs; gives the device of the call.
Device check_inputs(const OpDef& def, std::span<const Tensor> inputs) {
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
  SINTER_CHECK(first != nullptr, "[{}] expected at least one defined input", def.name);
  return first->device();
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

void run_kernel(const Op& op, Device device, const InferContext& infer, std::span<const Tensor> inputs,
                std::span<const TensorSpec> specs, std::span<const Tensor> outputs) {
  Backend& backend = backend_of(device);
  backend.make_current(device.index);
  const NamedRange range(backend, op.name().c_str());
  const KernelQuery query(infer, specs, inputs);
  const Kernel& kernel = select_kernel(op, device, query);
  const size_t workspace_bytes = kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(query) : 0;
  const Stream stream = current_stream(device);
  Workspace::Lease lease;
  if (workspace_bytes > 0) {
    Workspace& workspace = backend.workspace(stream);
    lease = kernel.least_workspace_bytes != nullptr
                ? workspace.lease_at_most(workspace_bytes, kernel.least_workspace_bytes(query))
                : workspace.lease(workspace_bytes);
  }

  SmallArray<TensorView, kFewTensors> views(inputs.size() + outputs.size());
  TensorView* const output_views = views.begin() + inputs.size();
  describe(inputs, views.begin());
  describe(outputs, output_views);
  const KernelContext context({views.begin(), inputs.size()}, {output_views, outputs.size()},
                              infer.attributes(), stream, lease.data(), lease.bytes());
  CallObserver* const observer = call_observer.load(std::memory_order_acquire);
  if (observer != nullptr) [[unlikely]]
    observer->before(op, kernel, query, stream);
  try {
    kernel.run(context);
  } catch (const OutOfMemory&) {
    // Not the pool's but the vendor's own, for code that is loaded late: leave it room for the next attempt.
    backend.memory_pool(device.index).trim();
    throw;
  }
  if (observer != nullptr) [[unlikely]]
    observer->after(stream);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && op.definition.input_def(i).mutated) inputs[i].storage()->bump_version();
  }
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

bool grad_enabled() {
  return recording;
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
  std::vector<std::shared_ptr<Node>> doomed;
  const auto take_edges = [&doomed](Node& node) {
    for (Input& input : node.inputs) {
      Edge& edge = input.edge;
      if (edge.node != nullptr && edge.node.use_count() == 1) doomed.push_back(std::move(edge.node));
    }
    node.inputs.clear();
  };
  take_edges(*this);
  while (!doomed.empty()) {
    const std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
    take_edges(*node);
  }
}

CallObserver* set_call_observer(CallObserver* observer) {
  return call_observer.exchange(observer, std::memory_order_acq_rel);
}

std::vector<Tensor> call(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) {
  const OpDef& def = op.definition;
  const Device device = check_inputs(def, inputs);
  SmallArray<const TensorSpec*, kFewTensors> input_specs(inputs.size());
  bool differentiable = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_specs[i] = inputs[i].defined() ? &inputs[i].spec() : nullptr;
    differentiable = differentiable || inputs[i].requires_grad();
  }
  const InferContext infer(def, {input_specs.data(), input_specs.size()}, attributes);
  const std::vector<TensorSpec> specs = def.infer(infer);
  SINTER_ASSERT(specs.size() <= def.outputs.size(), "[{}] infer gave {} outputs for {} declared", def.name,
                specs.size(), def.outputs.size());

  std::vector<Tensor> outputs;
  outputs.reserve(specs.size());
  const std::optional<int64_t> view = def.view != nullptr ? def.view(infer) : std::nullopt;
  if (view) {
    const size_t offset = inputs[0].offset_bytes() + static_cast<size_t>(*view) * size_of(specs[0].dtype);
    outputs.push_back(Tensor::over(inputs[0].storage(), offset, specs[0]));
  } else {
    for (const TensorSpec& spec : specs) outputs.push_back(Tensor::empty(spec));
    run_kernel(op, device, infer, inputs, specs, outputs);
  }
  if (differentiable && recording && def.gradient != nullptr) record(op, inputs, attributes, specs, outputs);
  return outputs;
}

}  // namespace sinter
