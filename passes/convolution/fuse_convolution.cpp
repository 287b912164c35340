// Fuse convolution, for inference only: a convolution, its bias, a sum and an activation behind it become one
// call.
//
//   %1 = conv2d(%0, weight, bias)
//   %2 = add(%1, %shortcut)             →     %3 = conv2d_bias_act(%0, weight, bias, %shortcut) {relu}
//   %3 = relu(%2)
//
// Each of bias, sum, in either order of its inputs, and ReLU or PReLU may be missing. The shortcut may be one
// image for all. Nobody else may read what lies in between. The call stands where the last of them stood. A
// convolution with a bias alone is rewritten too, for the new op has kernels that add it while they convolve.
// One that no input of the graph takes part in is computed once, and stays apart from sums with what changes.
#include <algorithm>
#include <set>

#include <sinter/core/graph/tracer.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

struct Chain {
  GraphNode* convolution = nullptr;
  GraphNode* sum = nullptr;
  size_t addend = 0;  ///< which input of the sum
  GraphNode* activation = nullptr;

  GraphNode& last() const {
    return *(activation != nullptr ? activation : sum != nullptr ? sum : convolution);
  }
  GraphValue* bias() const { return convolution->input(2); }
  bool is_plain() const { return bias() == nullptr && sum == nullptr && activation == nullptr; }
  std::string text() const {
    std::string text = convolution->op->name();
    if (bias() != nullptr) text += " + bias";
    if (sum != nullptr) text += " + " + sum->op->name();
    if (activation != nullptr) text += " + " + activation->op->name();
    return convolution->scope.empty() ? text : text + " in " + convolution->scope;
  }
};

/// Why the activation of `value` cannot be that of a convolution; empty if it can.
std::string reason_against(const GraphNode& activation, const GraphNode& convolution) {
  if (activation.traits().role == Role::kRelu) return {};
  const Layout* const layout = activation.attributes.find<Layout>("layout");
  if (layout == nullptr || *layout != convolution.attributes.as<ops::Conv2dAttributes>().layout)
    return "it has another layout";
  const GraphValue& slope = *activation.input(1);
  if (slope.spec.shape.numel() != convolution.input(1)->spec.shape[0]) return "one slope serves all channels";
  return {};
}

/// Whether one is a tensor like the other, or a single image to add to all of it.
bool is_addend_of(const TensorSpec& spec, const TensorSpec& images) {
  if (spec.shape.rank() != 4 || spec.shape[0] != 1) return spec == images;
  return spec == TensorSpec{images.shape.with(0, 1), images.dtype, images.device};
}

using Nodes = std::set<const GraphNode*>;

/// Whether no input of the graph takes part in the call, given those of the calls before it that none does
/// in.
bool is_constant(const GraphNode& node, const Nodes& constants) {
  return std::ranges::all_of(node.inputs, [&](const GraphUse& use) {
    return use.value == nullptr || use.value->root().is_memory() || constants.contains(use.value->producer);
  });
}

Nodes constants_of(const Graph& graph) {
  Nodes constants;
  for (const GraphNode* const node : graph.nodes()) {
    if (is_constant(*node, constants)) constants.insert(node);
  }
  return constants;
}

/// The convolution with all that can be taken in.
Chain chain_of(GraphNode& convolution, const Nodes& constants, PassContext& context) {
  Chain chain{.convolution = &convolution};
  const GraphValue* value = convolution.outputs[0];
  GraphNode* user = only_user(*value);
  if (user != nullptr && constants.contains(&convolution) && !constants.contains(user)) return chain;
  if (user != nullptr && user->traits().role == Role::kSum) {
    const size_t addend = user->input(0) == value ? 1 : 0;
    if (!is_addend_of(user->input(addend)->spec, value->spec) || user->outputs[0]->spec != value->spec) {
      context.missed(fmt::format("{} behind {}: it broadcasts", name_of(*user), name_of(convolution)));
      return chain;
    }
    chain.sum = user;
    chain.addend = addend;
    value = user->outputs[0];
    user = only_user(*value);
  }
  const bool activates = user != nullptr && user->input(0) == value &&
                         (user->traits().role == Role::kRelu || user->traits().role == Role::kPRelu);
  if (!activates) return chain;
  if (const std::string reason = reason_against(*user, convolution); !reason.empty()) {
    context.missed(fmt::format("{} behind {}: {}", name_of(*user), name_of(convolution), reason));
  } else {
    chain.activation = user;
  }
  return chain;
}

/// What the fused call would read and the memory does not hold any more where it stands; null if there is
/// none.
const GraphValue* lost_value(const Graph& graph, const Chain& chain) {
  for (const GraphNode* const node : {chain.convolution, chain.sum}) {
    for (size_t i = 0; node != nullptr && i < node->inputs.size(); ++i) {
      const GraphValue* const value = node->input(i);
      if (value != nullptr && !graph.holds(*value, &chain.last())) return value;
    }
  }
  return nullptr;
}

void fuse(Graph& graph, const Chain& chain) {
  GraphNode& last = chain.last();
  Tracer tracer(graph, &last);
  tracer.set_scope(chain.convolution->scope);
  const auto tensor = [&](GraphValue* value) { return value == nullptr ? Tensor() : tracer.tensor(*value); };
  ops::Conv2dActOptions options{chain.convolution->attributes.as<ops::Conv2dAttributes>(), {}};
  Tensor addend, slope;
  if (chain.sum != nullptr) addend = tensor(chain.sum->input(chain.addend));
  if (chain.activation != nullptr) {
    const bool is_relu = chain.activation->traits().role == Role::kRelu;
    options.activation = is_relu ? ops::fused::Activation::kRelu : ops::fused::Activation::kPRelu;
    if (!is_relu) slope = tensor(chain.activation->input(1));
  }
  const GraphNode& convolution = *chain.convolution;
  const Tensor y = ops::conv2d_bias_act(tensor(convolution.input(0)), tensor(convolution.input(1)),
                                        tensor(chain.bias()), addend, slope, options);
  graph.replace_uses(*last.outputs[0], *tracer.use_of(y).value);
  for (GraphNode* const node : {chain.activation, chain.sum, chain.convolution}) {
    if (node != nullptr) graph.erase(*node);
  }
}

}  // namespace

void fuse_convolution(Graph& graph, PassContext& context) {
  if (context.training) return;
  const Op& conv2d = OpRegistry::instance().get("conv2d");
  const Nodes constants = constants_of(graph);
  for (GraphNode* const node : graph.nodes()) {
    // Of a chain only the convolution is met: what follows it is gone by then, and is none.
    if (node->op != &conv2d) continue;
    const Chain chain = chain_of(*node, constants, context);
    if (chain.is_plain()) continue;
    const std::string text = chain.text();
    if (const GraphValue* const lost = lost_value(graph, chain)) {
      context.missed(fmt::format("{}: {} changes in between", text, lost->description()));
      continue;
    }
    fuse(graph, chain);
    context.done(text);
  }
}

}  // namespace sinter::passes
