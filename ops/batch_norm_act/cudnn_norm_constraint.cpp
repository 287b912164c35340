#include <atomic>
#include <cstdint>

#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm_constraint.h>

namespace sinter::ops {
namespace {

constexpr int64_t kLeastVersion = 90000;
constexpr int64_t kChannelPack = 4;

std::atomic<int64_t> library_version = 0;

/// Before 9.0 the numbers were shorter: 8907 was 8.9.7.
std::string version_text(int64_t version) {
  if (version < kLeastVersion)
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Of the tensors.
std::optional<std::string> image_constraint(const CudnnNormCase& call) {
  const TensorSpec& x = call.x;
  if (x.dtype != DType::kFloat16) return fmt::format("{} instead of float16", x.dtype);
  if (x.shape.rank() != 4) return fmt::format("rank {} instead of 4", x.shape.rank());
  if (call.layout != Layout::kNHWC) return fmt::format("{} instead of NHWC", to_string(call.layout));
  if (x.shape[3] % kChannelPack != 0) return fmt::format("{} channels, no multiple of 4", x.shape[3]);
  if (x.shape.numel() == 0) return "no elements";
  if (x.shape.numel() > INT32_MAX) return fmt::format("{} elements, more than 2^31 - 1", x.shape.numel());
  if (!call.aligned) return "a tensor that does not begin at a multiple of 16 bytes";
  return std::nullopt;
}

/// Of what is fused.
std::optional<std::string> fusion_constraint(const CudnnNormCase& call) {
  if (!call.training) return "statistics that are constants";
  if (call.activation == Activation::kPRelu) return "prelu instead of relu or nothing";
  if (!call.has_weight_and_bias) return "no weight or no bias";
  if (call.has_sums) return "statistics that came with x";
  if (call.normalize_addend) return "two normalised branches";
  if (call.has_addend && call.activation != Activation::kRelu) return "an addend without relu";
  if (call.has_dy2) return "an output with two users, whose gradients are to be added up";
  if (!call.all_gradients) return "gradients of parameters or addend that are not wanted";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> cudnn_norm_constraint(const CudnnNormCase& call) {
  if (call.x.device.type != DeviceType::kCuda) return fmt::format("{} instead of a GPU", call.x.device);
  if (call.version == 0) return "a build without cuDNN";
  if (call.version < kLeastVersion)
    return fmt::format("cuDNN {}, older than {}", version_text(call.version), version_text(kLeastVersion));
  if (auto constraint = image_constraint(call)) return constraint;
  return fusion_constraint(call);
}

CudnnNormCase cudnn_norm_forward_case(const KernelQuery& query) {
  using In = NormActInput;
  const auto& options = query.attributes<BatchNormActOptions>();
  return {.x = query.input(In::kX),
          .layout = options.layout,
          .activation = options.activation,
          .training = options.training,
          .has_weight_and_bias = query.has_input(In::kWeight) && query.has_input(In::kBias),
          .has_sums = query.has_input(In::kSums),
          .has_addend = query.has_input(In::kAddend),
          .normalize_addend = options.normalize_addend,
          .aligned = batch_norm_act_problem(query).aligned,
          .version = cudnn_norm_version()};
}

CudnnNormCase cudnn_norm_backward_case(const KernelQuery& query) {
  using In = NormActGradInput;
  const auto& options = query.attributes<BatchNormActGradOptions>();
  return {.x = query.input(In::kX),
          .layout = options.layout,
          .activation = options.activation,
          .training = options.training,
          .has_weight_and_bias = query.has_input(In::kWeight) && query.has_input(In::kBias),
          .has_addend = options.addend_grad,
          .normalize_addend = options.normalize_addend,
          .has_dy2 = query.has_input(In::kDy2),
          .all_gradients = options.parameter_grads,
          .aligned = batch_norm_act_grad_problem(query).aligned &&
                     (!query.has_input(In::kMask) || query.is_aligned(In::kMask, 16)),
          .version = cudnn_norm_version()};
}

CudnnNormCase cudnn_norm_pair_case(const KernelQuery& forward, const KernelQuery& backward) {
  CudnnNormCase pair = cudnn_norm_forward_case(forward);
  const CudnnNormCase gradient = cudnn_norm_backward_case(backward);
  pair.has_dy2 = gradient.has_dy2;
  // cuDNN's gradient always gives all of them.
  pair.all_gradients = gradient.all_gradients && gradient.has_addend == pair.has_addend;
  pair.aligned = pair.aligned && gradient.aligned;
  return pair;
}

int64_t cudnn_norm_version() {
  return library_version.load(std::memory_order_relaxed);
}
void set_cudnn_norm_version(int64_t version) {
  library_version.store(version, std::memory_order_relaxed);
}

}  // namespace sinter::ops
