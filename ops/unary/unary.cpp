#include <sinter/ops/unary/unary.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {

// ---- second derivatives

namespace {

/// ops/binary stands on this folder.
Tensor mul(const Tensor& a, const Tensor& b) {
  static const Op& op = builtin("mul");
  return call_single(op, {a, b});
}

}  // namespace

template <>
Tensor Square<double>::second(const Tensor&, const Tensor& dy) const {
  return affine(dy, 2.0, 0.0);
}
template <>
Tensor Exp<double>::second(const Tensor&, const Tensor& dy) const {
  return dy;
}
template <>
Tensor Log<double>::second(const Tensor& x, const Tensor& dy) const {
  return neg(mul(dy, square(reciprocal(x))));
}
template <>
Tensor Sqrt<double>::second(const Tensor& y, const Tensor& dy) const {
  return mul(dy, affine(square(reciprocal(y)), -0.5, 0.0));
}
template <>
Tensor Rsqrt<double>::second(const Tensor& y, const Tensor& dy) const {
  return mul(dy, affine(square(y), -1.5, 0.0));
}
template <>
Tensor Reciprocal<double>::second(const Tensor& y, const Tensor& dy) const {
  return mul(dy, affine(y, -2.0, 0.0));
}
template <>
Tensor Sin<double>::second(const Tensor& x, const Tensor& dy) const {
  return neg(mul(dy, sin(x)));
}
template <>
Tensor Cos<double>::second(const Tensor& x, const Tensor& dy) const {
  return neg(mul(dy, cos(x)));
}
template <>
Tensor Tanh<double>::second(const Tensor& y, const Tensor& dy) const {
  return mul(dy, affine(y, -2.0, 0.0));
}
template <>
Tensor Erf<double>::second(const Tensor& x, const Tensor& dy) const {
  return mul(affine(x, -2.0, 0.0), call_elementwise_grad(*this, {x, dy}));
}
template <>
Tensor Pow<double>::second(const Tensor& x, const Tensor& dy) const {
  const double factor = exponent * (exponent - 1.0);
  return factor == 0.0 ? Tensor() : affine(mul(dy, pow(x, exponent - 2.0)), factor, 0.0);
}

// ---- the ops

Tensor neg(const Tensor& x) {
  return call_elementwise(Neg<double>(), x);
}
Tensor abs(const Tensor& x) {
  return call_elementwise(Abs<double>(), x);
}
Tensor sign(const Tensor& x) {
  return call_elementwise(Sign<double>(), x);
}
Tensor square(const Tensor& x) {
  return call_elementwise(Square<double>(), x);
}
Tensor exp(const Tensor& x) {
  return call_elementwise(Exp<double>(), x);
}
Tensor log(const Tensor& x) {
  return call_elementwise(Log<double>(), x);
}
Tensor sqrt(const Tensor& x) {
  return call_elementwise(Sqrt<double>(), x);
}
Tensor rsqrt(const Tensor& x) {
  return call_elementwise(Rsqrt<double>(), x);
}
Tensor reciprocal(const Tensor& x) {
  return call_elementwise(Reciprocal<double>(), x);
}
Tensor sin(const Tensor& x) {
  return call_elementwise(Sin<double>(), x);
}
Tensor cos(const Tensor& x) {
  return call_elementwise(Cos<double>(), x);
}
Tensor tanh(const Tensor& x) {
  return call_elementwise(Tanh<double>(), x);
}
Tensor erf(const Tensor& x) {
  return call_elementwise(Erf<double>(), x);
}
Tensor pow(const Tensor& x, double exponent) {
  return call_elementwise(Pow<double>{exponent}, x);
}
Tensor vjp::pow(const Tensor& dy, const Tensor& x, double exponent) {
  return call_elementwise_grad(Pow<double>{exponent}, {x, dy});
}
Tensor clip(const Tensor& x, double low, double high) {
  return call_elementwise(Clip<double>{low, high}, x);
}
Tensor vjp::clip(const Tensor& dy, const Tensor& x, double low, double high) {
  return call_elementwise_grad(Clip<double>{low, high}, {x, dy});
}
Tensor affine(const Tensor& x, double scale, double shift) {
  return call_elementwise(Affine<double>{scale, shift}, x);
}
void register_unary(OpRegistry& registry);
void register_unary(OpRegistry& registry) {
  add_elementwise_ops(registry, UnaryOps());
}

}  // namespace sinter::ops
