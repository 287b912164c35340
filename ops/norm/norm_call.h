// One batch normalisation, with or without what is fused into it, and its gradient, as kernels see them. Each
// op describes its calls so; the kernels know no op.
#pragma once

#include <sinter/core/base/layout.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/channel_view.h>
#include <sinter/ops/norm/activation.h>

namespace sinter::ops {

/// The axis of the channels of (N, C), (N, C, H, W) or, under kNHWC, (N, H, W, C).
inline int norm_axis(const Shape& shape, Layout layout) {
  return shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1;
}
inline ChannelView norm_view(const Shape& shape, Layout layout) {
  return channel_view(shape, norm_axis(shape, layout));
}
/// Bytes of the mask of `count` elements: bit i % 8 of byte i / 8 belongs to element i in memory order.
constexpr int64_t mask_bytes(int64_t count) {
  return (count + 7) / 8;
}

// ---- forward: y = act(norm(x) + addend), or act(norm(x) + norm(addend))

struct NormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool training = true;  ///< else the running statistics are used, as constants
  fused::Activation activation = fused::Activation::kNone;
  bool normalize_addend = false;
  /// mean and inv_std are inputs: no statistics are computed, nor running ones read or moved.
  bool statistics_given = false;
};

/// What the choice of a kernel, and its scratch, depend on.
struct NormProblem {
  ChannelView view;  ///< of x
  DType dtype = DType::kFloat32;
  int device = 0;  ///< its index
  NormOptions options = {};
  bool has_sums = false;  ///< sums came with x
  bool has_mask = true;   ///< the mask is wanted, if there is an activation
  bool aligned = true;    ///< x and the addend begin at multiples of 16 bytes
};

/// One tensor that is normalised, and what belongs to it. Views that a call does not have are not present.
struct NormTensor {
  TensorView x = {}, weight = {}, bias = {}, running_mean = {}, running_var = {};
  TensorView sums = {};  ///< (2, C): of the elements and of their squares, in place of a pass over x
  TensorView mean = {}, inv_std = {};  ///< outputs, or inputs with statistics_given
};

enum class AddendKind { kNone, kPlain, kNormalized };

struct NormCall {
  ChannelView view;  ///< of x
  NormOptions options = {};
  NormTensor main, addend = {};  ///< of an addend that is not normalised, only x is there
  TensorView alpha = {};         ///< PReLU's: one slope, or one per channel
  TensorView y;
  TensorView mask = {};  ///< not present: not wanted

  AddendKind addend_kind() const {
    return options.normalize_addend ? AddendKind::kNormalized
           : addend.x.present       ? AddendKind::kPlain
                                    : AddendKind::kNone;
  }
};

// ---- the gradient

struct NormGradOptions {
  bool training = true;         ///< mean and inv_std depend on the tensors; else they are constants
  bool parameter_grads = true;  ///< else only those of x and the addend are wanted
  fused::Activation activation = fused::Activation::kNone;
  bool normalize_addend = false;
};

struct NormGradProblem {
  ChannelView view;  ///< of x
  DType dtype = DType::kFloat32;
  int device = 0;  ///< its index
  NormGradOptions options = {};
  bool has_dy2 = false;
  bool addend_grad = false;
  bool aligned = true;  ///< x, dy, dy2, the addend and the means begin at multiples of 16 bytes
};

/// One normalised tensor in the gradient, and the gradients that are wanted.
struct NormGradTensor {
  TensorView x = {}, weight = {}, bias = {}, mean = {}, inv_std = {};
  TensorView dx = {}, dweight = {}, dbias = {};
};

struct NormGradCall {
  ChannelView view;  ///< of x
  NormGradOptions options = {};
  NormGradTensor main, addend = {};  ///< of an addend that is not normalised, only x and dx may be there
  TensorView dy, dy2 = {};           ///< y's gradient is dy, or dy + dy2
  TensorView mask = {};              ///< there with an activation
  TensorView alpha = {}, dalpha = {};

  /// The gradient of an addend that is not normalised is wanted: that of the activation's argument.
  bool gives_dz() const { return addend.dx.present && !options.normalize_addend; }
  /// Sums over the channels are needed, or the pass that takes them, for it writes dz.
  bool reduces() const { return options.training || options.parameter_grads || gives_dz(); }
};

}  // namespace sinter::ops
