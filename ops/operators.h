// The operators + - * / on tensors and numbers, those that rebind (+=), and clone. They live in namespace
// sinter, where argument-dependent lookup finds them without a using-declaration.
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

/// A tensor of its own memory with the values of x, and x's history: as ops::copy.
inline Tensor clone(const Tensor& x) {
  return ops::copy(x);
}

}  // namespace sinter
