#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/embedding.h>
#include <sinter/ops/embedding/embedding.h>

namespace sinter::nn {

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
