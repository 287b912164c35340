#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>

namespace sinter::ops {
namespace {

constexpr int64_t kChannelPack = 4;

CudnnNorm known_library;

bool is_aligned(const KernelQuery* call) {
  for (size_t i = 0; call != nullptr && i < call->input_count(); ++i) {
    if (call->has_input(i) && !call->is_aligned(i, 16)) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> cudnn_norm_constraint(const KernelQuery* forward, const KernelQuery* gradient) {
  using In = NormActInput;
  using GradIn = NormActGradInput;
  const KernelQuery& call = forward != nullptr ? *forward : *gradient;
  const auto is = [&](const char* name) { return *call.attributes().find<bool>(name); };
  const TensorSpec& x = call.input(0);
  const auto layout = *call.attributes().find<Layout>("layout");
  const auto activation = *call.attributes().find<fused::Activation>("activation");
  if (x.device.type != DeviceType::kCuda) return fmt::format("{} instead of a GPU", x.device);
  if (known_library.version == 0) return "a build without cuDNN";
  if (x.dtype != DType::kFloat16) return fmt::format("{} instead of float16", x.dtype);
  if (x.shape.rank() != 4) return fmt::format("rank {} instead of 4", x.shape.rank());
  if (layout != Layout::kNHWC) return fmt::format("{} instead of NHWC", to_string(layout));
  if (x.shape[3] % kChannelPack != 0) return fmt::format("{} channels, no multiple of 4", x.shape[3]);
  if (x.shape.numel() == 0) return "no elements";
  if (x.shape.numel() > INT32_MAX) return fmt::format("{} elements, more than 2^31 - 1", x.shape.numel());
  if (!is_aligned(forward) || !is_aligned(gradient))
    return "a tensor that does not begin at a multiple of 16 bytes";

  if (!is("training")) return "statistics that are constants";
  if (activation != fused::Activation::kRelu) return fmt::format("{} instead of relu", to_string(activation));
  if (is("normalize_addend")) return "two normalised branches";
  const auto has = [](const KernelQuery* query, size_t i) { return query == nullptr || query->has_input(i); };
  if (!has(forward, In::kWeight) || !has(forward, In::kBias) || !has(gradient, GradIn::kWeight) ||
      !has(gradient, GradIn::kBias))
    return "no weight or no bias";
  if (forward != nullptr && forward->has_input(In::kSums)) return "statistics that came with x";
  if (gradient == nullptr) return std::nullopt;
  if (gradient->has_input(GradIn::kDy2))
    return "an output with two users, whose gradients are to be added up";
  const auto& wanted = gradient->attributes<BatchNormActGradOptions>();  // cuDNN always gives all of them
  if (!wanted.parameter_grads ||
      (forward != nullptr && wanted.addend_grad != forward->has_input(In::kAddend)))
    return "gradients of parameters or addend that are not wanted";
  return std::nullopt;
}

const CudnnNorm& cudnn_norm() {
  return known_library;
}
void set_cudnn_norm(const CudnnNorm& library) {
  known_library = library;
}

}  // namespace sinter::ops
