// The ops of batch normalisation on a GPU: "resident" where that can run, else "streaming", of ops/norm/cuda;
// or cuDNN.
#include <memory>

#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm/batch_norm_call.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>

namespace sinter::ops {
namespace {

/// How a call's tensors are kept on chip.
struct ResidentNorm : Prepared {
  explicit ResidentNorm(const NormResidentPlan& of_call) : plan(of_call) {}
  size_t workspace_bytes() const override { return plan.table_bytes(); }

  NormResidentPlan plan;
};

/// `problem_of` and `call_of` describe the op's calls.
template <auto problem_of, auto call_of>
void add_kernels(OpRegistry& registry, const char* op, bool (*can_run)(const KernelQuery&) = nullptr) {
  registry.add_kernel(
      op,
      {.device = DeviceType::kCuda,
       .name = "streaming",
       .can_run = can_run,
       .workspace_bytes = [](const KernelQuery& query) { return norm_streaming_bytes(problem_of(query)); },
       .run =
           [](const KernelContext& context) {
             norm_streaming(call_of(context), context.stream(), context.workspace());
           }});
  registry.add_kernel(op, {.device = DeviceType::kCuda,
                           .name = "resident",
                           .can_run = can_run,
                           .prepare = [](const KernelQuery& query) -> std::shared_ptr<const Prepared> {
                             const NormResidentPlan plan = plan_resident(problem_of(query));
                             return plan.fits() ? std::make_shared<const ResidentNorm>(plan) : nullptr;
                           },
                           .run =
                               [](const KernelContext& context) {
                                 norm_resident(call_of(context), context.prepared<ResidentNorm>().plan,
                                               context.stream(), context.workspace());
                               }});
}

}  // namespace

void register_cudnn_batch_norm(OpRegistry& registry);  // cudnn_norm_cuda.cpp
void register_batch_norm_cuda(OpRegistry& registry);
void register_batch_norm_cuda(OpRegistry& registry) {
  add_kernels<batch_norm_problem<BatchNormOptions>, batch_norm_call<BatchNormOptions>>(registry,
                                                                                       "batch_norm");
  add_kernels<batch_norm_grad_problem, batch_norm_grad_call>(registry, "batch_norm_grad");
  add_kernels<batch_norm_problem<BatchNormActOptions>, batch_norm_call<BatchNormActOptions>>(
      registry, "batch_norm_act", wants_own_kernel<BatchNormActOptions>);
  add_kernels<batch_norm_act_grad_problem, batch_norm_act_grad_call>(
      registry, "batch_norm_act_grad", wants_own_kernel<BatchNormActGradOptions>);
  register_cudnn_batch_norm(registry);
}

}  // namespace sinter::ops
