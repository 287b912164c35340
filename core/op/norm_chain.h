// NormChain: a normalisation and what follows it in a graph, for the rule by which an op takes all of it in
// (OpTraits::fuse_norm).
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

}  // namespace sinter
