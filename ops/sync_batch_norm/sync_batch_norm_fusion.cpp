// How sync_batch_norm takes in what follows it.
#include <algorithm>

#include <sinter/core/op/node.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_call.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_fusion.h>

namespace sinter::ops {
namespace {

using In = SyncNormInput;

bool has_taken_in(const FoundCall& norm) {
  return norm.attributes.as<SyncBatchNormAttributes>().activation != Activation::kNone ||
         (norm.inputs.size() > In::kAddend && norm.inputs[In::kAddend].defined());
}

/// Why the addend's norm cannot be part of the call; empty if it can.
std::string difference(const FoundCall& norm, const FoundCall& other) {
  if (other.op != norm.op) return fmt::format("it is a {}", other.op->name);
  if (has_taken_in(other)) return "the addend's normalisation has an activation or an addend";
  const auto& a = norm.attributes.as<SyncBatchNormAttributes>();
  const auto& b = other.attributes.as<SyncBatchNormAttributes>();
  if (a.communicator != b.communicator) return "their ranks differ";
  if (a.layout != b.layout) return "their layouts differ";
  return {};
}

/// Why PReLU's slopes do not go with the channels of the normalised tensor; empty if they do.
std::string misfit(const FoundCall& prelu, const Tensor& x, Layout layout) {
  const Tensor& alpha = prelu.inputs[1];
  const int64_t channels = x.shape()[norm_axis(x.shape(), layout)];
  if (alpha.rank() != 1 || (alpha.numel() != 1 && alpha.numel() != channels))
    return fmt::format("its slope has shape {} beside {} channels", alpha.shape(), channels);
  const Layout* const of_prelu = prelu.attributes.find<Layout>("layout");
  if (alpha.numel() != 1 && x.rank() == 4 && (of_prelu == nullptr || *of_prelu != layout))
    return "its channels are another axis";
  return {};
}

}  // namespace

FusedNorm fuse_sync_batch_norm(const NormChain& chain) {
  static const Op& op = builtin("sync_batch_norm");
  if (has_taken_in(chain.norm)) return {.reason = "it has an activation or an addend"};
  SyncBatchNormAttributes options = chain.norm.attributes.as<SyncBatchNormAttributes>();
  std::vector<Tensor> inputs = chain.norm.inputs;
  inputs.resize(In::kCount);
  inputs[In::kAddend] = chain.addend;
  if (chain.addend_norm) {
    std::string reason = difference(chain.norm, *chain.addend_norm);
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.normalize_addend = true;
    inputs[In::kAddend] = chain.addend_norm->inputs[In::kX];
    for (size_t i = 0; i < 4; ++i) inputs[In::kAddendWeight + i] = chain.addend_norm->inputs[In::kWeight + i];
  }
  if (chain.activation && chain.activation->op->traits.role == Role::kPRelu) {
    const Tensor& x = inputs[In::kX];
    std::string reason = misfit(*chain.activation, x, options.layout);
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.activation = Activation::kPRelu;
    inputs[In::kAlpha] = cast(chain.activation->inputs[1], accumulate_dtype(x.dtype()));
  } else if (chain.activation) {
    options.activation = Activation::kRelu;
  }
  options.save_mask =
      grad_enabled() && std::ranges::any_of(inputs, [](const Tensor& t) { return t.requires_grad(); });
  return {.y = call(op, inputs, options).front()};
}

}  // namespace sinter::ops
