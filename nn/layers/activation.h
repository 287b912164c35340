// Activations, element by element unless they say otherwise.
#pragma once

#include <sinter/nn/module/default_layout.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// max(x, 0), any shape.
class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// x * Phi(x), as ops::gelu.
class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// x * sigmoid(x), also known as swish; as ops::silu.
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// 1 / (1 + exp(-x)). Before a loss, prefer logits and nn::BCEWithLogitsLoss.
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// x * clip(x + 3, 0, 6) / 6, a cheap relative of SiLU; as ops::hardswish.
class Hardswish : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// The hyperbolic tangent.
class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

struct PReLUOptions {
  double initial_slope = 0.25;
  Layout layout = default_layout();  ///< where the channels of the input are
};

/// x where x > 0, else weight * x. Member: `weight` (channels), or (1) for one slope in common; it stays
/// float32 in mixed precision, since its gradient sums over all pixels of a batch. Source: K. He et al.,
/// "Delving deep into rectifiers", ICCV 2015.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t channels = 1, const PReLUOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;

 private:
  Layout layout_;
};

}  // namespace sinter::nn
