// Scaling of vectors to length one.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct L2NormalizeAttributes {
  int64_t axis = -1;
  double epsilon = 1e-12;
  bool operator==(const L2NormalizeAttributes&) const = default;
  template <class Self = L2NormalizeAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis), field("epsilon", &Self::epsilon));
  }
};

/// y = x / max(|x|, epsilon), with the Euclidean norm |x| along `axis` (from the back when negative). Any
/// shape of rank >= 1, floating-point dtypes; norms in float32 for the 16-bit ones. A zero vector stays zero.
/// Throws InvalidArgument unless epsilon > 0. The semantics of torch.nn.functional.normalize.
Tensor l2_normalize(const Tensor& x, int64_t axis = -1, double epsilon = 1e-12);

namespace vjp {
/// The gradient of l2_normalize from its outputs y and norm: dx = (dy - y * sum(dy * y)) / norm where norm >=
/// epsilon, else dy / epsilon. `norm` has x's shape with `axis` removed, in float32 for the 16-bit dtypes.
Tensor l2_normalize(const Tensor& dy, const Tensor& y, const Tensor& norm, int64_t axis = -1,
                    double epsilon = 1e-12);
}  // namespace vjp

}  // namespace sinter::ops
