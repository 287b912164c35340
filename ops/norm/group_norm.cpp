#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/norm/group_norm.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

Tensor shaped(const Tensor& x, const Shape& shape) {
  return reshape(x, {shape.begin(), shape.end()});
}

/// x with mean 0 and variance 1 over `axes`, by two passes: the mean is taken away before anything is
/// squared.
Tensor standardize(const Tensor& x, const std::vector<int64_t>& axes, double epsilon) {
  const Tensor centered = sub(x, mean(x, axes, {.keep_dims = true}));
  const Tensor variance = mean(square(centered), axes, {.keep_dims = true});
  return mul(centered, rsqrt(affine(variance, 1.0, epsilon)));
}

/// y * weight + bias in the dtype of x: parameters of shape `of`, which meet y as `shape`.
Tensor scaled(const char* tag, Tensor y, const Tensor& weight, const Tensor& bias, const Shape& of,
              const Shape& shape, DType dtype) {
  for (const Tensor* const each : {&weight, &bias}) {
    SINTER_CHECK(!each->defined() || each->shape() == of,
                 "[{}] expected weight and bias of shape {} but got {}", tag, of, each->shape());
  }
  if (weight.defined()) y = mul(y, shaped(cast(weight, y.dtype()), shape));
  if (bias.defined()) y = add(y, shaped(cast(bias, y.dtype()), shape));
  return cast(y, dtype);
}

void check_epsilon(const char* tag, const Tensor& x, double epsilon) {
  SINTER_CHECK(is_float(x.dtype()), "[{}] expected a floating-point dtype but got {}", tag, x.dtype());
  SINTER_CHECK(epsilon >= 0, "[{}] expected epsilon >= 0 but got {}", tag, epsilon);
}

Tensor normalized_groups(const char* tag, const Tensor& x, int64_t groups, const Tensor& weight,
                         const Tensor& bias, const GroupNormOptions& options) {
  const int channel = options.layout == Layout::kNHWC && x.rank() == 4 ? 3 : 1;
  const int64_t channels = x.size(channel), batch = x.size(0);
  SINTER_CHECK(groups > 0 && channels % groups == 0,
               "[{}] expected channels that are a multiple of the groups but got {} and {}", tag, channels,
               groups);
  const int64_t share = channels / groups;
  const int64_t pixels = x.rank() == 2 ? 1 : channel == 3 ? x.shape().count(1, 3) : x.shape().count(2, 4);
  const bool is_last = channel == x.rank() - 1;
  const Tensor wide = cast(x, accumulate_dtype(x.dtype()));
  const Tensor y = is_last
                       ? standardize(reshape(wide, {batch, pixels, groups, share}), {1, 3}, options.epsilon)
                       : standardize(reshape(wide, {batch, groups, share * pixels}), {2}, options.epsilon);
  return scaled(tag, shaped(y, x.shape()), weight, bias, {channels},
                is_last ? Shape{channels} : Shape{channels, 1, 1}, x.dtype());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias,
                  const LayerNormOptions& options) {
  check_epsilon("layer_norm", x, options.epsilon);
  const int outer = x.rank() - shape.rank();
  bool fits = outer >= 0 && shape.rank() > 0;
  for (int axis = 0; fits && axis < shape.rank(); ++axis) fits = x.shape()[outer + axis] == shape[axis];
  SINTER_CHECK(fits, "[layer_norm] expected an input whose last axes are {} but got shape {}", shape,
               x.shape());
  std::vector<int64_t> axes;
  for (int axis = outer; axis < x.rank(); ++axis) axes.push_back(axis);
  const Tensor y = standardize(cast(x, accumulate_dtype(x.dtype())), axes, options.epsilon);
  return scaled("layer_norm", y, weight, bias, shape, shape, x.dtype());
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options) {
  check_epsilon("group_norm", x, options.epsilon);
  SINTER_CHECK(x.rank() == 2 || x.rank() == 4, "[group_norm] expected (N, C) or images but got shape {}",
               x.shape());
  return normalized_groups("group_norm", x, groups, weight, bias, options);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const GroupNormOptions& options) {
  check_epsilon("instance_norm", x, options.epsilon);
  SINTER_CHECK(x.rank() == 4, "[instance_norm] expected images (rank 4) but got shape {}", x.shape());
  const int64_t channels = x.size(options.layout == Layout::kNHWC ? 3 : 1);
  SINTER_CHECK(channels > 0, "[instance_norm] expected at least one channel but got shape {}", x.shape());
  return normalized_groups("instance_norm", x, channels, weight, bias, options);
}

}  // namespace sinter::ops
