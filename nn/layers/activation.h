// Activations, element by element unless they say otherwise.
#pragma once

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

/// x where x > 0, else negative_slope * x; as ops::leaky_relu.
class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01);
  Tensor forward(const Tensor& x) const override;

 private:
  double negative_slope_;
};

/// x where x > 0, else alpha * (exp(x) - 1); as ops::elu.
class ELU : public Module {
 public:
  explicit ELU(double alpha = 1.0);
  Tensor forward(const Tensor& x) const override;

 private:
  double alpha_;
};

/// min(max(x, 0), 6).
class ReLU6 : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// x * tanh(softplus(x)); as ops::mish.
class Mish : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

/// log(1 + exp(beta x)) / beta; as ops::softplus.
class Softplus : public Module {
 public:
  /// Throws InvalidArgument unless beta > 0.
  explicit Softplus(double beta = 1.0);
  Tensor forward(const Tensor& x) const override;

 private:
  double beta_;
};

/// Probabilities along `axis`; as ops::softmax. From the back, when negative, it counts the axes as they
/// come; from the front those of images in `layout`: after to(Layout) of a model, Softmax(1) still runs over
/// the channels. Not before nn::CrossEntropyLoss, which takes logits.
class Softmax : public Module {
 public:
  explicit Softmax(int64_t axis = -1, Layout layout = Layout::kNCHW) : axis_(axis), counted_in_(layout) {
    starts_in(layout);
  }
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t axis_;
  Layout counted_in_;
};

struct PReLUOptions {
  double initial_slope = 0.25;
  Layout layout = Layout::kNCHW;  ///< where the channels of the input are
};

/// x where x > 0, else weight * x. Member: `weight` (channels), or (1) for one slope in common; it stays
/// float32 in mixed precision, since its gradient sums over all pixels of a batch. Source: K. He et al.,
/// "Delving deep into rectifiers", ICCV 2015.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t channels = 1, const PReLUOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;
};

}  // namespace sinter::nn
