// A plan that computes a convolution as a staged one: x and the filter go through copies in the workspace.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/cuda/cudnn/conv_staging.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>

namespace sinter::cuda {

class StagedConvPlan final : public ConvPlan {
 public:
  /// `plan` computes staged_problem(problem, staging).
  StagedConvPlan(const ConvProblem& problem, const ConvStaging& staging, std::unique_ptr<ConvPlan> plan);

  /// The part of the workspace that holds the copies.
  static size_t copies_bytes(const ConvProblem& problem, const ConvStaging& staging);
  /// What the plan is called whose own plan is called `name`.
  static std::string name_of(const ConvStaging& staging, const std::string& name);

  size_t workspace_bytes() const override;
  const std::string& name() const override { return name_; }
  void run(const Stream& stream, const ConvArrays& arrays, void* workspace) const override;

 private:
  ConvPass pass_;
  DType dtype_;
  PixelFold x_, weight_;
  std::unique_ptr<ConvPlan> plan_;
  std::string name_;
};

}  // namespace sinter::cuda
