#include <cmath>
#include <limits>

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_plan.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

Tensor wide(const Tensor& x) {
  return cast(x, accumulate_dtype(x.dtype()));
}

/// How many elements of x meet in one of the result.
int64_t terms(const Tensor& x, const std::vector<int64_t>& axes, const char* tag) {
  const AxisMask mask = reduced_axes(axes, x.rank(), tag);
  int64_t count = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (mask[static_cast<size_t>(axis)]) count *= x.size(axis);
  }
  return count;
}

Tensor variance(const Tensor& x, std::vector<int64_t> axes, const VarianceOptions& options, const char* tag) {
  SINTER_CHECK(is_float(x.dtype()), "[{}] expected a floating-point dtype but got {}", tag, x.dtype());
  const auto count = static_cast<double>(terms(x, axes, tag));
  const Tensor values = wide(x);
  const Tensor squares = square(sub(values, mean(values, axes, {.keep_dims = true})));
  const double divisor = options.unbiased ? std::max(count - 1.0, 0.0) : count;
  // Of no degree of freedom it is NaN.
  const Tensor total = sum(squares, std::move(axes), {.keep_dims = options.keep_dims});
  return affine(total, divisor > 0.0 ? 1.0 / divisor : std::numeric_limits<double>::quiet_NaN(), 0.0);
}

/// sqrt(x), with the gradient 0 in place of infinity at 0.
Tensor root(const Tensor& x) {
  const Tensor is_zero = equal(x, full({}, 0.0, x.dtype(), x.device()));
  return where(is_zero, x, sqrt(where(is_zero, 1.0, x)));
}

Tensor truth(const Tensor& x) {
  return not_equal(x, full({}, 0.0, x.dtype(), x.device()));
}

Tensor zero(const Tensor& like) {
  return full({}, 0.0, like.dtype(), like.device());
}

}  // namespace

Tensor var(const Tensor& x, std::vector<int64_t> axes, const VarianceOptions& options) {
  return cast(variance(x, std::move(axes), options, "var"), x.dtype());
}

Tensor std(const Tensor& x, std::vector<int64_t> axes, const VarianceOptions& options) {
  return cast(root(variance(x, std::move(axes), options, "std")), x.dtype());
}

Tensor norm(const Tensor& x, std::vector<int64_t> axes, bool keep_dims) {
  return cast(root(sum(square(wide(x)), std::move(axes), {.keep_dims = keep_dims})), x.dtype());
}

Tensor logsumexp(const Tensor& x, std::vector<int64_t> axes, bool keep_dims) {
  const Tensor values = wide(x);
  // What is taken away has no part in the gradient; an infinite one would leave NaN.
  const Tensor largest = max(values.detach(), axes, {.keep_dims = true});
  const Tensor shift =
      where(equal(abs(largest), full({}, HUGE_VAL, largest.dtype(), largest.device())), 0.0, largest);
  const Tensor total = add(log(sum(exp(sub(values, shift)), axes, {.keep_dims = true})), shift);
  const AxisMask mask = reduced_axes(axes, x.rank(), "logsumexp");
  const Shape shape = reduced_shape(x.shape(), mask, keep_dims);
  return cast(reshape(total, {shape.begin(), shape.end()}), x.dtype());
}

Tensor all(const Tensor& x, std::vector<int64_t> axes, bool keep_dims) {
  const Tensor failures = sum(logical_not(x), std::move(axes), {.keep_dims = keep_dims});
  return equal(failures, zero(failures));
}

Tensor any(const Tensor& x, std::vector<int64_t> axes, bool keep_dims) {
  const Tensor hits = sum(truth(x), std::move(axes), {.keep_dims = keep_dims});
  return greater(hits, zero(hits));
}

}  // namespace sinter::ops
