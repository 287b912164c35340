#include <sinter/nn/layers/activation.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/relu/relu.h>

namespace sinter::nn {

Tensor ReLU::forward(const Tensor& x) const {
  return ops::relu(x);
}

PReLU::PReLU(int64_t channels, const PReLUOptions& options) : layout_(options.layout) {
  SINTER_CHECK(channels > 0, "[prelu] expected a positive number of channels but got {}", channels);
  weight = parameter("weight", Tensor::full({channels}, options.initial_slope));
}

Tensor PReLU::forward(const Tensor& x) const {
  return ops::prelu(x, weight, layout_);
}

}  // namespace sinter::nn
