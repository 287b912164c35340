// Modules of random networks whose forward pass changes buffers that it reads: before the change and behind
// it, through views and through copies.
#pragma once

#include <optional>

#include <sinter/core/op/node.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn::testing {

inline std::vector<int64_t> extents(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

/// How a buffer that has the shape of the images is read, changed and used.
struct RecurrentPlan {
  enum class Read { kItself, kView, kRow, kCast, kPermuted, kTwicePermuted, kMean, kScaled, kCopy, kCount };
  enum class Change { kCopy, kFill, kRow, kView, kGrow, kCount };
  enum class Use { kSum, kNormSum, kProduct, kConvolution, kConvolutionNorm, kCount };

  Read read = Read::kItself;
  Change change = Change::kCopy;
  Use use = Use::kSum;
  bool early = true;     ///< what was read before the change is used before it
  bool late = false;     ///< and behind it
  bool again = false;    ///< the buffer is read once more behind the change
  bool half = false;     ///< it is a float16 one (narrow_buffers())
  bool no_grad = false;  ///< what is made of it gets no gradient
};

/// Adds something of what it kept of the last batch, and keeps something of this one.
struct Recurrent : Module {
  Recurrent(const Shape& shape, Layout images, const RecurrentPlan& given)
      : plan(given),
        layout(images),
        last(buffer(given.half ? "last_half" : "last", Tensor::full(shape, 0.25))),
        filters(parameter("filters",
                          Tensor::full({channels_of(shape, images), channels_of(shape, images)}, 0.5))),
        norm(child("norm", BatchNorm2d(channels_of(shape, images), {.epsilon = 1e-2, .layout = images}))) {}

  static Layout other(Layout layout) { return layout == Layout::kNCHW ? Layout::kNHWC : Layout::kNCHW; }
  static int64_t channels_of(const Shape& shape, Layout layout) {
    return layout == Layout::kNCHW ? shape[1] : shape[3];
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor read_before = read(x);
    Tensor y = plan.early ? use(x, read_before) : x;
    change(x);
    if (plan.late) y = use(y, read_before);
    return plan.again ? use(y, read(x)) : y;
  }

  /// What is read may be the memory itself, which no gradient may read once it is changed.
  bool reads_memory() const {
    return plan.read == RecurrentPlan::Read::kItself || plan.read == RecurrentPlan::Read::kView;
  }

  Tensor read(const Tensor& x) const {
    using Read = RecurrentPlan::Read;
    const Tensor& kept = last;
    Tensor value;
    switch (plan.read) {
      case Read::kView:
        value = ops::reshape(ops::reshape(kept, {-1}), extents(kept.shape()));
        break;
      case Read::kRow:
        value = ops::slice(kept, 0, 0, 1);
        break;
      case Read::kCast:
        value = ops::cast(kept, kept.dtype() == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64);
        break;
      case Read::kPermuted:
      case Read::kTwicePermuted:
        value = ops::permute(kept, layout == Layout::kNCHW ? kToLast : kToFirst);
        if (plan.read == Read::kTwicePermuted)
          value = ops::permute(value, layout == Layout::kNCHW ? kToFirst : kToLast);
        break;
      case Read::kMean:
        value = ops::mean(kept, {0, 2}, {.keep_dims = true});
        break;
      case Read::kScaled:
        value = kept * 0.5;
        break;
      case Read::kCopy:
        value = ops::copy(kept);
        break;
      default:
        value = kept;
    }
    return value.dtype() == x.dtype() ? value : ops::cast(value, x.dtype());
  }

  /// Of single pixels.
  Tensor convolution(const Tensor& x, Layout of) const {
    const int64_t channels = filters.shape()[0];
    const std::vector<int64_t> shape = of == Layout::kNCHW ? std::vector<int64_t>{channels, channels, 1, 1}
                                                           : std::vector<int64_t>{channels, 1, 1, channels};
    return ops::conv2d(x, ops::reshape(filters, shape), {}, {.layout = of});
  }

  Tensor use(const Tensor& x, const Tensor& what) const {
    using Use = RecurrentPlan::Use;
    std::optional<NoGrad> no_grad;
    if (plan.no_grad || reads_memory()) no_grad.emplace();
    const bool turned = plan.read == RecurrentPlan::Read::kPermuted;
    const bool is_image = what.shape().numel() == x.numel();
    Tensor made = what;
    switch (is_image ? plan.use : std::min(plan.use, Use::kProduct)) {
      case Use::kProduct:
        made = ops::tanh(what);
        break;
      case Use::kConvolution:
      case Use::kConvolutionNorm:
        made = convolution(what, turned ? other(layout) : layout);
        break;
      default:
        break;
    }
    if (turned) made = ops::permute(made, layout == Layout::kNCHW ? kToFirst : kToLast);
    if (is_image && plan.use == Use::kConvolutionNorm) made = norm(made);
    no_grad.reset();
    switch (plan.use) {
      case Use::kNormSum:
        return ops::relu(norm(x) + made);
      case Use::kProduct:
        return x * made;
      default:
        return x + made;
    }
  }

  void change(const Tensor& x) const {
    using Change = RecurrentPlan::Change;
    const NoGrad no_grad;
    const Tensor& kept = last;
    const Tensor mixed = ops::cast(ops::tanh(x.detach()), kept.dtype()) * 0.5 + kept * 0.5;
    switch (plan.change) {
      case Change::kFill:
        return ops::fill_(kept, 0.75);
      case Change::kRow:
        return ops::copy_(ops::slice(kept, 0, 1, 2), ops::slice(mixed, 0, 0, 1));
      case Change::kView:
        return ops::copy_(ops::reshape(kept, {-1}), ops::reshape(mixed, {-1}));
      case Change::kGrow:
        return ops::copy_(kept, kept + 0.5);
      default:
        return ops::copy_(kept, mixed);
    }
  }

  inline static const std::vector<int64_t> kToLast{0, 2, 3, 1}, kToFirst{0, 3, 1, 2};

  RecurrentPlan plan;
  Layout layout;
  Buffer last;
  Parameter filters;
  BatchNorm2d norm;
};

/// How statistics are read around the norm that moves them.
struct StatisticsPlan {
  bool before = true, behind = true;  ///< the running mean is added
  bool as_copy = false;               ///< as a copy that was made before, also behind
  bool twice = false;                 ///< the norm is called twice
  bool moves_shift = false;           ///< the norm's bias is a buffer that changes behind it
  bool activates = true;              ///< ReLU behind the norm
  bool pools = false;                 ///< and max-pooling, made as large again
};

/// A norm with statistics that are read beside it.
struct WatchedNorm : Module {
  WatchedNorm(int64_t channels, Layout images, const StatisticsPlan& given)
      : plan(given),
        layout(images),
        mean(buffer("running_mean", Tensor::zeros({channels}))),
        variance(buffer("running_var", Tensor::full({channels}, 1.0))),
        scale(parameter("weight", Tensor::full({channels}, 1.0))),
        shift(buffer("shift", Tensor::full({channels}, 0.125))),
        bias(parameter("bias", Tensor::zeros({channels}))) {}

  Tensor forward(const Tensor& x) const override {
    Tensor seen = mean;
    if (plan.as_copy) seen = ops::copy(mean);
    Tensor y = plan.before ? x + along_channels(seen) : x;
    y = normalized(y);
    if (plan.twice) y = normalized(y);
    if (plan.moves_shift) {
      const NoGrad no_grad;
      ops::copy_(shift, shift * 0.5 + mean);
    }
    return plan.behind ? y + along_channels(seen) : y;
  }

  Tensor normalized(const Tensor& x) const {
    const Tensor& offset = plan.moves_shift ? shift : bias;
    Tensor y = ops::batch_norm(x, scale, offset, mean, variance,
                               {.epsilon = 1e-2, .training = training(), .layout = layout});
    if (plan.activates) y = ops::relu(y);
    if (plan.pools) y = ops::max_pool2d(y, {3, 3}, {.stride = {1, 1}, .padding = {1, 1}, .layout = layout});
    return y;
  }

  Tensor along_channels(const Tensor& vector) const {
    const int64_t channels = vector.numel();
    return layout == Layout::kNCHW ? ops::reshape(vector, {channels, 1, 1}) : vector;
  }

  StatisticsPlan plan;
  Layout layout;
  Buffer mean, variance;
  Parameter scale;
  Buffer shift;
  Parameter bias;
};

/// Counts its calls on the device, and adds the count before or behind.
struct Counter : Module {
  Counter(bool before, bool behind) : adds_before(before), adds_behind(behind) {}
  Tensor forward(const Tensor& x) const override {
    Tensor y = adds_before ? x + ops::cast(count, x.dtype()) * 0.1 : x;
    {
      const NoGrad no_grad;
      ops::copy_(count, count + ops::ones_like(count));
    }
    return adds_behind ? y + ops::cast(count, x.dtype()) * 0.1 : y;
  }
  Buffer count = buffer("count", Tensor::from_values(std::vector<int64_t>{0}, {1}));
  bool adds_before, adds_behind;
};

}  // namespace sinter::nn::testing
