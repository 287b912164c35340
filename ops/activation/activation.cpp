#include <sinter/ops/activation/activation.h>
#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {

// ---- second derivatives

template <>
Tensor Sigmoid<double>::second(const Tensor& y, const Tensor& dy) const {
  return mul(dy, affine(y, -2.0, 1.0));
}

namespace {

/// dy times the derivative of the logistic function where it is s.
Tensor sigmoid_slope(const Tensor& s, const Tensor& dy) {
  return call_elementwise_grad(Sigmoid<double>(), {s, dy});
}

}  // namespace

// s' (2 + x (1 - 2 s)) for s = sigmoid(x).
template <>
Tensor Silu<double>::second(const Tensor& x, const Tensor& dy) const {
  const Tensor s = sigmoid(x);
  return mul(sigmoid_slope(s, dy), affine(mul(x, affine(s, -2.0, 1.0)), 1.0, 2.0));
}
// The normal density times 2 - x^2.
template <>
Tensor Gelu<double>::second(const Tensor& x, const Tensor& dy) const {
  const Tensor squares = square(x);
  const Tensor density = affine(exp(affine(squares, -0.5, 0.0)), 0.39894228040143267794, 0.0);
  return mul(dy, mul(density, affine(squares, -1.0, 2.0)));
}
template <>
Tensor Hardswish<double>::second(const Tensor& x, const Tensor& dy) const {
  return affine(vjp::clip(dy, x, -3.0, 3.0), 1.0 / 3.0, 0.0);
}
template <>
Tensor Softplus<double>::second(const Tensor& x, const Tensor& dy) const {
  return affine(sigmoid_slope(sigmoid(affine(x, beta, 0.0)), dy), beta, 0.0);
}
// The derivative where x <= 0; beyond it both terms are dy.
template <>
Tensor Elu<double>::second(const Tensor& x, const Tensor& dy) const {
  return sub(call_elementwise_grad(*this, {x, dy}), vjp::relu(dy, x));
}
// With t = tanh(softplus(x)) and s = sigmoid(x): (1 - t^2) s (2 + x (1 - s (1 + 2 t))).
template <>
Tensor Mish<double>::second(const Tensor& x, const Tensor& dy) const {
  const Tensor t = tanh(softplus(x, 1.0)), s = sigmoid(x);
  const Tensor inner = affine(mul(s, affine(t, 2.0, 1.0)), -1.0, 1.0);
  return mul(mul(dy, affine(square(t), -1.0, 1.0)), mul(s, affine(mul(x, inner), 1.0, 2.0)));
}

// ---- the ops

Tensor relu(const Tensor& x) {
  return call_elementwise(Relu<double>(), x);
}
Tensor vjp::relu(const Tensor& dy, const Tensor& y) {
  return call_elementwise_grad(Relu<double>(), {y, dy});
}
Tensor sigmoid(const Tensor& x) {
  return call_elementwise(Sigmoid<double>(), x);
}
Tensor silu(const Tensor& x) {
  return call_elementwise(Silu<double>(), x);
}
Tensor gelu(const Tensor& x) {
  return call_elementwise(Gelu<double>(), x);
}
Tensor hardsigmoid(const Tensor& x) {
  return call_elementwise(Hardsigmoid<double>(), x);
}
Tensor hardswish(const Tensor& x) {
  return call_elementwise(Hardswish<double>(), x);
}
Tensor softplus(const Tensor& x, double beta) {
  return call_elementwise(Softplus<double>{beta}, x);
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return call_elementwise(LeakyRelu<double>{negative_slope}, x);
}
Tensor relu6(const Tensor& x) {
  return call_elementwise(Relu6<double>(), x);
}
Tensor elu(const Tensor& x, double alpha) {
  return call_elementwise(Elu<double>{alpha}, x);
}
Tensor mish(const Tensor& x) {
  return call_elementwise(Mish<double>(), x);
}

void register_activation(OpRegistry& registry);
void register_activation(OpRegistry& registry) {
  add_elementwise_ops(registry, ActivationOps());
}

}  // namespace sinter::ops
