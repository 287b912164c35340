// Layers without parameters: dropout, flatten, a change of layout, identity.
#pragma once

#include <sinter/nn/module/default_layout.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); else the
/// identity. Draws from default_generator(). Source: N. Srivastava et al., "Dropout", JMLR 2014.
class Dropout : public Module {
 public:
  /// Throws InvalidArgument unless 0 <= p < 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const override;

 private:
  double p_;
};

/// (N, ...) to (N, everything else). Images are read as (C, H, W) in either layout, so that a linear layer
/// behind it has the same weight in both.
class Flatten : public Module {
 public:
  explicit Flatten(Layout layout = default_layout()) : layout_(layout) {}
  Tensor forward(const Tensor& x) const override;

 private:
  Layout layout_;
};

/// Permutes images between NCHW and NHWC: for a model whose parts work in different layouts.
class ChangeLayout : public Module {
 public:
  ChangeLayout(Layout from, Layout to);
  Tensor forward(const Tensor& x) const override;

 private:
  bool changes_;
  Layout to_;
};

/// x itself.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return x; }
};

}  // namespace sinter::nn
