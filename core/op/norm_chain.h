// What rewrites find in a graph and ops take in: a normalisation and what follows it (NormChain, for
// OpTraits::fuse_norm), and a result that can be computed again (RecomputeRule).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sinter/core/op/op_def.h>

namespace sinter {

/// A call of an op that a rewrite found.
struct FoundCall {
  const OpDef* op = nullptr;
  Attributes attributes;
  /// Undefined for optional inputs that are not there; requires_grad() where a gradient flows through the
  /// use.
  std::vector<Tensor> inputs;
};

/// act(norm(x) + addend), act(norm(x) + norm(addend)), or parts of it. Everything in between has one user and
/// one shape and dtype.
struct NormChain {
  FoundCall norm;                             ///< its op's rule is the one that is asked
  Tensor addend = {};                         ///< as it is; undefined without one
  std::optional<FoundCall> addend_norm = {};  ///< the call that normalises the addend, which is its input 0
  std::optional<FoundCall> activation = {};   ///< of Role::kRelu or kPRelu; its input 0 is undefined
};

/// What became of a chain.
struct FusedNorm {
  Tensor y = {};  ///< the chain's last result, computed by ops that users call; undefined: it was left
  std::string reason = {};  ///< then why: "epsilon is 0.001 and 1e-05"
};

/// How the first output of a call is computed again later in a step, in one pass over memory, so that it need
/// not be kept. Whoever has the op that does so adds the rule. Elementwise ops of one output need none: they
/// are called again.
struct RecomputeRule {
  std::string op;
  GradientReads reads = {};  ///< the inputs and outputs of the call that `compute` uses
  /// Gives the output from those, with ops that users call. It changes nothing. Outputs that are not read are
  /// undefined; no gradient flows.
  Tensor (*compute)(const FoundCall& call, const std::vector<Tensor>& outputs) = nullptr;
};

/// Safe to call from several threads. Throws InvalidArgument if there is a rule for this op, or no function.
void add_recompute_rule(RecomputeRule rule);
/// The rule for an op, or nullptr. Its address never changes.
const RecomputeRule* find_recompute_rule(const std::string& op);

}  // namespace sinter
