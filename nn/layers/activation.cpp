#include <array>

#include <sinter/nn/layers/activation.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {

Tensor ReLU::forward(const Tensor& x) const {
  return ops::relu(x);
}
Tensor GELU::forward(const Tensor& x) const {
  return ops::gelu(x);
}
Tensor SiLU::forward(const Tensor& x) const {
  return ops::silu(x);
}
Tensor Sigmoid::forward(const Tensor& x) const {
  return ops::sigmoid(x);
}
Tensor Hardswish::forward(const Tensor& x) const {
  return ops::hardswish(x);
}
Tensor Tanh::forward(const Tensor& x) const {
  return ops::tanh(x);
}

LeakyReLU::LeakyReLU(double negative_slope) : negative_slope_(negative_slope) {
  describe(fmt::format("{}", negative_slope));
}
Tensor LeakyReLU::forward(const Tensor& x) const {
  return ops::leaky_relu(x, negative_slope_);
}

ELU::ELU(double alpha) : alpha_(alpha) {
  describe(fmt::format("{}", alpha));
}
Tensor ELU::forward(const Tensor& x) const {
  return ops::elu(x, alpha_);
}

Tensor ReLU6::forward(const Tensor& x) const {
  return ops::relu6(x);
}
Tensor Mish::forward(const Tensor& x) const {
  return ops::mish(x);
}

Softplus::Softplus(double beta) : beta_(beta) {
  SINTER_CHECK(beta > 0.0, "[softplus] expected beta > 0 but got {}", beta);
  describe(fmt::format("{}", beta));
}
Tensor Softplus::forward(const Tensor& x) const {
  return ops::softplus(x, beta_);
}

Tensor Softmax::forward(const Tensor& x) const {
  if (x.rank() != 4 || axis_ < 0 || axis_ > 3 || layout() == counted_in_) return ops::softmax(x, axis_);
  constexpr std::array<int, 4> in_nhwc{0, 3, 1, 2}, in_nchw{0, 2, 3, 1};
  return ops::softmax(x, (layout() == Layout::kNHWC ? in_nhwc : in_nchw)[static_cast<size_t>(axis_)]);
}

PReLU::PReLU(int64_t channels, const PReLUOptions& options) {
  SINTER_CHECK(channels > 0, "[prelu] expected a positive number of channels but got {}", channels);
  weight = parameter("weight", Tensor::full({channels}, options.initial_slope), {.keep_float32 = true});
  describe(fmt::format("{}", channels));
  channels > 1 ? works_in(options.layout) : starts_in(options.layout);
}

Tensor PReLU::forward(const Tensor& x) const {
  const int64_t channels = weight.shape()[0];
  if (channels > 1) check_channels("prelu", x, channels, layout());
  return ops::prelu(x, weight, {.layout = layout()});
}

}  // namespace sinter::nn
