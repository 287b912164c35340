// Pooling.
#pragma once

#include <optional>

#include <sinter/nn/layers/size2d.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct Pool2dOptions {
  Size2d kernel = 2;
  std::optional<Size2d> stride = {};  ///< the kernel's size if not given
  Size2d padding = 0;
  Layout layout = Layout::kNCHW;
  bool ceil_mode = false;         ///< windows may start inside the image and end beyond it
  bool count_include_pad = true;  ///< the average counts padding too; the maximum never takes it
};

/// The maximum of each window: (N, C, H, W) to (N, C, H', W'), H' = (H + 2 padding - kernel) / stride + 1.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) const override;

 private:
  Pool2dOptions options_;
};

/// The mean of each window; shapes as with MaxPool2d.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) const override;

 private:
  Pool2dOptions options_;
};

/// The mean of each channel's whole image: (N, C, H, W), or (N, H, W, C) under kNHWC, to (N, C).
class GlobalAvgPool2d : public Module {
 public:
  explicit GlobalAvgPool2d(Layout layout = Layout::kNCHW) : layout_(layout) {}
  Tensor forward(const Tensor& x) const override;

 private:
  Layout layout_;
};

}  // namespace sinter::nn
