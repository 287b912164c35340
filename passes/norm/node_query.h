// A node of a graph as kernels are asked about calls, before memory is planned.
#pragma once

#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/core/op/kernel.h>

namespace sinter::passes {

/// Where a value begins, as far as it is known: results and inputs of the job at multiples of everything.
inline uintptr_t address_of(const GraphValue& value) {
  uintptr_t address = 0;
  const GraphValue* root = &value;
  for (; root->base != nullptr; root = root->base) address += root->base_offset;
  return root->is_memory() ? address + reinterpret_cast<uintptr_t>(root->tensor.raw_data()) : address;
}

/// question(query), where the query is about the call that a node stands for.
template <class Question>
auto ask(const GraphNode& node, Question question) {
  std::vector<const TensorSpec*> specs;
  std::vector<TensorView> views(node.inputs.size());
  for (const GraphUse& use : node.inputs) {
    specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
    if (use.value != nullptr)
      views[specs.size() - 1] = {reinterpret_cast<void*>(address_of(*use.value)), specs.back()->shape,
                                 specs.back()->dtype, true};
  }
  std::vector<TensorSpec> outputs;
  for (const GraphValue* value : node.outputs) outputs.push_back(value->spec);
  const InferContext infer(node.definition(), specs, node.attributes);
  return question(KernelQuery(infer, outputs, views));
}

}  // namespace sinter::passes
