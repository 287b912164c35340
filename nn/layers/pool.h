// Pooling.
#pragma once

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::nn {

using ops::Pool2dOptions;

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
  explicit AdaptiveAvgPool2d(Size2d output, Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d output_;
};

/// The largest elements of the same windows; as ops::adaptive_max_pool2d.
class AdaptiveMaxPool2d : public Module {
 public:
  /// Throws InvalidArgument unless the output's extents are positive.
  explicit AdaptiveMaxPool2d(Size2d output, Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;

 private:
  Size2d output_;
};

/// The mean of each channel's whole image: (N, C, H, W), or (N, H, W, C) under kNHWC, to (N, C).
class GlobalAvgPool2d : public Module {
 public:
  explicit GlobalAvgPool2d(Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;
};

}  // namespace sinter::nn
