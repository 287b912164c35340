// Two-dimensional convolution and its gradients.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include <sinter/core/base/size2d.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/norm/activation.h>

namespace sinter::ops {

/// What callers of convolutions write, of ops::conv2d as of nn::Conv2d.
struct Conv2dOptions {
  Size2d stride = 1;
  Padding2d padding = 0;  ///< zeros on each side; same_padding() keeps height and width
  Size2d dilation = 1;
  int64_t groups = 1;
  /// Whether nn::Conv2d has one. ops::conv2d takes the one that it is given, and none where this is false.
  bool bias = true;
  /// Of input and output; under kNHWC filters are OHWI. nn::Conv2d starts in it, and to(Layout) changes it.
  Layout layout = Layout::kNCHW;
  /// x is converted to the dtype of the weight. Weight and bias of nn::Conv2d stay float32 in a
  /// half-precision model, and so does its result.
  bool keep_float32 = false;
};

/// What the ops record. Pairs are (height, width).
struct Conv2dAttributes {
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> padding{0, 0};  ///< zeros on both sides of the axis
  std::array<int64_t, 2> dilation{1, 1};
  int64_t groups = 1;
  Layout layout = Layout::kNCHW;

  /// What a caller of such a convolution writes.
  operator Conv2dOptions() const {  // NOLINT: meant to convert
    return {.stride = {stride[0], stride[1]},
            .padding = {padding[0], padding[1]},
            .dilation = {dilation[0], dilation[1]},
            .groups = groups,
            .layout = layout};
  }
  bool operator==(const Conv2dAttributes&) const = default;
  template <class Self = Conv2dAttributes>
  static constexpr auto fields() {
    return std::tuple(field("stride", &Self::stride), field("padding", &Self::padding),
                      field("dilation", &Self::dilation), field("groups", &Self::groups),
                      field("layout", &Self::layout));
  }
};

/// Cross-correlation of images with filters (deep learning's "convolution"):
///   y[n, o, i, j] = bias[o] + sum over c, u, v of
///                   weight[o, c, u, v] * x[n, g*C/groups + c, i*stride - top + u*dilation, j*... - left +
///                   v*...]
/// where g is the group of output channel o.
/// Layout kNCHW: x (N, C, H, W), weight (O, C/groups, KH, KW), y (N, O, OH, OW).
/// Layout kNHWC: x (N, H, W, C), weight (O, KH, KW, C/groups), y (N, OH, OW, O).
/// bias (O) may be undefined. All of one floating-point dtype; the 16-bit ones accumulate in float32.
/// OH = (H + top + bottom - dilation*(KH - 1) - 1) / stride + 1 must be positive; an empty batch is fine.
/// Throws InvalidArgument for shapes, dtypes or options that do not fit together.
/// Source: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv:1603.07285.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

namespace vjp {
/// The gradient of conv2d with respect to x, whose height and width are `input_size`, from dy, the gradient
/// of y. Also the transposed convolution of dy. Differentiable. Throws InvalidArgument, as the two below do,
/// for a padding that differs on two sides of an axis: pad() gives conv2d the difference before.
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

/// conv2d with an activation behind it.
struct Conv2dActOptions : Conv2dAttributes {
  fused::Activation activation = fused::Activation::kNone;

  bool operator==(const Conv2dActOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dAttributes::fields(),
                          std::tuple(field("activation", &Conv2dActOptions::activation)));
  }
};

/// activation(conv2d(x, weight, bias) + addend) in one call, rounded to the dtype once where the kernel
/// allows it. bias (O), addend, of y's shape or of one image, for all, and slope (O), of PReLU, may be
/// undefined; slope must be there for kPRelu alone. All of x's dtype, but slope may be float32. Not
/// differentiable: inference jobs put it in place of the calls that it stands for
/// (passes/convolution/fuse_convolution.cpp). On a GPU it is one call of cuDNN's where that was measured to
/// be faster than a convolution and a pass over its result. Throws InvalidArgument as conv2d does.
Tensor conv2d_bias_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& addend,
                       const Tensor& slope, const Conv2dActOptions& options);

/// Attributes of the op conv2d_grad_input.
struct Conv2dGradInputAttributes : Conv2dAttributes {
  std::array<int64_t, 2> input_size{0, 0};

  bool operator==(const Conv2dGradInputAttributes&) const = default;
  template <class Self = Conv2dGradInputAttributes>
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dAttributes::fields(), std::tuple(field("input_size", &Self::input_size)));
  }
};

/// Attributes of the op conv2d_grad_weight.
struct Conv2dGradWeightAttributes : Conv2dAttributes {
  std::array<int64_t, 2> kernel_size{0, 0};

  bool operator==(const Conv2dGradWeightAttributes&) const = default;
  template <class Self = Conv2dGradWeightAttributes>
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dAttributes::fields(), std::tuple(field("kernel_size", &Self::kernel_size)));
  }
};

}  // namespace sinter::ops
