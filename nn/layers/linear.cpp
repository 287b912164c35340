#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options)
    : keep_float32_(options.keep_float32) {
  SINTER_CHECK(in_features > 0 && out_features > 0,
               "[linear] expected positive feature counts but got {} in, {} out", in_features, out_features);
  const Shape shape{out_features, in_features};
  Generator& generator = default_generator();
  const VariableOptions kept{.keep_float32 = keep_float32_};
  weight = parameter("weight", init::default_weight(shape, generator), kept);
  if (options.bias) bias = parameter("bias", init::default_bias(shape, generator), kept);
  describe(fmt::format("{}, {}{}{}", in_features, out_features, options.bias ? "" : ", no bias",
                       keep_float32_ ? ", float32" : ""));
}

Tensor Linear::forward(const Tensor& x) const {
  return ops::linear(keep_float32_ ? ops::cast(x, weight.tensor().dtype()) : x, weight, bias);
}

Embedding::Embedding(int64_t rows, int64_t dimensions) {
  SINTER_CHECK(rows > 0 && dimensions > 0, "[embedding] expected a positive size but got {} x {}", rows,
               dimensions);
  weight = parameter("weight", init::normal({rows, dimensions}, 0.0, 1.0, default_generator()));
  describe(fmt::format("{}, {}", rows, dimensions));
}

Tensor Embedding::forward(const Tensor& indices) const {
  return ops::embedding(weight, indices);
}

}  // namespace sinter::nn
