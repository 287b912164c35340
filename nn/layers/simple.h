// Layers without parameters: dropout, other shapes, padding, a change of layout, identity.
#pragma once

#include <string>
#include <vector>

#include <sinter/core/base/size2d.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/pad/pad.h>

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

/// In training, zeroes whole channels of images, each with probability p, and scales the others by 1 / (1 -
/// p); else the identity. Of (N, C, H, W), or (N, H, W, C) under kNHWC. Source: J. Tompson et al., "Efficient
/// object localization using convolutional networks", CVPR 2015.
class Dropout2d : public Module {
 public:
  /// Throws InvalidArgument unless 0 <= p < 1.
  explicit Dropout2d(double p = 0.5, Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;

 private:
  double p_;
};

enum class StochasticDepthMode {
  kRow,    ///< each example of a batch is dropped or kept on its own
  kBatch,  ///< all of a batch are
};
std::string to_string(StochasticDepthMode mode);  ///< "row" or "batch"

/// In training, zeroes whole examples, each with probability p, and scales the others by 1 / (1 - p); else
/// the identity. (N, ...); put at the end of a residual branch it drops the branch. Draws from
/// default_generator(). Source: G. Huang et al., "Deep networks with stochastic depth", ECCV 2016.
class StochasticDepth : public Module {
 public:
  /// Throws InvalidArgument unless 0 <= p < 1.
  explicit StochasticDepth(double p, StochasticDepthMode mode = StochasticDepthMode::kRow);
  Tensor forward(const Tensor& x) const override;

 private:
  double p_;
  StochasticDepthMode mode_;
};

/// (N, ...) to (N, everything else). Images are read as (C, H, W) in either layout, so that a linear layer
/// behind it has the same weight in both.
class Flatten : public Module {
 public:
  explicit Flatten(Layout layout = Layout::kNCHW) { starts_in(layout); }
  /// The axes from `first` to `last` as one, those of images as (N, C, H, W).
  explicit Flatten(int64_t first, int64_t last = -1) : first_(first), last_(last) {}
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t first_ = 1, last_ = -1;
};

/// Gives the axis at index `axis` (from the back when negative) several extents, of which one may be -1:
/// Unflatten(1, {1, 28, 28}) makes (N, 784) to (N, 1, 28, 28). Images that it makes so are in `layout`; in a
/// model that to(Layout) brought to the other one they are turned.
class Unflatten : public Module {
 public:
  Unflatten(int64_t axis, std::vector<int64_t> extents, Layout layout = Layout::kNCHW);
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t axis_;
  std::vector<int64_t> extents_;
  Layout made_in_;
};

struct Pad2dOptions {
  ops::PadMode mode = ops::PadMode::kConstant;
  double value = 0.0;  ///< of the new pixels under kConstant
  Layout layout = Layout::kNCHW;
};

/// Pads images, (N, C, H, W), or (N, H, W, C) under kNHWC; as ops::pad.
class Pad2d : public Module {
 public:
  explicit Pad2d(Padding2d padding, const Pad2dOptions& options = {});
  Tensor forward(const Tensor& x) const override;

 private:
  Padding2d padding_;
  Pad2dOptions options_;
};

/// Permutes images between NCHW and NHWC: for a model whose parts work in different layouts. When to(Layout)
/// has brought it to one layout with its neighbours, it gives images as they are.
class ChangeLayout : public Module {
 public:
  ChangeLayout(Layout from, Layout to);
  Tensor forward(const Tensor& x) const override;
};

/// x itself.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return x; }
};

}  // namespace sinter::nn
