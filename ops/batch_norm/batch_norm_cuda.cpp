#include <sinter/ops/batch_norm/norm_cuda.h>

namespace sinter::ops {
namespace {

template <class Options>
NormProblem problem_of(const KernelQuery& query, const Options& options) {
  const TensorSpec& x = query.input(0);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .training = options.training};
}

template <class Options>
NormProblem fused_problem_of(const KernelQuery& query, const Options& options) {
  NormProblem problem = problem_of(query, options);
  problem.two_tensors = options.normalize_addend;
  problem.has_alpha = options.activation == Activation::kPRelu;
  return problem;
}

template <class Options>
void run_forward(const KernelContext& context) {
  norm_forward(NormCall(context, context.attributes<Options>()), context.stream(), context.workspace());
}

template <class Options>
void run_backward(const KernelContext& context) {
  norm_backward(NormGradCall(context, context.attributes<Options>()), context.stream(), context.workspace());
}

size_t forward_bytes(const KernelQuery& query) {
  return norm_forward_bytes(problem_of(query, query.attributes<BatchNormOptions>()));
}
size_t fused_forward_bytes(const KernelQuery& query) {
  return norm_forward_bytes(fused_problem_of(query, query.attributes<BatchNormActOptions>()));
}
size_t backward_bytes(const KernelQuery& query) {
  return norm_backward_bytes(problem_of(query, query.attributes<BatchNormGradOptions>()));
}
size_t fused_backward_bytes(const KernelQuery& query) {
  return norm_backward_bytes(fused_problem_of(query, query.attributes<BatchNormActGradOptions>()));
}

}  // namespace

void register_cudnn_batch_norm(OpRegistry& registry);  // batch_norm_cudnn_cuda.cpp
void register_batch_norm_cuda(OpRegistry& registry);
void register_batch_norm_cuda(OpRegistry& registry) {
  const auto kernel = [](bool (*can_run)(const KernelQuery&), size_t (*bytes)(const KernelQuery&),
                         void (*run)(const KernelContext&)) {
    return Kernel{.device = DeviceType::kCuda, .can_run = can_run, .workspace_bytes = bytes, .run = run};
  };
  registry.add_kernel("batch_norm", kernel(nullptr, forward_bytes, run_forward<BatchNormOptions>));
  registry.add_kernel("batch_norm_grad", kernel(nullptr, backward_bytes, run_backward<BatchNormGradOptions>));
  registry.add_kernel("batch_norm_act", kernel(wants_own_kernel<BatchNormActOptions>, fused_forward_bytes,
                                               run_forward<BatchNormActOptions>));
  registry.add_kernel("batch_norm_act_grad",
                      kernel(wants_own_kernel<BatchNormActGradOptions>, fused_backward_bytes,
                             run_backward<BatchNormActGradOptions>));
  register_cudnn_batch_norm(registry);
}

}  // namespace sinter::ops
