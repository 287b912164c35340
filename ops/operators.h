// The operators + - * / on tensors and numbers. They live in namespace sinter, where argument-dependent
// lookup finds them without a using-declaration.
#pragma once

#include <sinter/ops/affine/affine.h>
#include <sinter/ops/binary/binary.h>
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

}  // namespace sinter
