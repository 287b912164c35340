#include <algorithm>

#include <sinter/passes/random_base.h>

namespace sinter::passes {
namespace {

/// Whether any number is drawn with the key: for a tensor without elements none is, whoever's the key is.
bool is_drawn_with(const GraphNode& key) {
  return std::ranges::any_of(key.outputs[0]->users, [](const GraphNode* user) {
    return std::ranges::any_of(user->outputs,
                               [](const GraphValue* value) { return value->spec.shape.numel() > 0; });
  });
}

}  // namespace

size_t rebase_random_keys(Graph& graph, const Tensor& base, RandomKey start, uint64_t blocks) {
  size_t keys = 0;
  for (GraphNode* const node : graph.nodes()) {
    if (node->traits().role != Role::kRandomKey || node->input(0) != nullptr || !is_drawn_with(*node))
      continue;
    const uint64_t* const seed = node->attributes.find<uint64_t>("seed");
    const uint64_t* const offset = node->attributes.find<uint64_t>("offset");
    SINTER_ASSERT(seed != nullptr && offset != nullptr, "[trace] '{}' has no seed and offset",
                  node->op->name());
    SINTER_CHECK(*seed == start.seed && *offset >= start.offset && *offset - start.offset < blocks,
                 "[trace] {} draws random numbers from a generator of its own, which a job cannot advance "
                 "from step to step; use the thread's (manual_seed)",
                 node->scope.empty() ? "the model" : node->scope);
    GraphValue& leaf = graph.memory(base, GraphValue::Kind::kLeaf, "(random base)");
    graph.set_attributes(*node,
                         node->attributes.with("seed", uint64_t{0}).with("offset", *offset - start.offset));
    graph.set_input(*node, 0, {&leaf, false});
    ++keys;
  }
  return keys;
}

}  // namespace sinter::passes
