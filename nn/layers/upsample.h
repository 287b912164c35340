// Images made larger.
#pragma once

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/upsample/upsample.h>

namespace sinter::nn {

using ops::UpsampleMode;
using ops::UpsampleOptions;

/// (N, C, H, W) to (N, C, H', W'), or channels last; as ops::upsample. The positions follow from the sizes,
/// as with torch's recompute_scale_factor: that differs from a scale only where the scaled size is rounded.
class Upsample : public Module {
 public:
  /// Throws InvalidArgument unless scale or size is positive.
  explicit Upsample(const UpsampleOptions& options = {});

  Tensor forward(const Tensor& x) const override;

 private:
  UpsampleOptions options_;
};

/// (N, C factor^2, H, W) to (N, C, H factor, W factor), or channels last; as ops::pixel_shuffle.
class PixelShuffle : public Module {
 public:
  /// Throws InvalidArgument unless factor > 0.
  explicit PixelShuffle(int64_t factor, Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t factor_;
};

}  // namespace sinter::nn
