#include <utility>

#include <sinter/core/cuda/cudnn/fold_pixels.h>
#include <sinter/core/cuda/cudnn/staged_conv_plan.h>

namespace sinter::cuda {
namespace {

/// Bytes of a staged array, and of what keeps the next one aligned.
size_t room_of(const PixelFold& fold, DType dtype) {
  constexpr size_t kBlock = 256;
  const size_t bytes = static_cast<size_t>(fold.staged_count()) * size_of(dtype);
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

}  // namespace

StagedConvPlan::StagedConvPlan(const ConvProblem& problem, const ConvStaging& staging,
                               std::unique_ptr<ConvPlan> plan)
    : pass_(problem.pass),
      dtype_(problem.dtype),
      x_(fold_of_x(problem, staging)),
      weight_(fold_of_weight(problem, staging)),
      plan_(std::move(plan)),
      name_(name_of(staging, plan_->name())) {}

size_t StagedConvPlan::copies_bytes(const ConvProblem& problem, const ConvStaging& staging) {
  return room_of(fold_of_x(problem, staging), problem.dtype) +
         room_of(fold_of_weight(problem, staging), problem.dtype);
}

std::string StagedConvPlan::name_of(const ConvStaging& staging, const std::string& name) {
  return "staged " + to_string(staging) + ": " + name;
}

size_t StagedConvPlan::workspace_bytes() const {
  return room_of(x_, dtype_) + room_of(weight_, dtype_) + plan_->workspace_bytes();
}

void StagedConvPlan::run(const Stream& stream, const ConvArrays& arrays, void* workspace) const {
  auto* const staged_x = static_cast<std::byte*>(workspace);
  std::byte* const staged_weight = staged_x + room_of(x_, dtype_);
  std::byte* const rest = staged_weight + room_of(weight_, dtype_);
  if (pass_ != ConvPass::kGradInput) fold_pixels(stream, x_, dtype_, arrays.x, staged_x);
  if (pass_ != ConvPass::kGradWeight) fold_pixels(stream, weight_, dtype_, arrays.weight, staged_weight);
  ConvArrays staged = arrays;
  staged.x = staged_x;
  staged.weight = staged_weight;
  plan_->run(stream, staged, rest);
  if (pass_ == ConvPass::kGradInput) unfold_pixels(stream, x_, dtype_, staged_x, arrays.x);
  if (pass_ == ConvPass::kGradWeight) unfold_pixels(stream, weight_, dtype_, staged_weight, arrays.weight);
}

}  // namespace sinter::cuda
