// Rectified linear unit with a learnt slope.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct PReluAttributes {
  Layout layout = Layout::kNCHW;

  bool operator==(const PReluAttributes&) const = default;
  template <class Self = PReluAttributes>
  static constexpr auto fields() {
    return std::tuple(field("layout", &Self::layout));
  }
};

/// y = x where x > 0, else alpha * x. x: rank >= 1, floating-point dtypes. alpha: (1), one slope for all, or
/// (C), one per channel, of x's dtype or, beside a float16 or bfloat16 x, float32: its gradient sums over all
/// pixels of a batch and leaves float16's range soon. Channels are axis 1, or the last axis under kNHWC and
/// for ranks 1 and 2. Throws InvalidArgument for other shapes and dtypes. Source: K. He, X. Zhang, S. Ren, J.
/// Sun, "Delving deep into rectifiers", ICCV 2015.
Tensor prelu(const Tensor& x, const Tensor& alpha, const LayoutOptions& options = {});

struct PReluGrads {
  Tensor dx;      ///< as x: dy where x > 0, else alpha * dy
  Tensor dalpha;  ///< as alpha: the sum of x * dy where x <= 0
};

namespace vjp {
/// Both gradients of prelu in one pass over x and dy.
PReluGrads prelu(const Tensor& dy, const Tensor& x, const Tensor& alpha, Layout layout = Layout::kNCHW);

/// Only dx: for an alpha that is not trained.
Tensor prelu_x(const Tensor& dy, const Tensor& x, const Tensor& alpha, Layout layout = Layout::kNCHW);
}  // namespace vjp

}  // namespace sinter::ops
