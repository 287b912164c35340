// One-dimensional convolution.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

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
