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
    auto place = pending_.lower_bound(order);
    if (place == pending_.end() || place->first != order) place = begin_call(place, order, call, outputs);
    Tensor& sum = place->second.grads[output];
    sum = sum.defined() ? ops::add(sum, grad) : std::move(grad);
  }

  /// Visits the calls from the last to the first: `visit(call, grads)` may let more gradients arrive.
  template <class Visit>
  void run(Visit&& visit) {
    while (!pending_.empty()) {
      auto last = pending_.extract(std::prev(pending_.end()));
      Pending& pending = last.mapped();
      visit(pending.call, std::span<const Tensor>(pending.grads));
      pending.call = {};
      pending.grads.clear();
      spare_ = std::move(last);
    }
  }

 private:
  struct Pending {
    Call call;
    std::vector<Tensor> grads;
  };
  using Map = std::map<uint64_t, Pending>;

  typename Map::iterator begin_call(typename Map::iterator place, uint64_t order, const Call& call,
                                    size_t outputs) {
    if (spare_.empty())
      return pending_.emplace_hint(place, order, Pending{call, std::vector<Tensor>(outputs)});
    spare_.key() = order;
    spare_.mapped().call = call;
    spare_.mapped().grads.resize(outputs);
    return pending_.insert(place, std::move(spare_));
  }

  Map pending_;
  typename Map::node_type spare_;  // the memory of the call before, which the next one takes
};

}  // namespace sinter
