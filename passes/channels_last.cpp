// Layout: every op that can say how its images lie is turned to the layout that is asked for, and the values
// between such ops stay turned.
//
//   %2 = conv2d(x, w) {layout=NCHW}           %2 = permute(x) {0, 2, 3, 1}
//   %3 = relu(%2)                             %3 = permute(w) {0, 2, 3, 1}
//   %4 = reshape(%3)                   →      %4 = conv2d(%2, %3) {layout=NHWC}
//                                             %5 = relu(%4)
//                                             %6 = permute(%5) {0, 3, 1, 2}
//                                             %7 = reshape(%6)
//
// Ops for which any order of axes does (LayoutRule::kAnyOrder) carry turned values on, those whose attributes
// name axes with other attributes; operands that are broadcast are turned with them. All others get the order
// back that they were traced in. So there are permutations only where a value enters or leaves: each is made
// once, those that undo each other are left out, and where no axis but those of extent 1 moves it is a
// reshape, which is a view. Filters are permuted in the step, and gradients with them: the variables keep
// their layout.
//
// It works in either direction: a model written for NHWC can be turned to NCHW.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

using Order = std::array<int64_t, 4>;  // axis i of the result is axis order[i] of the operand
constexpr Order kToLast{0, 2, 3, 1}, kToFirst{0, 3, 1, 2};

std::vector<int64_t> list_of(const Order& order) {
  return {order.begin(), order.end()};
}

/// `shape` with as many leading axes of extent 1 as make its rank 4.
Shape widened(Shape shape) {
  while (shape.rank() < 4) shape = shape.inserted(0, 1);
  return shape;
}

Shape permuted(const Shape& shape, const Order& order) {
  return {shape[static_cast<int>(order[0])], shape[static_cast<int>(order[1])],
          shape[static_cast<int>(order[2])], shape[static_cast<int>(order[3])]};
}

/// Whether elements keep their places in memory.
bool moves_nothing(const Shape& shape, const Order& order) {
  int64_t last = -1;
  for (const int64_t axis : order) {
    if (shape[static_cast<int>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

/// The permutation of a node whose role is that, if it has rank 4.
std::optional<Order> permutation_of(const GraphNode* node) {
  if (node == nullptr || node->traits().role != Role::kPermutation) return std::nullopt;
  const auto* const axes = node->attributes.find<std::vector<int64_t>>("axes");
  if (axes == nullptr || axes->size() != 4) return std::nullopt;
  Order order;
  for (size_t i = 0; i < 4; ++i) order[i] = (*axes)[i] < 0 ? (*axes)[i] + 4 : (*axes)[i];
  return order;
}

/// `second` behind `first`.
Order composed(const Order& first, const Order& second) {
  Order both;
  for (size_t i = 0; i < 4; ++i) both[i] = first[static_cast<size_t>(second[i])];
  return both;
}

constexpr Order kIdentity{0, 1, 2, 3};

class LayoutTurn {
 public:
  LayoutTurn(Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        layout_(*context.layout),
        to_(layout_ == Layout::kNHWC ? kToLast : kToFirst),
        back_(layout_ == Layout::kNHWC ? kToFirst : kToLast),
        permuted_(graph) {}

  void run() {
    for (GraphNode* const node : graph_.nodes()) visit(*node);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const GraphUse use = graph_.outputs()[i];
      if (needs_restoring(use)) graph_.set_output(i, restored(use, nullptr, "an output of the job"));
    }
    graph_.erase_dead();
    if (turned_nodes_ == 0) return;
    context_.done(fmt::format("{} calls in {}, {} more carry it on; {} filters are permuted{}", turned_nodes_,
                              to_string(layout_), carrying_nodes_, filters_.size(),
                              context_.training ? " at every step" : ""));
  }

 private:
  /// The permutation that gives a value, if what it permutes can be read in its place: not memory that is
  /// changed later, of which it keeps a copy.
  std::optional<Order> undoable(const GraphValue& value) const {
    const auto inner = permutation_of(value.producer);
    return inner && graph_.holds(*value.producer->input(0), nullptr) ? inner : std::nullopt;
  }

  /// `use` with its axes in another order.
  GraphUse put(const GraphUse& use, const Order& order, GraphNode* before, const std::string& why) {
    if (const auto inner = undoable(*use.value)) {
      const GraphUse& source = use.value->producer->inputs[0];
      const Order both = composed(*inner, order);
      const GraphUse from = {source.value, use.differentiable && source.differentiable};
      return both == kIdentity ? from : permute(from, both, before, why);
    }
    return permute(use, order, before, why);
  }

  GraphUse permute(const GraphUse& use, const Order& order, GraphNode* before, const std::string& why) {
    const Shape& shape = use.value->spec.shape;
    const Shape wide = widened(shape);
    const bool moves = !moves_nothing(wide, order);
    const size_t nodes = graph_.node_count();
    const GraphUse made =
        permuted_.get(use, order, before, before != nullptr ? before->scope : "", [&](const Tensor& tensor) {
          if (!moves) {
            const Shape result = permuted(wide, order);
            return ops::reshape(tensor, {result.begin(), result.end()});
          }
          const Tensor of_four =
              shape.rank() == 4 ? tensor : ops::reshape(tensor, {wide.begin(), wide.end()});
          return ops::permute(of_four, list_of(order));
        });
    if (moves && graph_.node_count() > nodes && !why.empty()) {
      context_.missed(
          fmt::format("{} of {} is permuted: {}", use.value->description(), use.value->spec, why));
    }
    return made;
  }

  bool is_turned(const GraphValue& value) const { return turned_.contains(&value); }
  /// Whether the value is there in the turned order.
  bool comes_turned(const GraphValue& value) const {
    if (is_turned(value)) return true;
    const auto inner = undoable(value);
    return inner && composed(*inner, to_) == kIdentity;
  }
  bool needs_restoring(const GraphUse& use) const {
    return use.value != nullptr && (is_turned(*use.value) || same_as_.contains(use.value));
  }

  /// What `use` was when it was traced.
  GraphUse restored(const GraphUse& use, GraphNode* before, const std::string& why) {
    if (const auto same = same_as_.find(use.value); same != same_as_.end()) {
      return {same->second.value, use.differentiable && same->second.differentiable};
    }
    return is_turned(*use.value) ? permute(use, back_, before, why) : use;
  }
  /// It in the turned order.
  GraphUse turned(const GraphUse& use, GraphNode* before, const std::string& why) {
    if (const auto same = same_as_.find(use.value); same != same_as_.end()) {
      return put({same->second.value, use.differentiable && same->second.differentiable}, to_, before, why);
    }
    return is_turned(*use.value) ? use : put(use, to_, before, why);
  }

  void visit(GraphNode& node) {
    const LayoutRule& rule = node.traits().layout;
    if (rule.kind == LayoutRule::Kind::kAttribute && turn(node)) return;
    if (rule.kind == LayoutRule::Kind::kAnyOrder && carry(node)) return;
    if (node.traits().role == Role::kPermutation && compose(node)) return;
    restore(node);
  }

  void restore(GraphNode& node) {
    const bool fixed = node.traits().layout.kind == LayoutRule::Kind::kFixed;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!needs_restoring(node.inputs[i])) continue;
      graph_.set_input(node, i,
                       restored(node.inputs[i], &node,
                                fmt::format("{} {}", name_of(node),
                                            fixed ? "works on the axes as they are" : "cannot be turned")));
    }
  }

  /// The axes of all outputs of rank 4 that are in `mask` are in the turned order from here on.
  void mark(const GraphNode& node, uint64_t mask) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i]->spec.shape.rank() == 4 && (mask >> i & 1) != 0) turned_.insert(node.outputs[i]);
    }
  }

  bool turn(GraphNode& node) {
    const LayoutRule& rule = node.traits().layout;
    const auto* const layout = node.attributes.find<Layout>("layout");
    if (layout == nullptr || *layout == layout_) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.input(i) == nullptr || !is_in(node, rule.images | rule.filters, i)) continue;
      if (node.input(i)->spec.shape.rank() != 4 || node.changes(i)) return false;
    }
    restore_others(node, rule.images | rule.filters);
    graph_.set_attributes(node, node.attributes.with("layout", layout_));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.input(i) == nullptr || !is_in(node, rule.images | rule.filters, i)) continue;
      const bool is_filter = is_in(node, rule.filters, i) && !comes_turned(*node.input(i));
      if (is_filter && !moves_nothing(node.input(i)->spec.shape, to_)) filters_.insert(node.input(i));
      graph_.set_input(node, i,
                       turned(node.inputs[i], &node, is_filter ? "" : name_of(node) + " takes it turned"));
    }
    graph_.infer_again(node);
    mark(node, rule.image_outputs);
    ++turned_nodes_;
    return true;
  }

  void restore_others(GraphNode& node, uint64_t but) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (is_in(node, but, i) || !needs_restoring(node.inputs[i])) continue;
      graph_.set_input(node, i, restored(node.inputs[i], &node, name_of(node) + " takes it as it was"));
    }
  }

  /// Whether the axes of the node can be in any order, given a turned operand.
  bool can_carry(const GraphNode& node) const {
    const bool by_axes = node.traits().layout.reordered != nullptr;
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.input(i) == nullptr) continue;
      const int rank = node.input(i)->spec.shape.rank();
      if (rank > 4 || (by_axes && rank != 4) || node.changes(i)) return false;
      any = any || comes_turned(*node.input(i));
    }
    if (!any || by_axes) return any;
    return std::ranges::all_of(node.outputs, [](const GraphValue* v) { return v->spec.shape.rank() == 4; });
  }

  bool carry(GraphNode& node) {
    if (!can_carry(node)) return false;
    if (const LayoutRule::Reordered reordered = node.traits().layout.reordered) {
      const std::optional<Attributes> attributes = reordered(node.attributes, to_);
      if (!attributes) return false;
      graph_.set_attributes(node, *attributes);
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.input(i) == nullptr || node.input(i)->spec.shape.numel() == 1) continue;
      graph_.set_input(node, i, turned(node.inputs[i], &node, name_of(node) + " takes it turned"));
    }
    graph_.infer_again(node);
    mark(node, ~uint64_t{0});
    ++carrying_nodes_;
    return true;
  }

  /// A permutation of the model's own, of a turned value.
  bool compose(GraphNode& node) {
    const auto own = permutation_of(&node);
    if (!own || !is_turned(*node.input(0))) return false;
    const Order both = composed(back_, *own);
    if (both == kIdentity) same_as_[node.outputs[0]] = node.inputs[0];
    graph_.set_attributes(node, node.attributes.with("axes", list_of(both)));
    return true;
  }

  Graph& graph_;
  PassContext& context_;
  Layout layout_;
  Order to_, back_;
  ConvertedValues<Order> permuted_;
  std::set<const GraphValue*> turned_;
  /// Permutations of the model that undo the turn: the turned value, which is what they gave.
  std::map<const GraphValue*, GraphUse> same_as_;
  std::set<const GraphValue*> filters_;
  size_t turned_nodes_ = 0, carrying_nodes_ = 0;
};

}  // namespace

void turn_layout(Graph& graph, PassContext& context) {
  if (context.layout) LayoutTurn(graph, context).run();
}

}  // namespace sinter::passes
