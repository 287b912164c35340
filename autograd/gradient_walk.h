// The walk of reverse-mode differentiation, whatever it walks on: recorded calls or the nodes of a job's
// graph.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>

namespace sinter {

/// The gradient that a walk starts with: `given`, which must have the spec of `result`; undefined: 1, and
/// `result` must have one element. `tag` names the function in errors.
inline Tensor first_gradient(const Tensor& result, const Tensor& given, const char* tag = "backward") {
  if (given.defined()) {
    SINTER_CHECK(given.spec() == result.spec(), "[{}] expected a gradient of {} but got {}", tag,
                 result.spec(), given.spec());
    return given;
  }
  SINTER_CHECK(result.numel() == 1, "[{}] a result of shape {} needs an explicit gradient", tag,
               result.shape());
  return ops::full(result.shape(), 1.0, result.dtype(), result.device());
}

/// `grad`, or an array of its own where others hold it too. A gradient rule may hand the same array to
/// several inputs: changing one gradient in place (clipping) must not change another.
inline Tensor own_array(Tensor grad) {
  return AutogradAccess::is_unshared(grad) ? std::move(grad) : ops::copy(grad);
}

/// The gradients that have arrived at calls whose turn has not come yet. `Call` is a handle of a call.
template <class Call>
class GradientWalk {
 public:
  /// A gradient of output `output` of the call, one of `outputs`; it is added to those that came before.
  /// `order` is a topological order of calls: whatever reads a call's outputs has a higher one.
  void arrive(uint64_t order, const Call& call, size_t outputs, size_t output, Tensor grad) {
    auto [place, is_new] = pending_.try_emplace(order);
    Pending& pending = place->second;
    if (is_new) {
      pending.call = call;
      pending.grads.resize(outputs);
    }
    Tensor& sum = pending.grads[output];
    sum = sum.defined() ? ops::add(sum, grad) : std::move(grad);
  }

  /// Visits the calls from the last to the first: `visit(call, grads)` may let more gradients arrive.
  template <class Visit>
  void run(Visit&& visit) {
    while (!pending_.empty()) {
      const auto last = std::prev(pending_.end());
      const Pending pending = std::move(last->second);
      pending_.erase(last);
      visit(pending.call, std::span<const Tensor>(pending.grads));
    }
  }

 private:
  struct Pending {
    Call call;
    std::vector<Tensor> grads;
  };
  std::map<uint64_t, Pending> pending_;
};

}  // namespace sinter
