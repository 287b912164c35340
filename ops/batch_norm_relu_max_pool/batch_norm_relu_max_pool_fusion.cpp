// Which pairs of batch_norm_act and max_pool2d become one call.
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_call.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_fusion.h>

namespace sinter::ops {
namespace {

/// What keeps a normalisation from being fused; empty: nothing.
std::string norm_constraint(const BatchNormActOptions& norm, const std::vector<Tensor>& inputs) {
  if (!norm.training) return "its statistics are constants";
  if (inputs[NormActInput::kAddend].defined()) return "it has an addend";
  if (norm.activation != Activation::kRelu)
    return fmt::format("its activation is {}, not relu", to_string(norm.activation));
  if (norm.backend != NormBackend::kSinter) return fmt::format("its backend is {}", to_string(norm.backend));
  return {};
}

/// What keeps a pooling from being fused; empty: nothing. An axis whose windows lie at most two deep has a
/// kernel of at most two strides.
std::string pool_constraint(const PoolOptions& pool, const PoolGeometry& geometry, Layout layout) {
  const auto& [height, width] = pool.kernel;
  if (pool.layout != layout) return "their layouts differ";
  if (geometry.is_dilated())
    return fmt::format("its windows are dilated by {} x {}", pool.dilation[0], pool.dilation[1]);
  if (height * width > kMostPlaces)
    return fmt::format("its windows have {} x {} elements, more than {}", height, width, kMostPlaces);
  if (geometry.y.kernel > 2 * geometry.y.stride || geometry.x.kernel > 2 * geometry.x.stride)
    return fmt::format("its {} x {} windows overlap more than twice at strides {} x {}", height, width,
                       geometry.y.stride, geometry.x.stride);
  if (geometry.y.extent >= kMostPooledExtent || geometry.x.extent >= kMostPooledExtent)
    return "its images are too large";
  return {};
}

}  // namespace

FusedNorm fuse_batch_norm_pooling(const FoundCall& norm, const FoundCall& pooling) {
  using In = NormActInput;
  const auto& of_norm = norm.attributes.as<BatchNormActOptions>();
  const auto& of_pool = pooling.attributes.as<PoolOptions>();
  const Tensor& x = norm.inputs[In::kX];
  std::string reason = norm_constraint(of_norm, norm.inputs);
  if (reason.empty())
    reason = pool_constraint(of_pool, pool_geometry(x.shape(), of_pool, "fuse_pairs"), of_norm.layout);
  if (!reason.empty()) return {.reason = std::move(reason)};
  const NormParameters parameters{.weight = norm.inputs[In::kWeight],
                                  .bias = norm.inputs[In::kBias],
                                  .running_mean = norm.inputs[In::kRunningMean],
                                  .running_var = norm.inputs[In::kRunningVar],
                                  .sums = norm.inputs[In::kSums]};
  return {.y = batch_norm_relu_max_pool(x, parameters,
                                        {.epsilon = of_norm.epsilon,
                                         .momentum = of_norm.momentum,
                                         .layout = of_norm.layout,
                                         .kernel = of_pool.kernel,
                                         .stride = of_pool.stride,
                                         .padding = of_pool.padding,
                                         .padding_after = of_pool.padding_after,
                                         .ceil_mode = of_pool.ceil_mode})};
}

}  // namespace sinter::ops
