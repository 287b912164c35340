// The fully connected layer.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct LinearOptions {
  bool bias = true;
};

/// y = x weight^T + bias: (..., in) to (..., out).
/// Members: `weight` (out, in), `bias` (out). They start as in PyTorch, drawn from default_generator().
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;  ///< undefined without one
};

}  // namespace sinter::nn
