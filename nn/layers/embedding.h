// A table of vectors.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// Looks up rows of a table: indices of any shape, int64, to (indices..., dimensions); as ops::embedding.
/// Member: `weight` (rows, dimensions), which starts normal around 0 with a standard deviation of 1, as in
/// PyTorch, drawn from default_generator().
class Embedding : public Module {
 public:
  /// Throws InvalidArgument unless both are positive.
  Embedding(int64_t rows, int64_t dimensions);

  Tensor forward(const Tensor& indices) const override;

  Parameter weight;
};

}  // namespace sinter::nn
