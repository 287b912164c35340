// The fully connected layer, and a table of vectors.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct LinearOptions {
  bool bias = true;
  /// Weight and bias stay float32 in a half-precision model, and so does the result: for layers whose sums
  /// are too long, or whose results matter too much, for 16 bits.
  bool keep_float32 = false;
};

/// y = x weight^T + bias: (..., in) to (..., out).
/// Members: `weight` (out, in), `bias` (out). They start as in PyTorch, drawn from default_generator().
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;  ///< undefined without one

 private:
  bool keep_float32_;
};

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
