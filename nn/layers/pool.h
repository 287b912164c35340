// Pooling.
#pragma once

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/default_layout.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct Pool2dOptions {
  Size2d stride = 0;      ///< 0: the kernel's size
  Padding2d padding = 0;  ///< on each side, at most half of the window
  Size2d dilation = 1;    ///< MaxPool2d: distance of a window's elements
  Layout layout = default_layout();
  bool ceil_mode = false;         ///< windows may start inside the image and end beyond it
  bool count_include_pad = true;  ///< the average counts padding too; the maximum never takes it
  int64_t divisor = 0;            ///< AvgPool2d: divides by this in place of the elements; 0: no
};

/// The maximum of each window: (N, C, H, W) to (N, C, H', W'), H' = (H + top + bottom - dilation (kernel - 1)
/// - 1) / stride + 1.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d kernel, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d kernel_;
  Pool2dOptions options_;
};

/// The mean of each window; shapes as with MaxPool2d. Throws InvalidArgument for a dilation.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d kernel, const Pool2dOptions& options = {});
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d kernel_;
  Pool2dOptions options_;
};

/// The means of as many windows as `output` has pixels, which cover the image evenly: (N, C, H, W) to (N, C,
/// output), or channels last, whatever H and W are; as ops::adaptive_avg_pool2d.
class AdaptiveAvgPool2d : public Module {
 public:
  /// Throws InvalidArgument unless the output's extents are positive.
  explicit AdaptiveAvgPool2d(Size2d output, Layout layout = default_layout());
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d output_;
  Layout layout_;
};

/// The largest elements of the same windows; as ops::adaptive_max_pool2d.
class AdaptiveMaxPool2d : public Module {
 public:
  /// Throws InvalidArgument unless the output's extents are positive.
  explicit AdaptiveMaxPool2d(Size2d output, Layout layout = default_layout());
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d output_;
  Layout layout_;
};

/// The mean of each channel's whole image: (N, C, H, W), or (N, H, W, C) under kNHWC, to (N, C).
class GlobalAvgPool2d : public Module {
 public:
  explicit GlobalAvgPool2d(Layout layout = default_layout());
  Tensor forward(const Tensor& x) const override;

 private:
  Layout layout_;
};

}  // namespace sinter::nn
