// Pooling to a given size, whatever the size of the images.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include <sinter/core/base/size2d.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Attributes of the ops adaptive_avg_pool2d and adaptive_max_pool2d, whose size is the output's, and
/// adaptive_avg_pool2d_grad, whose size is that of dx. Height first, then width.
struct AdaptivePoolAttributes {
  std::array<int64_t, 2> size{1, 1};
  Layout layout = Layout::kNCHW;

  bool operator==(const AdaptivePoolAttributes&) const = default;
  template <class Self = AdaptivePoolAttributes>
  static constexpr auto fields() {
    return std::tuple(field("size", &Self::size), field("layout", &Self::layout));
  }
};

/// The means of windows that cover the image evenly. x: (N, C, H, W), or (N, H, W, C) under kNHWC, of a
/// floating-point dtype; y has `size` in place of H and W. Row o of H' is the mean of the rows from
/// floor(o H / H') up to but without ceil((o + 1) H / H'), and likewise with columns: windows overlap where
/// H' does not divide H, and repeat where it is larger. As torch's adaptive_avg_pool2d. The 16-bit dtypes
/// compute in float32. Throws InvalidArgument for an empty image, or sizes outside [1, 2^30].
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size, const LayoutOptions& options = {});

namespace vjp {
/// The gradient of adaptive_avg_pool2d for images of `size`: every pixel of dx adds up its shares of the
/// windows that hold it, in a fixed order. Differentiable.
Tensor adaptive_avg_pool2d(const Tensor& dy, std::array<int64_t, 2> size, Layout layout = Layout::kNCHW);
}  // namespace vjp

/// The largest elements of the same windows; NaN is larger than everything. As torch's adaptive_max_pool2d.
/// The gradient goes to the first of equal elements in row-major order (of several NaN: the last). Else as
/// adaptive_avg_pool2d.
Tensor adaptive_max_pool2d(const Tensor& x, Size2d size, const LayoutOptions& options = {});

}  // namespace sinter::ops
