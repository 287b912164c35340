#include <cmath>

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/tensor/closeness.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

Tensor infinity(const Tensor& like) {
  return full({}, HUGE_VAL, like.dtype(), like.device());
}

void check_float(const char* tag, const Tensor& x) {
  SINTER_CHECK(is_float(x.dtype()), "[{}] expected a floating-point dtype but got {}", tag, x.dtype());
}

}  // namespace

Tensor isnan(const Tensor& x) {
  check_float("isnan", x);
  return not_equal(x, x);
}

Tensor isinf(const Tensor& x) {
  check_float("isinf", x);
  return equal(abs(x.detach()), infinity(x));
}

Tensor isfinite(const Tensor& x) {
  check_float("isfinite", x);
  return less(abs(x.detach()), infinity(x));
}

bool allclose(const Tensor& a, const Tensor& b, const ClosenessOptions& options) {
  check_float("allclose", a);
  SINTER_CHECK(a.dtype() == b.dtype(), "[allclose] expected one dtype but got {} and {}", a.dtype(),
               b.dtype());
  const Tensor x = cast(a.detach(), DType::kFloat64), y = cast(b.detach(), DType::kFloat64);
  const Tensor near = less_equal(abs(sub(x, y)), affine(abs(y), options.rtol, options.atol));
  Tensor agree = logical_or(equal(x, y), logical_and(near, isfinite(y)));
  if (options.equal_nan) agree = logical_or(agree, logical_and(isnan(x), isnan(y)));
  return all(agree).item<bool>();
}

}  // namespace sinter::ops
