#include <sinter/ops/unary/unary.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {

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
Tensor pow_grad(const Tensor& x, const Tensor& dy, double exponent) {
  return call_elementwise_grad(Pow<double>{exponent}, {x, dy});
}
Tensor clip(const Tensor& x, double low, double high) {
  return call_elementwise(Clip<double>{low, high}, x);
}
Tensor clip_grad(const Tensor& x, const Tensor& dy, double low, double high) {
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
