// The gradient of batch_norm_act, and what statistics of all ranks add to it.
#include <algorithm>
#include <initializer_list>
#include <span>

#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

using In = NormActInput;
using Out = NormActOutput;

/// Parameters and statistics of one tensor, as they were used.
NormState state_of(const GradientContext& context, const NormActPlaces& places) {
  const bool given = context.input(places.mean).defined();
  const auto statistic = [&](size_t i) {
    return given ? context.input(places.mean + i) : context.output(places.mean_output + i);
  };
  return {context.input(places.weight), context.input(places.weight + 1), statistic(0), statistic(1)};
}

/// The sums over all ranks of vectors of equal length: one exchange for all of them.
std::vector<Tensor> summed(std::span<const Tensor> vectors, uint64_t ranks) {
  static const Op &begin = builtin("begin_all_reduce"), &end = builtin("end_all_reduce");
  const AllReduceAttributes attributes{ranks};
  std::vector<Tensor> inputs = call(begin, vectors, attributes);
  inputs.insert(inputs.end(), vectors.begin(), vectors.end());
  const Tensor sums = call(end, inputs, attributes).front();
  std::vector<int64_t> counts(vectors.size(), vectors.front().numel());
  const std::vector<int64_t> places = update::bucket_places(counts);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < vectors.size(); ++i)
    parts.push_back(slice(sums, 0, places[i], places[i] + counts[i]));
  return parts;
}

/// `constant`, the gradient with constant statistics, and what they add.
Tensor with_statistics(const Tensor& x, const NormState& norm, const Tensor& share, const Tensor& constant,
                       const Tensor& sum_dz, const Tensor& sum_dz_normal, Layout layout) {
  Tensor factor = affine(mul(norm.inv_std, share), -1.0, 0.0);
  if (norm.weight.defined()) factor = mul(factor, norm.weight);
  return fused::batch_norm_act(x,
                               {.weight = mul(factor, sum_dz_normal),
                                .bias = mul(factor, sum_dz),
                                .mean = norm.mean,
                                .inv_std = norm.inv_std},
                               constant, {}, {},
                               {.training = false, .layout = layout, .activation = fused::Activation::kNone});
}

/// What the statistics of all ranks add to gradients that took them for constants.
void add_statistics(const GradientContext& context, const NormState& norm, const NormState& addend_norm,
                    BatchNormActGrads& grads) {
  const auto& options = context.attributes<BatchNormActOptions>();
  const bool two = options.normalize_addend;
  const Tensor share = context.input(In::kShare);
  std::vector<Tensor> vectors = {grads.dbias, grads.dweight};
  if (two) vectors.push_back(grads.daddend_weight);
  const std::vector<Tensor> sums = summed(vectors, options.ranks);
  const auto add = [&](size_t i, const NormState& of, const Tensor& sum_dz_normal, Tensor& grad) {
    if (!context.needs(i)) return;
    grad = with_statistics(context.input(i), of, share, grad, sums[0], sum_dz_normal, options.layout);
  };
  add(In::kX, norm, sums[1], grads.dx);
  if (two) add(In::kAddend, addend_norm, sums[2], grads.daddend);
}

}  // namespace

std::vector<Tensor> batch_norm_act_gradient(const GradientContext& context) {
  const auto& options = context.attributes<BatchNormActOptions>();
  const bool on_cudnn = options.backend == NormBackend::kCudnn, two = options.normalize_addend;
  const bool masked = options.activation != fused::Activation::kNone,
             prelu = options.activation == fused::Activation::kPRelu;
  SINTER_CHECK(!masked || options.save_mask,
               "[batch_norm_act] expected save_mask for a gradient but it is off");
  const std::initializer_list<size_t> parameters = {In::kWeight, In::kBias, In::kAlpha, In::kAddendWeight,
                                                    In::kAddendBias};
  const bool passes_on = !two && !masked;  // the addend's gradient is y's
  const bool through_ranks =
      context.input(In::kShare).defined() && (context.needs(In::kX) || (two && context.needs(In::kAddend)));
  const BatchNormActGradOptions grad_options{
      .training = options.training,
      .parameter_grads =
          on_cudnn || through_ranks ||
          std::any_of(parameters.begin(), parameters.end(), [&](size_t i) { return context.needs(i); }),
      .addend_grad =
          on_cudnn ? context.input(In::kAddend).defined() : context.needs(In::kAddend) && !passes_on,
      .layout = options.layout,
      .activation = options.activation,
      .normalize_addend = two,
      .backend = options.backend,
      .epsilon = options.epsilon};
  const NormState norm = state_of(context, kMainPlaces);
  const NormState addend_norm = two ? state_of(context, kAddendPlaces) : NormState{};
  // The addend is read where it is normalised or where PReLU's argument is found again.
  BatchNormActGrads all = vjp::batch_norm_act(
      context.grad(), {}, context.input(In::kX), norm, two || prelu ? context.input(In::kAddend) : Tensor(),
      addend_norm, context.input(In::kAlpha), masked ? context.output(Out::kMask) : Tensor(), grad_options);
  if (through_ranks) add_statistics(context, norm, addend_norm, all);
  std::vector<Tensor> grads(In::kCount);
  const auto give = [&](size_t i, const Tensor& grad) {
    if (context.needs(i)) grads[i] = grad;
  };
  give(In::kX, all.dx);
  give(In::kWeight, all.dweight);
  give(In::kBias, all.dbias);
  give(In::kAlpha, all.dalpha);
  give(In::kAddend, passes_on ? context.grad() : all.daddend);
  give(In::kAddendWeight, all.daddend_weight);
  give(In::kAddendBias, all.daddend_bias);
  return grads;
}

}  // namespace sinter::ops
