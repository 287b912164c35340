// Two-dimensional convolution and its gradients.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Pairs are (height, width).
struct Conv2dOptions {
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> padding{0, 0};  ///< zeros on both sides of the axis; for other sides, pad() before
  std::array<int64_t, 2> dilation{1, 1};
  int64_t groups = 1;
  Layout layout = Layout::kNCHW;

  bool operator==(const Conv2dOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("stride", &Conv2dOptions::stride), field("padding", &Conv2dOptions::padding),
                      field("dilation", &Conv2dOptions::dilation), field("groups", &Conv2dOptions::groups),
                      field("layout", &Conv2dOptions::layout));
  }
};

/// Cross-correlation of images with filters (deep learning's "convolution"):
///   y[n, o, i, j] = bias[o] + sum over c, u, v of
///                   weight[o, c, u, v] * x[n, g*C/groups + c, i*stride - padding + u*dilation, j*... +
///                   v*...]
/// where g is the group of output channel o.
/// Layout kNCHW: x (N, C, H, W), weight (O, C/groups, KH, KW), y (N, O, OH, OW).
/// Layout kNHWC: x (N, H, W, C), weight (O, KH, KW, C/groups), y (N, OH, OW, O).
/// bias (O) may be undefined. All of one floating-point dtype; the 16-bit ones accumulate in float32.
/// OH = (H + 2*padding - dilation*(KH - 1) - 1) / stride + 1 must be positive; an empty batch is fine.
/// Throws InvalidArgument for shapes, dtypes or options that do not fit together.
/// Source: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv:1603.07285.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

namespace vjp {
/// The gradient of conv2d with respect to x, whose height and width are `input_size`, from dy, the gradient
/// of y. Also the transposed convolution of dy. Differentiable.
Tensor conv2d_input(const Tensor& dy, const Tensor& weight, std::array<int64_t, 2> input_size,
                    const Conv2dOptions& options = {});

/// The gradient of conv2d with respect to weight, whose height and width are `kernel_size`. Differentiable.
/// The batch is summed in an order that depends on the shapes alone.
Tensor conv2d_weight(const Tensor& dy, const Tensor& x, std::array<int64_t, 2> kernel_size,
                     const Conv2dOptions& options = {});
}  // namespace vjp

namespace fused {
/// conv2d together with the sums that a batch norm behind it needs: y, and (2, O), the sums over images and
/// pixels of y's elements and of their squares, in float32 (float64 for float64). Whether y counts before or
/// after it is rounded to its dtype is the kernel's choice. No gradient flows through the sums: what takes
/// them as statistics of y (NormTensors::sums) has all of it in its gradient of y. Jobs put it where cuDNN
/// sums while it writes y and that is faster (passes/norm/convolution_sums.cpp); elsewhere it is conv2d and
/// a pass over y.
std::array<Tensor, 2> conv2d_sums(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                  const Conv2dOptions& options = {});
}  // namespace fused

/// Attributes of the op conv2d_grad_input.
struct Conv2dGradInputAttributes : Conv2dOptions {
  std::array<int64_t, 2> input_size{0, 0};

  bool operator==(const Conv2dGradInputAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dOptions::fields(),
                          std::tuple(field("input_size", &Conv2dGradInputAttributes::input_size)));
  }
};

/// Attributes of the op conv2d_grad_weight.
struct Conv2dGradWeightAttributes : Conv2dOptions {
  std::array<int64_t, 2> kernel_size{0, 0};

  bool operator==(const Conv2dGradWeightAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dOptions::fields(),
                          std::tuple(field("kernel_size", &Conv2dGradWeightAttributes::kernel_size)));
  }
};

}  // namespace sinter::ops
