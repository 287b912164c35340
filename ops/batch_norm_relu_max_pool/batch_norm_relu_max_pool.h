// Batch normalisation, ReLU and max pooling in one op, whose activation map is never written: the stem of
// ResNets.
#pragma once

#include <array>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::ops {

struct BatchNormReluMaxPoolOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  Layout layout = Layout::kNCHW;
  /// As in PoolOptions, without dilation; a window has at most 255 elements.
  std::array<int64_t, 2> kernel{2, 2};
  std::array<int64_t, 2> stride{0, 0};
  std::array<int64_t, 2> padding{0, 0};
  std::array<int64_t, 2> padding_after{-1, -1};
  bool ceil_mode = false;
  /// Give the indices that the gradient needs; batch_norm_relu_max_pool() does without where no gradient is
  /// recorded.
  bool save_indices = true;

  PoolOptions pool() const {
    return {.kernel = kernel,
            .stride = stride,
            .padding = padding,
            .padding_after = padding_after,
            .layout = layout,
            .ceil_mode = ceil_mode};
  }

  bool operator==(const BatchNormReluMaxPoolOptions&) const = default;
  static constexpr auto fields() {
    using Options = BatchNormReluMaxPoolOptions;
    return std::tuple(field("epsilon", &Options::epsilon), field("momentum", &Options::momentum),
                      field("layout", &Options::layout), field("kernel", &Options::kernel),
                      field("stride", &Options::stride), field("padding", &Options::padding),
                      field("padding_after", &Options::padding_after),
                      field("ceil_mode", &Options::ceil_mode), field("save_indices", &Options::save_indices));
  }
};

/// y = max_pool2d(relu(batch_norm(x))) in training: normalised with the batch's statistics, which also move
/// the running ones in place. x: (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes, H and W
/// below 2^29. `norm`: as in batch_norm_act. y has the shape that max_pool2d gives.
///
/// The op's outputs behind y: mean and 1 / sqrt(variance + epsilon) as used, and for every element of y a
/// byte: where in its window the maximum lies, row * kernel width + column, or 255 where it is not positive,
/// so that no gradient flows. NaN is larger than everything, passes ReLU and takes the gradient, as in the
/// three ops alone.
///
/// y is what those ops give one by one, bit for bit where they share their statistics. Elements are compared
/// before they are rounded to x's dtype, so that of two that round to the same maximum the larger one gets
/// the gradient, where max_pool2d gives it to the first.
///
/// Throws InvalidArgument for other shapes, dtypes and windows, and for one value per channel.
Tensor batch_norm_relu_max_pool(const Tensor& x, const NormParameters& norm = {},
                                const BatchNormReluMaxPoolOptions& options = {});

struct BatchNormReluMaxPoolGradOptions {
  bool parameter_grads = true;  ///< false: only dx is computed
  PoolOptions pool;             ///< that of the forward call

  bool operator==(const BatchNormReluMaxPoolGradOptions&) const = default;
  static constexpr auto fields() {
    using Options = BatchNormReluMaxPoolGradOptions;
    return std::tuple(field("parameter_grads", &Options::parameter_grads), field("pool", &Options::pool));
  }
};

struct BatchNormReluMaxPoolGrads {
  Tensor dx;              ///< as x
  Tensor dweight, dbias;  ///< (C), in the dtype of mean; undefined without parameter_grads
};

/// The gradient of batch_norm_relu_max_pool. `norm`: the weight, which may be undefined, and the statistics
/// that were used; `indices`: the op's, shaped as dy. An index that names no pixel of its window moves no
/// gradient.
BatchNormReluMaxPoolGrads batch_norm_relu_max_pool_grad(const Tensor& x, const Tensor& dy,
                                                        const Tensor& indices, const NormState& norm,
                                                        const BatchNormReluMaxPoolGradOptions& options);

}  // namespace sinter::ops
