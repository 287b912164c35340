#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_plan.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
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

Tensor variance(const Tensor& x, const IntList& axes, const VarianceOptions& options, const char* tag) {
  SINTER_CHECK(is_float(x.dtype()), "[{}] expected a floating-point dtype but got {}", tag, x.dtype());
  const auto count = static_cast<double>(terms(x, axes.to_vector(), tag));
  const Tensor values = wide(x);
  const Tensor squares = square(sub(values, mean(values, axes, {.keep_dims = true})));
  const double divisor = options.unbiased ? std::max(count - 1.0, 0.0) : count;
  // Of no degree of freedom it is NaN.
  const Tensor total = sum(squares, axes, {.keep_dims = options.keep_dims});
  return affine(total, divisor > 0.0 ? 1.0 / divisor : std::numeric_limits<double>::quiet_NaN(), 0.0);
}

/// sqrt(x), with the gradient 0 in place of infinity at 0.
Tensor root(const Tensor& x) {
  const Tensor is_zero = equal(x, full({}, 0.0, x.dtype(), x.device()));
  return where(is_zero, x, sqrt(where(is_zero, 1.0, x)));
}

/// x (reduced, kept): the reduced axes of `x` as the first one, where slices are views.
Tensor reduced_first(const Tensor& x, const AxisMask& mask) {
  std::vector<int64_t> order;
  for (const bool reduced : {true, false}) {
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (mask[static_cast<size_t>(axis)] == reduced) order.push_back(axis);
    }
  }
  const int64_t kept = reduced_shape(x.shape(), mask, false).numel();
  const bool stays = std::is_sorted(order.begin(), order.end());
  return reshape(stays ? x : permute(x, std::move(order)), {x.numel() / kept, kept});
}

/// The product of the rows of x (rows >= 1, columns).
Tensor product_of_rows(Tensor x) {
  Tensor odd;  // the product of rows that were left over
  for (int64_t rows = x.size(0); rows > 1; rows /= 2) {
    const int64_t half = rows / 2;
    if (rows % 2 != 0) {
      const Tensor last = slice(x, 0, rows - 1, rows);
      odd = odd.defined() ? mul(odd, last) : last;
    }
    x = mul(slice(x, 0, 0, half), slice(x, 0, half, 2 * half));
  }
  return odd.defined() ? mul(x, odd) : x;
}

Tensor truth(const Tensor& x) {
  return not_equal(x, full({}, 0.0, x.dtype(), x.device()));
}

Tensor zero(const Tensor& like) {
  return full({}, 0.0, like.dtype(), like.device());
}

}  // namespace

Tensor var(const Tensor& x, const IntList& axes, const VarianceOptions& options) {
  return cast(variance(x, axes, options, "var"), x.dtype());
}

Tensor std(const Tensor& x, const IntList& axes, const VarianceOptions& options) {
  return cast(root(variance(x, axes, options, "std")), x.dtype());
}

Tensor norm(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  return cast(root(sum(square(wide(x)), axes, options)), x.dtype());
}

Tensor logsumexp(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  const Tensor values = wide(x);
  // Of no elements, which have no largest one, the sum is 0.
  if (x.numel() == 0) return cast(log(sum(values, axes, options)), x.dtype());
  // What is taken away has no part in the gradient; an infinite one would leave NaN.
  const Tensor largest = max(values.detach(), axes, {.keep_dims = true});
  const Tensor shift =
      where(equal(abs(largest), full({}, HUGE_VAL, largest.dtype(), largest.device())), 0.0, largest);
  // Of elements that are all -infinity: log(0), whose gradient is 0 here and not infinity times 0.
  const Tensor parts = sum(exp(sub(values, shift)), axes, {.keep_dims = true});
  const Tensor is_zero = equal(parts, zero(parts));
  const Tensor total = where(is_zero, -HUGE_VAL, add(log(where(is_zero, 1.0, parts)), shift));
  const AxisMask mask = reduced_axes(axes.to_vector(), x.rank(), "logsumexp");
  const Shape shape = reduced_shape(x.shape(), mask, options.keep_dims);
  return cast(reshape(total, {shape.begin(), shape.end()}), x.dtype());
}

Tensor prod(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  const AxisMask mask = reduced_axes(axes.to_vector(), x.rank(), "prod");
  const Shape shape = reduced_shape(x.shape(), mask, options.keep_dims);
  const Tensor values = is_float(x.dtype()) ? wide(x) : cast(x, DType::kInt64);
  const DType dtype = is_float(x.dtype()) ? x.dtype() : DType::kInt64;
  // Of no elements the sum is 0, with x behind it.
  if (x.numel() == 0) return cast(affine(sum(values, axes, options), 1.0, 1.0), dtype);
  const Tensor product = product_of_rows(reduced_first(values, mask));
  return cast(reshape(product, {shape.begin(), shape.end()}), dtype);
}

Tensor all(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  const Tensor failures = sum(logical_not(x), axes, options);
  return equal(failures, zero(failures));
}

Tensor any(const Tensor& x, const IntList& axes, const ReduceOptions& options) {
  const Tensor hits = sum(truth(x), axes, options);
  return greater(hits, zero(hits));
}

}  // namespace sinter::ops
