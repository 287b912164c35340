// One-dimensional convolution: two-dimensional, of images of one row.
#pragma once

#include <cstdint>

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding = 0;  ///< zeros on both sides
  int64_t dilation = 1;
  int64_t groups = 1;
};

/// As conv2d, of x (N, C, L), weight (O, C/groups, K) and bias (O), which may be undefined, to (N, O, L')
/// with L' = (L + 2 padding - dilation (K - 1) - 1) / stride + 1, rounded down.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

}  // namespace sinter::ops
