// Pooling over the two spatial axes of images.
#pragma once

#include <array>

#include <sinter/core/base/size2d.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct Pool2dOptions {
  Size2d stride = 0;      ///< 0: the kernel's size
  Padding2d padding = 0;  ///< on each side, at most half of the window
  Size2d dilation = 1;    ///< max_pool2d: distance of a window's elements
  Layout layout = Layout::kNCHW;
  bool ceil_mode = false;         ///< windows may start inside the image and end beyond it
  bool count_include_pad = true;  ///< avg_pool2d: divide by the whole window, else by its part inside
  int64_t divisor = 0;            ///< avg_pool2d: divide by this in place of what windows hold; 0: no
};

/// What pooling records. Height first, then width. Output extents are floor((extent + padding + padding_after
/// - span) / stride) + 1 with span = dilation (kernel - 1) + 1; `ceil_mode` rounds up in place of down, but
/// never so that a window would start in the padding behind the image.
struct PoolAttributes {
  std::array<int64_t, 2> kernel{2, 2};
  std::array<int64_t, 2> stride{0, 0};           ///< 0: as the kernel
  std::array<int64_t, 2> padding{0, 0};          ///< above and to the left; at most half of the span
  std::array<int64_t, 2> padding_after{-1, -1};  ///< below and to the right; -1: as `padding`
  std::array<int64_t, 2> dilation{1, 1};         ///< max_pool2d: between a window's elements
  Layout layout = Layout::kNCHW;
  bool ceil_mode = false;
  /// avg_pool2d: divide by the whole window, else by its part inside the image.
  bool count_include_pad = true;
  int64_t divisor = 0;  ///< avg_pool2d: divide by this in place of what windows hold; 0: no

  bool operator==(const PoolAttributes&) const = default;
  template <class Self = PoolAttributes>
  static constexpr auto fields() {
    return std::tuple(field("kernel", &Self::kernel), field("stride", &Self::stride),
                      field("padding", &Self::padding), field("padding_after", &Self::padding_after),
                      field("dilation", &Self::dilation), field("layout", &Self::layout),
                      field("ceil_mode", &Self::ceil_mode),
                      field("count_include_pad", &Self::count_include_pad), field("divisor", &Self::divisor));
  }
};

/// What the gradients of pooling need besides the options: the extents of the image.
struct PoolGradOptions {
  PoolAttributes pool;
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const PoolGradOptions&) const = default;
  template <class Self = PoolGradOptions>
  static constexpr auto fields() {
    return std::tuple(field("pool", &Self::pool), field("height", &Self::height),
                      field("width", &Self::width));
  }
};

/// Layout and, for the gradient, image extents of global_avg_pool2d.
struct GlobalPoolOptions {
  Layout layout = Layout::kNCHW;
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const GlobalPoolOptions&) const = default;
  template <class Self = GlobalPoolOptions>
  static constexpr auto fields() {
    return std::tuple(field("layout", &Self::layout), field("height", &Self::height),
                      field("width", &Self::width));
  }
};

/// The largest element of every window of x: (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point
/// dtypes. Padding counts as -infinity; NaN is larger than everything. Throws InvalidArgument for options or
/// extents that leave no output, and for windows of more than 2^31 - 1 elements. The gradient goes to the
/// first of equal elements in row-major order (of several NaN: the last). A window whose elements all miss
/// the image, as they can with a dilation beyond its extent, gives -infinity and no gradient.
Tensor max_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options = {});

namespace vjp {
/// The gradient of max_pool2d. `indices` is its second output, shaped as dy: where in its window each maximum
/// lies, row * kernel width + column; uint8 if the window has at most 255 elements, else int32. An index that
/// names no pixel of its window moves no gradient.
Tensor max_pool2d(const Tensor& dy, const Tensor& indices, const PoolGradOptions& options);
}  // namespace vjp

/// The mean of every window; shapes and errors as max_pool2d, and no dilation. Padding counts as 0.
Tensor avg_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options = {});

namespace vjp {
/// The gradient of avg_pool2d: every window's share of dy, summed.
Tensor avg_pool2d(const Tensor& dy, const PoolGradOptions& options);
}  // namespace vjp

/// The mean over all pixels: (N, C, H, W), or (N, H, W, C) under kNHWC, to (N, C). H and W must be at
/// least 1.
Tensor global_avg_pool2d(const Tensor& x, const LayoutOptions& options = {});

namespace vjp {
/// The gradient of global_avg_pool2d: dy / (height * width) at every pixel.
Tensor global_avg_pool2d(const Tensor& dy, const GlobalPoolOptions& options);
}  // namespace vjp

}  // namespace sinter::ops
