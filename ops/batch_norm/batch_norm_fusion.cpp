// The rule by which jobs fuse a normalisation with what follows it.
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/cast/cast.h>

namespace sinter::ops {
namespace {

using In = NormActInput;

Tensor input(const FoundCall& norm, size_t i) {
  return i < norm.inputs.size() ? norm.inputs[i] : Tensor();
}

NormTensors parameters_of(const FoundCall& norm) {
  return {.weight = input(norm, In::kWeight),
          .bias = input(norm, In::kBias),
          .running_mean = input(norm, In::kRunningMean),
          .running_var = input(norm, In::kRunningVar),
          .sums = input(norm, In::kSums),
          .mean = input(norm, In::kMean),
          .inv_std = input(norm, In::kInvStd),
          .share = input(norm, In::kShare)};
}

/// The options of a call of batch_norm, or of batch_norm_act.
BatchNormActOptions options_of(const FoundCall& norm) {
  if (norm.attributes.find<fused::Activation>("activation") != nullptr)
    return norm.attributes.as<BatchNormActOptions>();
  return act_options(norm.attributes.as<BatchNormOptions>());
}

bool has_taken_in(const FoundCall& norm) {
  return options_of(norm).activation != fused::Activation::kNone || input(norm, In::kAddend).defined();
}

/// Why the addend's normalisation cannot share the other's call; empty if it can.
std::string difference(const FoundCall& norm, const FoundCall& other) {
  if (other.op != norm.op) return fmt::format("it is a {}", other.op->name);
  if (has_taken_in(other)) return "the addend's normalisation has an activation or an addend";
  const BatchNormActOptions a = options_of(norm), b = options_of(other);
  if (a.training != b.training || input(norm, In::kMean).defined() != input(other, In::kMean).defined())
    return "one normalises by its running statistics, the other does not";
  if (a.epsilon != b.epsilon) return fmt::format("epsilon is {} here and {} there", a.epsilon, b.epsilon);
  // Running statistics stay as they are in inference, whatever the momentum.
  if (a.training && a.momentum != b.momentum)
    return fmt::format("momentum is {} here and {} there", a.momentum, b.momentum);
  if (a.layout != b.layout) return "their layouts differ";
  if (a.ranks != b.ranks) return "their ranks differ";
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

FusedNorm fuse_batch_norm(const NormChain& chain) {
  if (has_taken_in(chain.norm)) return {.reason = "it has an activation or an addend"};
  BatchNormActOptions options = options_of(chain.norm);
  const Tensor& x = chain.norm.inputs[In::kX];
  NormTensors addend_norm;
  Tensor addend = chain.addend, alpha;
  if (chain.addend_norm) {
    std::string reason = difference(chain.norm, *chain.addend_norm);
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.normalize_addend = true;
    addend = chain.addend_norm->inputs[In::kX];
    addend_norm = parameters_of(*chain.addend_norm);
  }
  if (chain.activation && chain.activation->op->traits.role == Role::kPRelu) {
    std::string reason = misfit(*chain.activation, x, options.layout);
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.activation = fused::Activation::kPRelu;
    alpha = cast(chain.activation->inputs[1], accumulate_dtype(x.dtype()));
  } else if (chain.activation) {
    options.activation = fused::Activation::kRelu;
  }
  options.save_mask = true;  // batch_norm_act() does without where it can
  return {.y = fused::batch_norm_act(x, parameters_of(chain.norm), addend, addend_norm, alpha, options)};
}

}  // namespace sinter::ops
