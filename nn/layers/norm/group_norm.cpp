#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::nn {
namespace {

/// x with mean 0 and variance 1 over `axes`, by two passes: the mean is taken away before anything is
/// squared.
Tensor standardize(const Tensor& x, const std::vector<int64_t>& axes, double epsilon) {
  const Tensor centered = x - ops::mean(x, axes, {.keep_dims = true});
  const Tensor variance = ops::mean(ops::square(centered), axes, {.keep_dims = true});
  return centered * ops::rsqrt(variance + epsilon);
}

/// The parameters in the dtype and shape in which they meet the input.
Tensor scaled(const Tensor& x, const Parameter& weight, const Parameter& bias, const Shape& shape) {
  if (!weight.defined()) return x;
  return x * reshaped(ops::cast(weight, x.dtype()), shape) + reshaped(ops::cast(bias, x.dtype()), shape);
}

}  // namespace

LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& options) : shape_(shape), options_(options) {
  SINTER_CHECK(shape.rank() > 0 && shape.numel() > 0,
               "[layer_norm] expected a shape with at least one feature but got {}", shape);
  SINTER_CHECK(options.epsilon >= 0, "[layer_norm] expected epsilon >= 0 but got {}", options.epsilon);
  if (options.affine) {
    weight = parameter("weight", Tensor::full(shape, 1.0), {.keep_float32 = true});
    bias = parameter("bias", Tensor::zeros(shape), {.keep_float32 = true});
  }
  describe(fmt::format("{}", shape));
}

Tensor LayerNorm::forward(const Tensor& x) const {
  const int outer = x.rank() - shape_.rank();
  bool fits = outer >= 0;
  for (int axis = 0; fits && axis < shape_.rank(); ++axis) fits = x.shape()[outer + axis] == shape_[axis];
  SINTER_CHECK(fits, "[layer_norm] expected an input whose last axes are {} but got shape {}", shape_,
               x.shape());
  std::vector<int64_t> axes;
  for (int axis = outer; axis < x.rank(); ++axis) axes.push_back(axis);
  const Tensor y = standardize(ops::cast(x, accumulate_dtype(x.dtype())), axes, options_.epsilon);
  return ops::cast(scaled(y, weight, bias, shape_), x.dtype());
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& options)
    : groups_(groups), channels_(channels), options_(options) {
  SINTER_CHECK(groups > 0 && channels > 0 && channels % groups == 0,
               "[group_norm] expected channels that are a positive multiple of the groups but got {} and {}",
               channels, groups);
  SINTER_CHECK(options.epsilon >= 0, "[group_norm] expected epsilon >= 0 but got {}", options.epsilon);
  if (options.affine) {
    weight = parameter("weight", Tensor::full({channels}, 1.0), {.keep_float32 = true});
    bias = parameter("bias", Tensor::zeros({channels}), {.keep_float32 = true});
  }
  works_in(options.layout);
  describe(fmt::format("{}, {}", groups, channels));
}

Tensor GroupNorm::forward(const Tensor& x) const {
  check_channels("group_norm", x, channels_, options_.layout);
  const bool is_last = options_.layout == Layout::kNHWC || x.rank() == 2;
  SINTER_CHECK((x.rank() == 2 || x.rank() == 4) && x.shape()[is_last ? x.rank() - 1 : 1] == channels_,
               "[group_norm] expected (N, C) or images of {} channels in {} but got shape {}", channels_,
               to_string(options_.layout), x.shape());
  const int64_t batch = x.shape()[0], share = channels_ / groups_;
  const int64_t pixels = x.rank() == 2 ? 1 : is_last ? x.shape().count(1, 3) : x.shape().count(2, 4);
  const Tensor wide = ops::cast(x, accumulate_dtype(x.dtype()));
  const Tensor y =
      is_last ? standardize(reshaped(wide, {batch, pixels, groups_, share}), {1, 3}, options_.epsilon)
              : standardize(reshaped(wide, {batch, groups_, share * pixels}), {2}, options_.epsilon);
  const Shape per_channel = is_last ? Shape{channels_} : Shape{channels_, 1, 1};
  return ops::cast(scaled(reshaped(y, x.shape()), weight, bias, per_channel), x.dtype());
}

}  // namespace sinter::nn
