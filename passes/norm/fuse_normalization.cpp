// Fuse normalisation: a normalisation, a sum and an activation behind it become one call.
//
//   %1 = batch_norm(%0, bn.weight, …)
//   %2 = add(%1, %shortcut)                %1 = batch_norm_act(%0, bn.weight, …, %shortcut, …) {relu}
//   %3 = relu(%2)                     →
//
// With or without the sum, in either order of its inputs, with ReLU, PReLU or nothing behind it. A summand
// that is itself a normalisation is taken in too, as in the shortcuts of ResNets:
//
//   %1 = batch_norm(%0, bn3.weight, …)
//   %3 = batch_norm(%2, shortcut.weight, …)
//   %4 = add(%1, %3)                        %1 = batch_norm_act(%0, bn3.weight, …, %2, shortcut.weight, …)
//   %5 = relu(%4)                      →
//
// Nobody else may read what lies in between. The definition of the normalisation makes the call
// (OpTraits::fuse_norm), at the first place where everything is computed; calls that change the same running
// statistics keep their order.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/passes/memory_order.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/value_map.h>

namespace sinter::passes {
namespace {

bool is_activation(const GraphNode& node) {
  return node.traits().role == Role::kRelu || node.traits().role == Role::kPRelu;
}

/// Whether `node` is a sum, or an activation, of `value`.
bool takes(const GraphNode& node, const GraphValue& value) {
  return node.traits().role == Role::kSum || (is_activation(node) && node.input(0) == &value);
}

std::string why_not_alone(const GraphValue& value) {
  return value.output_uses > 0 ? "its output is a result of the job"
                               : fmt::format("its output has {} users", value.users.size());
}

/// A chain of calls in the graph, one way to take it.
struct Candidate {
  GraphNode* norm = nullptr;
  GraphNode* sum = nullptr;
  size_t addend = 0;  ///< which input of the sum
  GraphNode* addend_norm = nullptr;
  GraphNode* activation = nullptr;

  GraphNode& last() const { return *(activation != nullptr ? activation : sum); }
  std::vector<GraphNode*> members() const {
    std::vector<GraphNode*> all;
    for (GraphNode* node : {activation, sum, addend_norm, norm}) {
      if (node != nullptr) all.push_back(node);
    }
    return all;
  }
  std::string text() const {
    std::string text = norm->op->name();
    if (sum != nullptr) text += " + " + sum->op->name();
    if (addend_norm != nullptr) text += "(" + name_of(*addend_norm) + ")";
    if (activation != nullptr) text += " + " + activation->op->name();
    return norm->scope.empty() ? text : text + " in " + norm->scope;
  }
};

class Fusion {
 public:
  Fusion(Graph& graph, PassContext& context) : graph_(graph), context_(context) {}

  void run() {
    for (GraphNode* const node : graph_.nodes()) {
      if (gone_.contains(node) || node->traits().role != Role::kNormalization) continue;
      GraphNode* const user = node->traits().fuse_norm != nullptr ? user_to_fuse(*node) : nullptr;
      if (user == nullptr || !tried_.insert(user).second) continue;
      try_all(is_activation(*user) ? candidates_before(*node, *user) : candidates_around(*user));
    }
  }

 private:
  /// The sum or activation that alone reads a normalisation; says so if there are other readers.
  GraphNode* user_to_fuse(const GraphNode& norm) {
    const GraphValue& y = *norm.outputs[0];
    if (std::ranges::none_of(y.users, [&](const GraphNode* user) { return takes(*user, y); })) return nullptr;
    GraphNode* const user = only_user(y);
    if (user == nullptr) {
      context_.missed(name_of(norm) + ": " + why_not_alone(y));
      return nullptr;
    }
    for (size_t i = 1; i < norm.outputs.size(); ++i) {
      if (!norm.outputs[i]->is_used()) continue;
      context_.missed(
          fmt::format("{}: its output '{}' is read", name_of(norm), norm.definition().outputs[i].name));
      return nullptr;
    }
    return user;
  }

  static std::vector<Candidate> candidates_before(GraphNode& norm, GraphNode& activation) {
    return {{.norm = &norm, .activation = &activation}};
  }

  /// A normalisation whose result nobody but the sum reads.
  static GraphNode* norm_before(const GraphNode& sum, size_t i) {
    const GraphValue& value = *sum.input(i);
    if (value.kind != GraphValue::Kind::kResult || value.output != 0 || only_user(value) == nullptr)
      return nullptr;
    GraphNode& node = *value.producer;
    const bool gives_more =
        std::any_of(node.outputs.begin() + 1, node.outputs.end(), [](const auto* v) { return v->is_used(); });
    return node.traits().role == Role::kNormalization && !gives_more ? &node : nullptr;
  }

  /// The activation that alone reads a sum; says so if there are other readers.
  GraphNode* activation_behind(const GraphNode& sum) {
    const GraphValue& value = *sum.outputs[0];
    GraphNode* const user = only_user(value);
    if (user != nullptr) return takes(*user, value) && is_activation(*user) ? user : nullptr;
    for (const GraphNode* each : value.users) {
      if (is_activation(*each))
        context_.missed(
            fmt::format("{} behind {}: {}", name_of(*each), sum.op->name(), why_not_alone(value)));
    }
    return nullptr;
  }

  /// All ways to take a sum of one or two normalisations, the best first.
  std::vector<Candidate> candidates_around(GraphNode& sum) {
    for (size_t i = 0; i < 2; ++i) {
      if (sum.input(i)->spec == sum.outputs[0]->spec) continue;
      const GraphNode* const norm = norm_before(sum, 1 - i);
      context_.missed(fmt::format("{}: {} broadcasts {} to {}", name_of(norm != nullptr ? *norm : sum),
                                  sum.op->name(), sum.input(i)->spec.shape, sum.outputs[0]->spec.shape));
      return {};
    }
    GraphNode* const norms[] = {norm_before(sum, 0), norm_before(sum, 1)};
    const auto can_lead = [](const GraphNode* norm) {
      return norm != nullptr && norm->traits().fuse_norm != nullptr;
    };
    std::vector<Candidate> all;
    GraphNode* activation = activation_behind(sum);
    for (;; activation = nullptr) {
      for (size_t i = 0; i < 2; ++i) {
        if (can_lead(norms[i]) && norms[1 - i] != nullptr) {
          all.push_back({norms[i], &sum, 1 - i, norms[1 - i], activation});
          break;
        }
      }
      for (size_t i = 0; i < 2; ++i) {
        if (can_lead(norms[i])) all.push_back({norms[i], &sum, 1 - i, nullptr, activation});
      }
      if (activation == nullptr) return all;
    }
  }

  /// Makes the first candidate that can be made; the reasons of those before it are reported.
  void try_all(const std::vector<Candidate>& candidates) {
    std::vector<std::string> reasons;
    for (const Candidate& candidate : candidates) {
      const std::string reason = try_one(candidate);
      if (reason.empty()) {
        for (const std::string& each : reasons) context_.missed(each);
        return;
      }
      std::string text = candidate.text() + ": " + reason;
      if (std::ranges::find(reasons, text) == reasons.end()) reasons.push_back(std::move(text));
    }
    for (const std::string& each : reasons) context_.missed(each);
  }

  /// The last call that must have run before the fused one.
  GraphNode& last_needed(const Candidate& candidate) const {
    GraphNode* last = candidate.norm;
    const auto need = [&](GraphNode* node) {
      if (node != nullptr && graph_.precedes(*last, *node)) last = node;
    };
    need(candidate.addend_norm);
    if (candidate.sum != nullptr && candidate.addend_norm == nullptr)
      need(candidate.sum->input(candidate.addend)->producer);
    for (size_t i = 1; candidate.activation != nullptr && i < candidate.activation->inputs.size(); ++i) {
      if (candidate.activation->input(i) != nullptr) need(candidate.activation->input(i)->producer);
    }
    return *last;
  }

  /// Why the calls cannot come together in one place; empty if they can.
  std::string misorder(const Candidate& candidate, const GraphNode& place) const {
    const std::vector<GraphNode*> members = candidate.members();
    const std::vector<const GraphNode*> apart(members.begin(), members.end());
    for (const GraphNode* member : members) {
      if (const GraphNode* const other = obstacle(graph_, *member, place, apart))
        return fmt::format("{} and {} change or read the same memory, in this order", name_of(*member),
                           name_of(*other));
    }
    for (const GraphNode* member : members) {
      const GraphValue* const changed =
          is_differentiated(candidate) ? changed_later(graph_, *member) : nullptr;
      if (changed != nullptr)
        return fmt::format("{} changes behind {}, where a gradient may read it", changed->description(),
                           name_of(*member));
    }
    if (candidate.addend_norm != nullptr && share_changed_memory(*candidate.norm, *candidate.addend_norm))
      return "both normalisations change the same memory";
    return {};
  }

  static FoundCall found(const Tracer& tracer, const GraphNode& node, bool differentiable, size_t first = 0) {
    FoundCall call{&node.definition(), node.attributes, std::vector<Tensor>(node.inputs.size())};
    for (size_t i = first; i < node.inputs.size(); ++i) {
      const GraphUse& use = node.inputs[i];
      call.inputs[i] = tracer.tensor({use.value, use.differentiable && differentiable});
    }
    return call;
  }

  /// The chain as its rule sees it. A gradient flows through an input if it flows through it and all that
  /// comes behind it.
  static NormChain chain_of(const Tracer& tracer, const Candidate& candidate) {
    const GraphNode* const sum = candidate.sum;
    const bool behind = candidate.activation == nullptr || candidate.activation->inputs[0].differentiable;
    const auto flows = [&](size_t i) { return behind && (sum == nullptr || sum->inputs[i].differentiable); };
    NormChain chain{.norm = found(tracer, *candidate.norm, flows(1 - candidate.addend))};
    if (candidate.addend_norm != nullptr) {
      chain.addend_norm = found(tracer, *candidate.addend_norm, flows(candidate.addend));
    } else if (sum != nullptr) {
      chain.addend = tracer.tensor({sum->input(candidate.addend), flows(candidate.addend)});
    }
    if (candidate.activation != nullptr) chain.activation = found(tracer, *candidate.activation, true, 1);
    return chain;
  }

  /// Whether backward will come through `value`.
  bool gets_gradient(const GraphValue& value) const {
    const auto reads = [&](const GraphUse& use) { return use.value == &value && use.differentiable; };
    return context_.training && !context_.differentiated &&
           (std::ranges::any_of(graph_.outputs(), reads) ||
            std::ranges::any_of(value.users, [&](const GraphNode* user) {
              return std::ranges::any_of(user->inputs, reads);
            }));
  }

  bool is_differentiated(const Candidate& candidate) const {
    return gets_gradient(*candidate.last().outputs[0]);
  }

  /// Makes one call of the chain, or says why not.
  std::string try_one(const Candidate& candidate) {
    GraphNode& place = last_needed(candidate);
    if (std::string reason = misorder(candidate, place); !reason.empty()) return reason;
    GraphValue& result = *candidate.last().outputs[0];
    Tracer tracer(graph_, graph_.next(place));
    tracer.set_scope(candidate.norm->scope);
    std::optional<NoGrad> no_grad;  // what only gradients need is not kept
    if (!is_differentiated(candidate)) no_grad.emplace();
    FusedNorm fused = candidate.norm->traits().fuse_norm(chain_of(tracer, candidate));
    if (!fused.y.defined()) return fused.reason;
    SINTER_ASSERT(fused.y.spec() == result.spec, "[fuse] {} gave {}, expected {}", candidate.text(),
                  fused.y.spec(), result.spec);
    context_.done(candidate.text());
    graph_.replace_uses(result, *tracer.use_of(fused.y).value);
    for (GraphNode* node : candidate.members()) {
      gone_.insert(node);
      graph_.erase(*node);
    }
    return {};
  }

  Graph& graph_;
  PassContext& context_;
  std::set<const GraphNode*> gone_;   // taken in
  std::set<const GraphNode*> tried_;  // sums and activations
};

}  // namespace

void fuse_normalization(Graph& graph, PassContext& context) {
  Fusion(graph, context).run();
}

}  // namespace sinter::passes
