// One call of batch_norm or batch_norm_act, or of their gradients, as kernels see it: the plain ops are the
// fused ones without addend and activation.
#pragma once

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_act.h>
#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

/// Where the inputs and outputs of the fused ops stand.
struct NormActInput {
  enum : size_t {
    kX,
    kWeight,
    kBias,
    kRunningMean,
    kRunningVar,
    kSums,
    kAlpha,
    kAddend,
    kAddendWeight,
    kAddendBias,
    kAddendRunningMean,
    kAddendRunningVar,
    kAddendSums,
    kCount
  };
};
struct NormActOutput {
  enum : size_t { kY, kMean, kInvStd, kMask, kAddendMean, kAddendInvStd };
};
struct NormActGradInput {
  enum : size_t {
    kX,
    kDy,
    kDy2,
    kMask,
    kWeight,
    kBias,
    kMean,
    kInvStd,
    kAlpha,
    kAddend,
    kAddendWeight,
    kAddendBias,
    kAddendMean,
    kAddendInvStd
  };
};
struct NormActGradOutput {
  enum : size_t { kDx, kDweight, kDbias, kDaddend, kDalpha, kDaddendWeight, kDaddendBias };
};

inline int norm_axis(const Shape& shape, Layout layout) {
  return shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1;
}
inline ChannelView norm_view(const Shape& shape, Layout layout) {
  return channel_view(shape, norm_axis(shape, layout));
}
/// Bytes of the mask of `count` elements.
constexpr int64_t mask_bytes(int64_t count) {
  return (count + 7) / 8;
}

/// One tensor that is normalised, and what belongs to it. Views that a call does not have are not present.
struct NormTensor {
  TensorView x, weight, bias, running_mean, running_var, sums;
  TensorView mean, inv_std;
};

struct NormCall {
  BatchNormActOptions options;
  NormTensor main, addend;  ///< of an addend that is not normalised, only x is there
  TensorView alpha, y, mask;

  explicit NormCall(const KernelContext& context, const BatchNormOptions& plain)
      : options{.epsilon = plain.epsilon,
                .momentum = plain.momentum,
                .training = plain.training,
                .layout = plain.layout,
                .activation = Activation::kNone},
        main{.x = context.input(0),
             .weight = context.input(1),
             .bias = context.input(2),
             .running_mean = context.input(3),
             .running_var = context.input(4),
             .sums = {},
             .mean = context.output(1),
             .inv_std = context.output(2)},
        y(context.output(0)) {}

  explicit NormCall(const KernelContext& context, const BatchNormActOptions& fused)
      : options(fused), y(context.output(NormActOutput::kY)) {
    using In = NormActInput;
    using Out = NormActOutput;
    const auto input = [&](size_t i) { return context.input(i); };
    main = {
        input(In::kX),          input(In::kWeight), input(In::kBias),           input(In::kRunningMean),
        input(In::kRunningVar), input(In::kSums),   context.output(Out::kMean), context.output(Out::kInvStd)};
    alpha = input(In::kAlpha);
    addend.x = input(In::kAddend);
    if (fused.normalize_addend) {
      addend = {input(In::kAddend),
                input(In::kAddendWeight),
                input(In::kAddendBias),
                input(In::kAddendRunningMean),
                input(In::kAddendRunningVar),
                input(In::kAddendSums),
                context.output(Out::kAddendMean),
                context.output(Out::kAddendInvStd)};
    }
    if (fused.activation != Activation::kNone && fused.save_mask) mask = context.output(Out::kMask);
  }

  ChannelView view() const { return norm_view(main.x.shape, options.layout); }
};

/// One normalised tensor in the gradient, and the gradients that are wanted.
struct NormGradTensor {
  TensorView x, weight, bias, mean, inv_std;
  TensorView dx, dweight, dbias;
};

struct NormGradCall {
  BatchNormActGradOptions options;
  NormGradTensor main, addend;  ///< of an addend that is not normalised, only x and dx may be there
  TensorView dy, dy2, mask, alpha, dalpha;

  explicit NormGradCall(const KernelContext& context, const BatchNormGradOptions& plain)
      : options{.training = plain.training,
                .parameter_grads = plain.parameter_grads,
                .layout = plain.layout,
                .activation = Activation::kNone},
        main{.x = context.input(0),
             .weight = context.input(2),
             .bias = {},
             .mean = context.input(3),
             .inv_std = context.input(4),
             .dx = context.output(0),
             .dweight = {},
             .dbias = {}},
        dy(context.input(1)) {
    if (plain.parameter_grads) main.dweight = context.output(1), main.dbias = context.output(2);
  }

  explicit NormGradCall(const KernelContext& context, const BatchNormActGradOptions& fused) : options(fused) {
    using In = NormActGradInput;
    using Out = NormActGradOutput;
    const auto input = [&](size_t i) { return context.input(i); };
    const auto output = [&](size_t i, bool wanted) { return wanted ? context.output(i) : TensorView{}; };
    const bool parameters = fused.parameter_grads;
    main = {input(In::kX),
            input(In::kWeight),
            input(In::kBias),
            input(In::kMean),
            input(In::kInvStd),
            output(Out::kDx, true),
            output(Out::kDweight, parameters),
            output(Out::kDbias, parameters)};
    addend.x = input(In::kAddend);
    if (fused.normalize_addend) {
      addend = {input(In::kAddend),
                input(In::kAddendWeight),
                input(In::kAddendBias),
                input(In::kAddendMean),
                input(In::kAddendInvStd),
                {},
                output(Out::kDaddendWeight, parameters),
                output(Out::kDaddendBias, parameters)};
    }
    addend.dx = output(Out::kDaddend, fused.addend_grad);
    dy = input(In::kDy);
    dy2 = input(In::kDy2);
    mask = input(In::kMask);
    alpha = input(In::kAlpha);
    dalpha = output(Out::kDalpha, parameters && fused.activation == Activation::kPRelu);
  }

  ChannelView view() const { return norm_view(main.x.shape, options.layout); }
  /// Sums over the channels are needed.
  bool reduces() const {
    return options.training || options.parameter_grads || (addend.dx.present && !options.normalize_addend);
  }
};

/// Bytes of cuDNN's reserve space for a call of batch_norm_act, which infer needs; set where cuDNN is.
using NormReserveBytes = int64_t (*)(const TensorSpec& x, const BatchNormActOptions& options, bool adds);
void set_cudnn_norm_reserve(NormReserveBytes bytes);

/// The call wants Sinter's own kernels.
template <class Options>
bool wants_own_kernel(const KernelQuery& query) {
  return query.attributes<Options>().backend == NormBackend::kSinter;
}

/// Registers the fused ops, which share a folder with the plain ones; called by the registrations of those.
void register_batch_norm_act(OpRegistry& registry);
void register_batch_norm_act_cpu(OpRegistry& registry);

}  // namespace sinter::ops
