// Which convolutions are asked of cuDNN. Host arithmetic without CUDA.
//
// cuDNN takes a problem's numbers on trust: where a filter or an output lies wholly in the padding, its own
// searches divide by how much of it meets the image (seen: 9.14 and later, SIGFPE in the heuristics for
// gradients of float16 NCHW). An arithmetic fault ends the process, so that such problems, which no network
// needs to be fast, are left to Sinter's own kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>

namespace sinter::cuda {

namespace detail {

/// One axis of a convolution.
struct ConvExtents {
  int64_t input, kernel, output, stride, padding, dilation;

  int64_t reach() const { return dilation * (kernel - 1); }
  /// Output j reads the inputs j * stride - padding + tap * dilation.
  bool every_output_is_right() const { return output == (input + 2 * padding - reach() - 1) / stride + 1; }
  /// True if each output reads the image through some tap of the filter.
  bool every_output_meets_the_image() const {
    for (int64_t out = 0; out < output; ++out) {
      const int64_t first = out * stride - padding;  // what tap 0 reads
      const int64_t steps = first >= 0 ? 0 : (-first + dilation - 1) / dilation;
      if (steps >= kernel || first + steps * dilation >= input) return false;
    }
    return true;
  }
  /// True if each tap of the filter reads the image for some output.
  bool every_tap_meets_the_image() const {
    for (int64_t tap = 0; tap < kernel; ++tap) {
      const int64_t first = tap * dilation - padding;  // what output 0 reads
      const int64_t steps = first >= 0 ? 0 : (-first + stride - 1) / stride;
      if (steps >= output || first + steps * stride >= input) return false;
    }
    return true;
  }
};

}  // namespace detail

/// True for problems whose numbers fit together and in which every output and every tap of the filter meets
/// the image along both axes. Nothing else is asked of cuDNN.
inline bool is_safe_for_cudnn(const ConvProblem& problem) {
  for (const auto* extents : {&problem.x, &problem.weight, &problem.y}) {
    for (const int64_t extent : *extents) {
      if (extent < 1) return false;
    }
  }
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    const detail::ConvExtents extents{.input = problem.x[2 + axis],
                                      .kernel = problem.weight[2 + axis],
                                      .output = problem.y[2 + axis],
                                      .stride = problem.stride[axis],
                                      .padding = problem.padding[axis],
                                      .dilation = problem.dilation[axis]};
    if (!extents.every_output_is_right() || !extents.every_output_meets_the_image() ||
        !extents.every_tap_meets_the_image()) {
      return false;
    }
  }
  return true;
}

}  // namespace sinter::cuda
