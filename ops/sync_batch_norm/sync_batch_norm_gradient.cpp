#include <algorithm>
#include <initializer_list>
#include <span>

#include <sinter/core/op/node.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/normalize_act/normalize_act.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_call.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_gradient.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

using In = SyncNormInput;

/// The sums over all ranks of vectors of equal length: one exchange for all of them.
std::vector<Tensor> summed(std::span<const Tensor> vectors, uint64_t communicator) {
  static const Op &begin = builtin("begin_all_reduce"), &end = builtin("end_all_reduce");
  const AllReduceAttributes attributes{communicator};
  std::vector<Tensor> inputs = call(begin, vectors, attributes);
  inputs.insert(inputs.end(), vectors.begin(), vectors.end());
  const Tensor sums = call(end, inputs, attributes).front();
  std::vector<int64_t> counts(vectors.size(), vectors.front().numel());
  const std::vector<int64_t> places = bucket_places(counts);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < vectors.size(); ++i)
    parts.push_back(slice(sums, 0, places[i], places[i] + counts[i]));
  return parts;
}

/// `constant`, the gradient with constant statistics, and what they add.
Tensor with_statistics(const Tensor& x, const NormState& norm, const Tensor& share, const Tensor& constant,
                       const Tensor& sum_dz, const Tensor& sum_dz_normal, Layout layout) {
  Tensor factor = affine(norm.inv_std * share, -1.0, 0.0);
  if (norm.weight.defined()) factor = factor * norm.weight;
  const NormState slope{factor * sum_dz_normal, factor * sum_dz, norm.mean, norm.inv_std};
  return normalize_act(x, slope, {.layout = layout}, {}, constant);
}

NormState state_of(const GradientContext& context, size_t first) {
  return {context.input(first), context.input(first + 1), context.input(first + 2), context.input(first + 3)};
}

}  // namespace

std::vector<Tensor> sync_batch_norm_gradient(const GradientContext& context) {
  const auto& options = context.attributes<SyncBatchNormAttributes>();
  const bool masked = options.activation != Activation::kNone, two = options.normalize_addend;
  SINTER_CHECK(!masked || options.save_mask,
               "[sync_batch_norm] expected save_mask for a gradient but it is off");
  std::vector<Tensor> grads(In::kCount);
  const auto give = [&](size_t i, const Tensor& grad) {
    if (context.needs(i)) grads[i] = grad;
  };
  const bool has_addend = context.input(In::kAddend).defined();
  const bool passes_through = has_addend && !two && !masked;  // the addend's gradient is y's
  const NormState norm = state_of(context, In::kWeight);
  const NormState addend_norm = two ? state_of(context, In::kAddendWeight) : NormState{};
  const Tensor addend =
      two || options.activation == Activation::kPRelu ? context.input(In::kAddend) : Tensor();
  const BatchNormActGrads own = batch_norm_act_grad(
      context.input(In::kX), norm, context.grad(), {}, masked ? context.output(1) : Tensor(),
      {.training = false,
       .parameter_grads = true,
       .addend_grad = has_addend && !passes_through && context.needs(In::kAddend),
       .layout = options.layout,
       .activation = options.activation,
       .normalize_addend = two},
      context.input(In::kAlpha), addend, addend_norm);
  give(In::kWeight, own.dweight);
  give(In::kBias, own.dbias);
  give(In::kAlpha, own.dalpha);
  give(In::kAddendWeight, own.daddend_weight);
  give(In::kAddendBias, own.daddend_bias);
  if (has_addend) give(In::kAddend, passes_through ? context.grad() : own.daddend);
  if (!context.needs(In::kX) && !(two && context.needs(In::kAddend))) return grads;
  std::vector<Tensor> vectors = {own.dbias, own.dweight};
  if (two) vectors.push_back(own.daddend_weight);
  const std::vector<Tensor> sums = summed(vectors, options.communicator);
  const Tensor share = context.input(In::kShare);
  if (context.needs(In::kX)) {
    grads[In::kX] =
        with_statistics(context.input(In::kX), norm, share, own.dx, sums[0], sums[1], options.layout);
  }
  if (two && context.needs(In::kAddend)) {
    grads[In::kAddend] =
        with_statistics(addend, addend_norm, share, own.daddend, sums[0], sums[2], options.layout);
  }
  return grads;
}

}  // namespace sinter::ops
