// Convolution of one axis and of two.
#pragma once

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/conv2d/conv2d.h>

namespace sinter::nn {

using ops::Conv2dOptions;

/// y = weight * x + bias, as ops::conv2d: (N, in, H, W) to (N, out, H', W'), or (N, H, W, in) to (N, H', W',
/// out), with H' = (H + top + bottom - dilation (kernel - 1) - 1) / stride + 1, rounded down. Members:
/// `weight` (out, in/groups, kernel height, kernel width), `bias` (out). They start as in PyTorch, drawn from
/// default_generator(): init::default_weight and init::default_bias.
class Conv2d : public Module {
 public:
  /// Throws InvalidArgument unless both channel counts are positive multiples of `groups`, the sizes are
  /// positive and no padding is negative.
  Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;  ///< undefined without one

 private:
  Conv2dOptions options_;
};

struct Conv1dOptions {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;  ///< zeros on each side
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// y = weight * x + bias, as ops::conv1d: (N, in, L) to (N, out, L'). Members: `weight` (out, in/groups,
/// kernel), `bias` (out). They start as in PyTorch, drawn from default_generator().
class Conv1d : public Module {
 public:
  /// Throws InvalidArgument unless both channel counts are positive multiples of `groups` and the kernel is
  /// positive.
  Conv1d(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options);

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;  ///< undefined without one

 private:
  Conv1dOptions options_;
};

}  // namespace sinter::nn
