#include <sinter/core/runtime/random.h>
#include <sinter/nn/init.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options) {
  SINTER_CHECK(in_features > 0 && out_features > 0,
               "[linear] expected positive feature counts but got {} in, {} out", in_features, out_features);
  const Shape shape{out_features, in_features};
  Generator& generator = default_generator();
  weight = parameter("weight", init::default_weight(shape, generator));
  if (options.bias) bias = parameter("bias", init::default_bias(shape, generator));
}

Tensor Linear::forward(const Tensor& x) const {
  return ops::linear(x, weight, bias);
}

}  // namespace sinter::nn
