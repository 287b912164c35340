// Softmax and its logarithm along one axis.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct SoftmaxAttributes {
  int64_t axis = -1;
  bool operator==(const SoftmaxAttributes&) const = default;
  template <class Self = SoftmaxAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis));
  }
};

/// y_i = exp(x_i) / sum_j exp(x_j) along `axis` (from the back when negative), shifted by the largest element
/// so that nothing overflows. Any shape of rank >= 1, floating-point dtypes; sums in float32 for the 16-bit
/// ones.
Tensor softmax(const Tensor& x, int64_t axis = -1);

/// y_i = x_i - log(sum_j exp(x_j)) along `axis`; else as softmax.
Tensor log_softmax(const Tensor& x, int64_t axis = -1);

namespace vjp {
/// The gradient of softmax from its output: dx = y * (dy - sum(dy * y)).
Tensor softmax(const Tensor& dy, const Tensor& y, int64_t axis = -1);

/// The gradient of log_softmax from its output: dx = dy - exp(y) * sum(dy).
Tensor log_softmax(const Tensor& dy, const Tensor& y, int64_t axis = -1);
}  // namespace vjp

}  // namespace sinter::ops
