// How batch_norm takes in what follows it: as one call of batch_norm_act.
#include <algorithm>
#include <initializer_list>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_fusion.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {
namespace {

/// Why two calls cannot share one call's options; empty if they can.
std::string difference(const BatchNormOptions& a, const BatchNormOptions& b) {
  if (a.training != b.training) return "one normalises by its running statistics, the other does not";
  if (a.epsilon != b.epsilon) return fmt::format("epsilon is {} here and {} there", a.epsilon, b.epsilon);
  // Running statistics stay as they are in inference, whatever the momentum.
  if (a.training && a.momentum != b.momentum)
    return fmt::format("momentum is {} here and {} there", a.momentum, b.momentum);
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

NormParameters parameters_of(const FoundCall& norm) {
  return {.weight = norm.inputs[1],
          .bias = norm.inputs[2],
          .running_mean = norm.inputs[3],
          .running_var = norm.inputs[4],
          .sums = {}};
}

}  // namespace

FusedNorm fuse_batch_norm(const NormChain& chain) {
  const auto& norm = chain.norm.attributes.as<BatchNormOptions>();
  const Tensor& x = chain.norm.inputs[0];
  BatchNormActOptions options{.epsilon = norm.epsilon,
                              .momentum = norm.momentum,
                              .training = norm.training,
                              .layout = norm.layout,
                              .activation = Activation::kNone};
  NormParameters addend_norm;
  Tensor addend = chain.addend, alpha;
  if (chain.addend_norm) {
    const FoundCall& other = *chain.addend_norm;
    if (other.op != chain.norm.op) return {.reason = fmt::format("it is a {}", other.op->name)};
    std::string reason = difference(norm, other.attributes.as<BatchNormOptions>());
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.normalize_addend = true;
    addend = other.inputs[0];
    addend_norm = parameters_of(other);
  }
  if (chain.activation && chain.activation->op->traits.role == Role::kPRelu) {
    std::string reason = misfit(*chain.activation, x, norm.layout);
    if (!reason.empty()) return {.reason = std::move(reason)};
    options.activation = Activation::kPRelu;
    alpha = cast(chain.activation->inputs[1], accumulate_dtype(x.dtype()));
  } else if (chain.activation) {
    options.activation = Activation::kRelu;
  }
  return {.y = batch_norm_act(x, parameters_of(chain.norm), options, alpha, addend, addend_norm)};
}

}  // namespace sinter::ops
