// How an op of batch normalisation gets its GPU kernels: "grouped" where that can run, then "resident", else
// "streaming".
#pragma once

#include <memory>

#include <sinter/core/op/registry.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>

namespace sinter::ops {

/// How a call's tensors are kept on chip.
class ResidentNorm : public Prepared {
 public:
  explicit ResidentNorm(const NormResidentPlan& plan) : plan_(plan) {}

  const NormResidentPlan& plan() const { return plan_; }
  size_t workspace_bytes() const override { return plan_.table_bytes(); }

 private:
  NormResidentPlan plan_;
};

/// How a call's channels are given to blocks.
class GroupedNorm : public Prepared {
 public:
  explicit GroupedNorm(const NormGroupPlan& plan) : plan_(plan) {}

  const NormGroupPlan& plan() const { return plan_; }

 private:
  NormGroupPlan plan_;
};

inline bool any_call(const KernelQuery&) {
  return true;
}

/// `problem_of` and `call_of` describe the op's calls: NormProblem and NormCall, or those of the gradient.
/// Calls for which `wants` is false are left to other kernels.
template <auto problem_of, auto call_of, auto wants = any_call>
void add_norm_kernels(OpRegistry& registry, const char* op) {
  registry.add_kernel(
      op,
      {.device = DeviceType::kCuda,
       .name = "streaming",
       .can_run = wants,
       .workspace_bytes = [](const KernelQuery& query) { return norm_streaming_bytes(problem_of(query)); },
       .run =
           [](const KernelContext& context) {
             norm_streaming(call_of(context), context.stream(), context.workspace());
           }});
  registry.add_kernel(op, {.device = DeviceType::kCuda,
                           .name = "resident",
                           .can_run = wants,
                           .prepare = [](const KernelQuery& query) -> std::shared_ptr<const Prepared> {
                             const NormResidentPlan plan = plan_resident(problem_of(query));
                             return plan.fits() ? std::make_shared<const ResidentNorm>(plan) : nullptr;
                           },
                           .run =
                               [](const KernelContext& context) {
                                 norm_resident(call_of(context), context.prepared<ResidentNorm>().plan(),
                                               context.stream(), context.workspace());
                               }});
  registry.add_kernel(op, {.device = DeviceType::kCuda,
                           .name = "grouped",
                           .can_run = wants,
                           .prepare = [](const KernelQuery& query) -> std::shared_ptr<const Prepared> {
                             const NormGroupPlan plan = plan_grouped(problem_of(query));
                             return plan.fits() ? std::make_shared<const GroupedNorm>(plan) : nullptr;
                           },
                           .run =
                               [](const KernelContext& context) {
                                 norm_grouped(call_of(context), context.prepared<GroupedNorm>().plan(),
                                              context.stream());
                               }});
}

}  // namespace sinter::ops
