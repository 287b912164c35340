// Recompute: under a limit of memory, results that gradients read long after they were made are not kept but
// computed again.
//
//   %1, %2, %3, %4 = batch_norm_act(%0, …)         %1, %2, %3, %4 = batch_norm_act(%0, …)
//   %5 = conv2d(%1, …)                             %5 = conv2d(%1, …)
//   …                                        →     …
//   %80 = conv2d_grad_weight(%1, %79)              %81 = batch_norm_act(%0, …, %2, %3)
//                                                  %80 = conv2d_grad_weight(%81, %79)
//
// Only what takes one pass over memory is computed again, and only from what is there at that time anyway.
// The step in which most bytes are in use is relieved first, by the result that frees the most for each byte
// that is moved to compute it again, until the plan of all buffers keeps the limit or nothing is left to be
// done. (T. Chen, B. Xu,
// C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost", 2016, keep results at chosen places
// and compute whole stretches again; here stretches are one call long, which costs bandwidth but no
// convolution.)
#include <algorithm>
#include <optional>
#include <vector>

#include <sinter/core/executor/lifetimes.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

/// An input counts as small against a result where it takes no more than this share of its bytes: it is kept
/// for longer.
constexpr size_t kSmallShare = 64;

/// When nodes run, and how many bytes are in use.
struct Timeline {
  const Graph& graph;
  std::vector<GraphNode*> nodes;
  std::map<const GraphNode*, int> steps;
  const std::set<const GraphNode*>& preparation;
  GraphLifetimes lifetimes;
  size_t peak = 0;
  int fullest = 0;  // the first step with so many bytes

  Timeline(const Graph& given, const std::set<const GraphNode*>& prepared)
      : graph(given),
        nodes(given.nodes()),
        preparation(prepared),
        lifetimes(graph_lifetimes(given, true, preparation)) {
    for (size_t i = 0; i < nodes.size(); ++i) steps[nodes[i]] = static_cast<int>(i);
    std::vector<int64_t> changes(nodes.size() + 2, 0);
    for (const auto& [value, buffer] : lifetimes.buffers) {
      const auto bytes =
          static_cast<int64_t>((buffer.bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment);
      changes[static_cast<size_t>(buffer.first)] += bytes;
      changes[static_cast<size_t>(buffer.last) + 1] -= bytes;
    }
    int64_t bytes = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
      bytes += changes[i];
      if (bytes <= static_cast<int64_t>(peak)) continue;
      peak = static_cast<size_t>(bytes);
      fullest = static_cast<int>(i);
    }
  }
  /// The last step that reads the value or a view of it; the end for outputs of the graph.
  int last_use(const GraphValue& root) const {
    const auto shared = lifetimes.over.find(&root);
    if (shared != lifetimes.over.end()) return steps.at(root.producer);  // cautious: others may follow there
    return lifetimes.buffers.at(&root).last;
  }
};

/// A result that need not be there in the fullest step.
struct Candidate {
  GraphValue* value = nullptr;
  GraphNode* before = nullptr;         // the first node that reads it after that step
  std::vector<GraphNode*> later = {};  // all of them
  size_t moved = 0;                    // bytes read and written to compute it again

  /// Frees more for what it costs; then more at all; then what was made earlier.
  bool is_better(const Candidate& other, const Timeline& time) const {
    const auto worth = [](const Candidate& a, const Candidate& b) {
      return static_cast<double>(a.value->spec.bytes()) * static_cast<double>(b.moved);
    };
    const double mine = worth(*this, other), theirs = worth(other, *this);
    if (mine != theirs) return mine > theirs;
    if (value->spec.bytes() != other.value->spec.bytes())
      return value->spec.bytes() > other.value->spec.bytes();
    return time.steps.at(value->producer) < time.steps.at(other.value->producer);
  }
};

/// Which inputs and outputs of a call are needed to compute its first output again; nothing: it cannot be.
std::optional<GradientReads> reads_to_recompute(const GraphNode& node) {
  if (const RecomputeRule* const rule = find_recompute_rule(node.op->name())) return rule->reads;
  const OpDef& op = node.definition();
  const bool is_repeatable = op.traits.elementwise && op.outputs.size() == 1 && !node.changes_any() &&
                             !node.inputs.empty() && op.traits.role != Role::kRandomKey &&
                             !node.is_collective();  // ranks all make it so many times
  return is_repeatable ? std::optional(GradientReads{.inputs = kReadsAll}) : std::nullopt;
}

/// Whether `value` can be read where `before` runs, at no cost.
bool is_there(const Timeline& time, const GraphValue& value, const GraphNode& before, size_t result_bytes) {
  const GraphValue& root = value.root();
  if (root.is_memory()) return time.graph.holds(value, &before);
  if (root.kind == GraphValue::Kind::kInput) return true;
  return time.last_use(root) >= time.steps.at(&before) || root.spec.bytes() * kSmallShare <= result_bytes;
}

/// The bytes that are moved to compute the first output of `node` again where `before` runs; nothing: what it
/// takes is not there.
std::optional<size_t> cost(const Timeline& time, const GraphNode& node, const GraphNode& before) {
  const auto reads = reads_to_recompute(node);
  if (!reads) return std::nullopt;
  const size_t result = node.outputs[0]->spec.bytes();
  size_t moved = result;
  const auto add = [&](const GraphValue* value) {
    if (value == nullptr) return true;
    moved += value->spec.bytes();
    return is_there(time, *value, before, result);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_in(node, reads->inputs, i) && !add(node.input(i))) return std::nullopt;
  }
  for (size_t i = 0; i < node.outputs.size() && i < 64; ++i) {
    if ((reads->outputs >> i & 1) != 0 && !add(node.outputs[i])) return std::nullopt;
  }
  return moved;
}

/// A candidate, if the value is not needed in the fullest step but later.
std::optional<Candidate> candidate(const Timeline& time, const GraphValue& const_value) {
  auto& value = const_cast<GraphValue&>(const_value);  // the graph is ours to edit
  if (value.output != 0 || value.output_uses > 0 || time.steps.at(value.producer) >= time.fullest ||
      time.preparation.contains(value.producer))
    return std::nullopt;
  Candidate found{.value = &value};
  for (GraphNode* const user : value.users) {
    const int step = time.steps.at(user);
    if (user->is_view() || step == time.fullest) return std::nullopt;
    if (step < time.fullest) continue;
    if (std::ranges::find(found.later, user) == found.later.end()) found.later.push_back(user);
  }
  if (found.later.empty()) return std::nullopt;
  found.before =
      *std::ranges::min_element(found.later, {}, [&](const GraphNode* n) { return time.steps.at(n); });
  const auto moved = cost(time, *value.producer, *found.before);
  if (!moved) return std::nullopt;
  found.moved = *moved;
  return found;
}

std::optional<Candidate> best_candidate(const Timeline& time) {
  std::optional<Candidate> best;
  for (const auto& [value, buffer] : time.lifetimes.buffers) {
    if (buffer.first >= time.fullest || buffer.last <= time.fullest || buffer.bytes == 0) continue;
    auto found = candidate(time, *value);
    if (found && (!best || found->is_better(*best, time))) best = std::move(found);
  }
  return best;
}

/// The nodes that compute the value again.
GraphValue& compute_again(Graph& graph, const Candidate& candidate) {
  const GraphNode& node = *candidate.value->producer;
  Tracer tracer(graph, candidate.before);
  tracer.set_scope(node.scope);
  const NoGrad no_grad;
  const auto tensor_of = [&](GraphValue* value) { return tracer.tensor({value, false}); };
  const RecomputeRule* const rule = find_recompute_rule(node.op->name());
  if (rule == nullptr)
    return *graph.insert(candidate.before, *node.op, node.inputs, node.attributes, node.scope).outputs[0];
  FoundCall call{&node.definition(), node.attributes, std::vector<Tensor>(node.inputs.size())};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_in(node, rule->reads.inputs, i)) call.inputs[i] = tensor_of(node.inputs[i].value);
  }
  std::vector<Tensor> outputs(node.definition().outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if ((rule->reads.outputs >> i & 1) != 0) outputs[i] = tensor_of(node.outputs[i]);
  }
  GraphValue& again = *tracer.use_of(rule->compute(call, outputs)).value;
  SINTER_ASSERT(again.spec == candidate.value->spec, "[recompute] {} again gave {}, expected {}",
                node.op->name(), again.spec, candidate.value->spec);
  return again;
}

void apply(Graph& graph, const Candidate& candidate) {
  GraphValue& again = compute_again(graph, candidate);
  for (GraphNode* const user : candidate.later) {
    for (size_t i = 0; i < user->inputs.size(); ++i) {
      if (user->input(i) == candidate.value)
        graph.set_input(*user, i, {&again, user->inputs[i].differentiable});
    }
  }
}

/// What a program of the graph takes for its buffers, or with less than `enough` an upper bound: more than
/// the peak where they cannot lie that close.
size_t planned_bytes(const Graph& graph, size_t enough) {
  const GraphLifetimes lifetimes = graph_lifetimes(graph, true, preparation_of(graph));
  std::vector<BufferLifetime> buffers;
  for (const GraphValue* value : buffers_in_order(graph, lifetimes))
    buffers.push_back(lifetimes.buffers.at(value));
  return plan_memory(buffers, enough).bytes;
}

std::string megabytes(size_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

void recompute(Graph& graph, PassContext& context) {
  if (!context.memory_limit) return;
  const size_t limit = *context.memory_limit;
  const std::set<const GraphNode*> preparation = preparation_of(graph);
  size_t before = 0, freed = 0, moved = 0;
  size_t goal = limit;  // a peak that is worth a plan, which takes longer than to count
  // Each round takes one use of a result farther; the bound is for graphs in which two would displace each
  // other for ever.
  for (size_t rounds = 4 * graph.node_count();; --rounds) {
    const Timeline time(graph, preparation);
    before = std::max(before, time.peak);
    // Whether the plan fits, or by how much not.
    const auto fits = [&] {
      const size_t taken = planned_bytes(graph, limit);
      if (taken > limit) goal = time.peak - std::min(time.peak, std::max<size_t>((taken - limit) / 2, 1));
      if (taken <= limit && freed > 0) {
        context.done(fmt::format("{} in place of {}, for {} that are moved", megabytes(taken),
                                 megabytes(before), megabytes(moved)));
      }
      return taken <= limit;
    };
    if (time.peak <= goal && fits()) return;
    const auto best = rounds > 0 ? best_candidate(time) : std::nullopt;
    if (!best) {
      if (time.peak > goal && time.peak <= limit && fits()) return;  // that was not planned yet
      context.missed(
          fmt::format("{} are in use at {}{}, with {} allowed, and nothing there can be computed again",
                      megabytes(time.peak), name_of(*time.nodes[static_cast<size_t>(time.fullest)]),
                      time.peak <= limit ? ", and more as they can be laid out" : "", megabytes(limit)));
      return;
    }
    freed += best->value->spec.bytes();
    moved += best->moved;
    context.done(fmt::format("{}: {} at {}", name_of(*best->value->producer),
                             megabytes(best->value->spec.bytes()), name_of(*best->before)));
    apply(graph, *best);
  }
}

}  // namespace sinter::passes
