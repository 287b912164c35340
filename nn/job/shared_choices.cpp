#include <cstring>
#include <string>
#include <vector>

#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/job/shared_choices.h>

namespace sinter::nn {
namespace {

/// For tensors that begin where a program's do, at multiples of all alignments.
void choose_kernels(const Graph& graph, Device device) {
  backend_of(device).make_current(device.index);
  for (const GraphNode* node : graph.nodes()) {
    if (node->definition().choose == nullptr || node->is_view()) continue;
    std::vector<const TensorSpec*> inputs;
    std::vector<TensorSpec> outputs;
    for (const GraphUse& use : node->inputs)
      inputs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
    for (const GraphValue* value : node->outputs) outputs.push_back(value->spec);
    const InferContext infer(node->definition(), inputs, node->attributes);
    try {
      choose_kernel(*node->op, device, KernelQuery(infer, outputs));
    } catch (const Error&) {  // which the program will see
    }
  }
}

}  // namespace

void share_kernel_choices(const Graph& graph, Device device, const Communicator& ranks) {
  if (ranks.size() == 1) return;
  std::string text;
  if (ranks.rank() == 0) {
    choose_kernels(graph, device);
    text = KernelTuner::instance().choices();
  }
  const Tensor length = Tensor::from_values<int64_t>({static_cast<int64_t>(text.size())}, {1});
  ranks.broadcast_(length);
  if (length.item<int64_t>() == 0) return;
  const Tensor bytes = Tensor::zeros({length.item<int64_t>()}, DType::kUInt8);
  if (ranks.rank() == 0) std::memcpy(bytes.raw_data(), text.data(), text.size());
  ranks.broadcast_(bytes);
  if (ranks.rank() == 0) return;
  const std::vector<uint8_t> taken = bytes.to_vector<uint8_t>();
  KernelTuner::instance().follow(std::string(taken.begin(), taken.end()));
}

}  // namespace sinter::nn
