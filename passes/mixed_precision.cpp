// Mixed precision: every op computes in the precision that its definition asks for (Precision in
// core/op/op_def.h), and each value is cast once, if at all.
//
//   %2 = cast(w) {float32}      w: the float16 working copy
//   %3 = conv2d(x, %2)                         %4 = cast(x) {float16}
//   %5 = relu(%3)                        →     %3 = conv2d(%4, w)
//   %6 = mean(%5)                              %5 = relu(%3)
//                                              %7 = cast(%5) {float32}
//                                              %6 = mean(%7)
//
// The graph comes as the model was written, in float32. Values that a job computes are rounded where an op
// takes them in 16 bit; casts that only widened are undone, and those of parameters are replaced by the
// working copies that the optimiser keeps, so that gradients arrive there. What an op gives in 16 bit stays
// so until one wants float32. Outputs of the graph keep their dtypes.
#include <cmath>
#include <map>
#include <set>

#include <sinter/ops/cast/cast.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

/// Whether every number of `from` is one of `to`.
bool widens(DType from, DType to) {
  if (from == to) return true;
  if (is_half(from)) return to == DType::kFloat32 || to == DType::kFloat64;
  return from == DType::kFloat32 && to == DType::kFloat64;
}

class MixedPrecision {
 public:
  MixedPrecision(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), reduced_(*context.precision), casts_(graph) {
    for (const GraphValue* input : graph.inputs()) computed_.insert(input);
    for (const GraphNode* node : graph.nodes()) {
      const bool computed = std::ranges::any_of(
          node->inputs, [this](const GraphUse& use) { return computed_.contains(use.value); });
      for (const GraphValue* value : node->outputs) {
        traced_[value] = value->spec.dtype;
        if (computed) computed_.insert(value);
      }
    }
    for (const GraphUse& use : graph.outputs()) output_dtypes_.push_back(use.value->spec.dtype);
  }

  void run() {
    for (GraphNode* const node : graph_.nodes()) visit(*node);
    for (size_t i = 0; i < output_dtypes_.size(); ++i) {
      graph_.set_output(i, converted(output_dtypes_[i], graph_.outputs()[i], nullptr));
    }
    graph_.erase_dead();
    report();
  }

 private:
  /// The dtype of a value in the graph as it came.
  DType traced(const GraphValue& value) const {
    const auto found = traced_.find(&value);
    return found != traced_.end() ? found->second : value.spec.dtype;
  }

  /// The use behind a cast that lost nothing, or nullptr; nor of memory that is changed later, of which the
  /// cast keeps a copy.
  const GraphUse* source_of(const GraphValue& value) const {
    const GraphNode* const node = value.producer;
    if (node == nullptr || node->traits().role != Role::kCast) return nullptr;
    if (!graph_.holds(*node->input(0), nullptr)) return nullptr;
    return widens(node->input(0)->spec.dtype, value.spec.dtype) ? &node->inputs[0] : nullptr;
  }
  /// A node that gives its one input's elements in another shape or order, and can do so anywhere behind.
  const GraphNode* mover_of(const GraphValue& value) const {
    const GraphNode* const node = value.producer;
    if (node == nullptr || node->inputs.size() != 1 || node->outputs.size() != 1) return nullptr;
    if (!graph_.holds(*node->input(0), nullptr)) return nullptr;
    const bool moves = node->definition().view != nullptr || node->traits().role == Role::kPermutation;
    return moves && node->traits().precision == Precision::kFollow ? node : nullptr;
  }
  Tensor working_copy(const GraphValue& value) const {
    if (value.kind != GraphValue::Kind::kLeaf || !context_.working_copy) return {};
    // What the forward pass changes has a working copy that is behind.
    if (value.version != 0 || !graph_.holds(value, nullptr)) return {};
    return context_.working_copy(value.tensor, reduced_);
  }
  /// Whether the value's numbers are there in the 16-bit type.
  bool comes_reduced(const GraphValue& value) const {
    if (value.spec.dtype == reduced_ || working_copy(value).defined()) return true;
    if (const GraphUse* const source = source_of(value)) return comes_reduced(*source->value);
    const GraphNode* const mover = mover_of(value);
    return mover != nullptr && comes_reduced(*mover->input(0));
  }

  /// `use` in another dtype, for who stands at `before`.
  GraphUse converted(DType dtype, const GraphUse& use, GraphNode* before) {
    GraphValue& value = *use.value;
    if (value.spec.dtype == dtype) return use;
    if (const GraphUse* const source = source_of(value)) {
      return converted(dtype, {source->value, use.differentiable && source->differentiable}, before);
    }
    if (dtype == reduced_) {
      if (const Tensor copy = working_copy(value); copy.defined()) {
        return {&graph_.memory(copy, GraphValue::Kind::kLeaf, value.name + ".working"), use.differentiable};
      }
      if (const GraphNode* const mover = mover_of(value); mover != nullptr && comes_reduced(value)) {
        return moved(*mover, use, before);
      }
    }
    const std::string& scope = before != nullptr ? before->scope : kNoScope;
    return casts_.get(use, dtype, before, scope, [&](const Tensor& t) { return ops::cast(t, dtype); });
  }

  /// The result of `mover` in the 16-bit type: its input's numbers are there in it.
  GraphUse moved(const GraphNode& mover, const GraphUse& use, GraphNode* before) {
    const auto key = std::pair(use.value, use.differentiable);
    if (const auto found = moved_.find(key); found != moved_.end())
      return {found->second, use.differentiable};
    const GraphUse from = {mover.inputs[0].value, use.differentiable && mover.inputs[0].differentiable};
    const GraphNode& made =
        graph_.insert(before, *mover.op, {converted(reduced_, from, before)}, mover.attributes, mover.scope);
    moved_[key] = made.outputs[0];
    return {made.outputs[0], use.differentiable};
  }

  /// Whether 16 bits do for a number: not where it would be infinite, or 0, or lose digits as subnormals do.
  bool keeps(double number) const {
    const double size = std::abs(number);
    const bool half = reduced_ == DType::kFloat16;
    return size == 0.0 || !std::isfinite(size) ||
           (size >= (half ? 0x1p-14 : 0x1p-126) && size <= (half ? 65504.0 : 0x1.fep127));
  }
  /// Whether a value that no input takes part in may be read in the 16-bit type: a parameter, in whatever
  /// shape, or one number for all that has a place there. Others, a mask's -1e9 or the model's buffers, would
  /// not be what they are.
  bool may_be_reduced(const GraphValue& value) const {
    if (comes_reduced(value)) return true;
    if (value.kind == GraphValue::Kind::kLeaf) return value.tensor.requires_grad();
    if (value.kind == GraphValue::Kind::kConstant)
      return value.tensor.numel() == 1 && keeps(value.tensor.item());
    const GraphNode& node = *value.producer;
    if (const auto* const full = node.op->name() == "full" ? node.attributes.find<double>("value") : nullptr)
      return keeps(*full);
    return mover_of(value) != nullptr && may_be_reduced(*node.input(0));
  }

  static bool takes_float(const GraphNode& node, size_t i) {
    return node.input(i) != nullptr && is_float(node.input(i)->spec.dtype) && !node.changes(i);
  }

  /// Whether the node computes in the 16-bit type.
  bool is_reduced(const GraphNode& node) const {
    const OpTraits& traits = node.traits();
    if (traits.precision != Precision::kReduced && traits.precision != Precision::kFollow) return false;
    bool any = false, follows = false, wide = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!takes_float(node, i) || is_in(node, traits.float32_inputs, i)) continue;
      const GraphValue& value = *node.input(i);
      if (traced(value) != DType::kFloat32) return false;  // the model asks for another dtype
      any = true;
      if (!computed_.contains(&value)) {
        wide = wide || !may_be_reduced(value);
      } else if (comes_reduced(value)) {
        follows = true;
      } else {
        wide = true;
      }
    }
    return traits.precision == Precision::kReduced ? any : follows && !wide;
  }

  void visit(GraphNode& node) {
    if (node.traits().role == Role::kCast) return visit_cast(node);
    const bool reduces = is_reduced(node);
    bool in_float = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!takes_float(node, i)) continue;
      in_float = true;
      const bool narrow = reduces && !is_in(node, node.traits().float32_inputs, i);
      const GraphUse use = converted(narrow ? reduced_ : traced(*node.input(i)), node.inputs[i], &node);
      if (use.value != node.input(i)) graph_.set_input(node, i, use);
    }
    graph_.infer_again(node);
    if (reduces) {
      ++reduced_nodes_;
    } else if (in_float) {
      ++kept_[{node.op->name(), node.traits().precision}];
    }
  }

  /// A cast that the model makes reads the narrowest tensor with the same numbers.
  void visit_cast(GraphNode& node) {
    if (!is_float(node.input(0)->spec.dtype)) return;
    while (const GraphUse* const source = source_of(*node.input(0))) {
      graph_.set_input(node, 0, {source->value, node.inputs[0].differentiable && source->differentiable});
    }
  }

  static const char* reason(Precision precision) {
    switch (precision) {
      case Precision::kUnchanged:
        return "says nothing of its precision";
      case Precision::kFloat32:
        return "asks for it";
      default:
        return "its inputs come so";
    }
  }

  void report() {
    size_t casts = 0;
    for (const GraphNode* node : graph_.nodes()) {
      if (node->traits().role != Role::kCast) continue;
      ++casts;
      const GraphValue& root = node->input(0)->root();
      if (root.kind != GraphValue::Kind::kLeaf || !context_.training) continue;
      context_.missed(
          fmt::format("'{}' is cast to {} at every step", root.name, node->outputs[0]->spec.dtype));
    }
    context_.done(fmt::format("{} calls in {}, {} casts", reduced_nodes_, reduced_, casts));
    for (const auto& [which, count] : kept_) {
      context_.missed(fmt::format("{} x {} stays as traced: {}", count, which.first, reason(which.second)));
    }
  }

  inline static const std::string kNoScope;

  Graph& graph_;
  PassContext& context_;
  DType reduced_;
  std::map<const GraphValue*, DType> traced_;
  std::set<const GraphValue*> computed_;  // from inputs of the graph, rather than from memory alone
  std::vector<DType> output_dtypes_;
  ConvertedValues<DType> casts_;
  std::map<std::pair<GraphValue*, bool>, GraphValue*> moved_;
  size_t reduced_nodes_ = 0;
  std::map<std::pair<std::string, Precision>, int> kept_;
};

}  // namespace

void make_mixed(Graph& graph, PassContext& context) {
  if (context.precision) MixedPrecision(graph, context).run();
}

}  // namespace sinter::passes
