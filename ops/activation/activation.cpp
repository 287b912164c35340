#include <sinter/ops/activation/activation.h>
#include <sinter/ops/activation/activation_math.h>

namespace sinter::ops {

Tensor relu(const Tensor& x) {
  return call_elementwise(Relu<double>(), x);
}
Tensor relu_grad(const Tensor& y, const Tensor& dy) {
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
