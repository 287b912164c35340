// The operators of tensors and numbers: + - * /, those that rebind (+=), comparisons, and & | ~ of truth.
// They live in namespace sinter, where argument-dependent lookup finds them without a using-declaration.
#pragma once

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/unary/unary.h>

namespace sinter {

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return ops::add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return ops::sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return ops::mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return ops::div(a, b);
}

inline Tensor operator+(const Tensor& a, double b) {
  return ops::affine(a, 1.0, b);
}
inline Tensor operator-(const Tensor& a, double b) {
  return ops::affine(a, 1.0, -b);
}
inline Tensor operator*(const Tensor& a, double b) {
  return ops::affine(a, b, 0.0);
}
/// Multiplies by 1 / b, which is rounded once in double precision.
inline Tensor operator/(const Tensor& a, double b) {
  return ops::affine(a, 1.0 / b, 0.0);
}

inline Tensor operator+(double a, const Tensor& b) {
  return ops::affine(b, 1.0, a);
}
inline Tensor operator-(double a, const Tensor& b) {
  return ops::affine(b, -1.0, a);
}
inline Tensor operator*(double a, const Tensor& b) {
  return ops::affine(b, a, 0.0);
}
inline Tensor operator/(double a, const Tensor& b) {
  return ops::affine(ops::reciprocal(b), a, 0.0);
}

inline Tensor operator-(const Tensor& x) {
  return ops::neg(x);
}

/// `a += b` is `a = a + b`: the handle `a` then names a new tensor, with the history of the sum, and other
/// handles on the old one keep it as it was. Nothing is changed in place, so the dtype and, but for
/// broadcasting, the shape stay. In place, under NoGrad: ops::copy_(a, a + b).
inline Tensor& operator+=(Tensor& a, const Tensor& b) {
  return a = a + b;
}
inline Tensor& operator-=(Tensor& a, const Tensor& b) {
  return a = a - b;
}
inline Tensor& operator*=(Tensor& a, const Tensor& b) {
  return a = a * b;
}
inline Tensor& operator/=(Tensor& a, const Tensor& b) {
  return a = a / b;
}
inline Tensor& operator+=(Tensor& a, double b) {
  return a = a + b;
}
inline Tensor& operator-=(Tensor& a, double b) {
  return a = a - b;
}
inline Tensor& operator*=(Tensor& a, double b) {
  return a = a * b;
}
inline Tensor& operator/=(Tensor& a, double b) {
  return a = a / b;
}

/// Comparisons, element by element, to bool; as ops::less and its like. A number is rounded to the tensor's
/// dtype, which must be able to represent it if that is an integer. There is no ==, which a reader would take
/// for one answer: ops::equal, or is_same.
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return ops::less(a, b);
}
inline Tensor operator<(const Tensor& a, double b) {
  return ops::less(a, ops::detail::number_beside("less", b, a));
}
inline Tensor operator<(double a, const Tensor& b) {
  return ops::less(ops::detail::number_beside("less", a, b), b);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return ops::less_equal(a, b);
}
inline Tensor operator<=(const Tensor& a, double b) {
  return ops::less_equal(a, ops::detail::number_beside("less_equal", b, a));
}
inline Tensor operator<=(double a, const Tensor& b) {
  return ops::less_equal(ops::detail::number_beside("less_equal", a, b), b);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return ops::greater(a, b);
}
inline Tensor operator>(const Tensor& a, double b) {
  return ops::greater(a, ops::detail::number_beside("greater", b, a));
}
inline Tensor operator>(double a, const Tensor& b) {
  return ops::greater(ops::detail::number_beside("greater", a, b), b);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return ops::greater_equal(a, b);
}
inline Tensor operator>=(const Tensor& a, double b) {
  return ops::greater_equal(a, ops::detail::number_beside("greater_equal", b, a));
}
inline Tensor operator>=(double a, const Tensor& b) {
  return ops::greater_equal(ops::detail::number_beside("greater_equal", a, b), b);
}

/// Of truth, as ops::logical_and, ops::logical_or and ops::logical_not: any dtype, to bool.
inline Tensor operator&(const Tensor& a, const Tensor& b) {
  return ops::logical_and(a, b);
}
inline Tensor operator|(const Tensor& a, const Tensor& b) {
  return ops::logical_or(a, b);
}
inline Tensor operator~(const Tensor& x) {
  return ops::logical_not(x);
}

}  // namespace sinter
