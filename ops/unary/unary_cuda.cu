#include <sinter/ops/common/cuda/elementwise_op_cuda.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

/// A kernel for some calls of an op, before its general one.
void add_special_kernel(OpRegistry& registry, const char* op, const char* name,
                        bool (*can_run)(const KernelQuery&), void (*run)(const KernelContext&)) {
  registry.add_kernel(op, {.device = DeviceType::kCuda, .name = name, .can_run = can_run, .run = run});
}

}  // namespace

void register_unary_cuda(OpRegistry& registry);
void register_unary_cuda(OpRegistry& registry) {
  add_elementwise_cuda_kernels(registry, UnaryOps());
  add_special_kernel(registry, "pow", "square", is_pow<2>, run_elementwise_cuda<Square>);
  add_special_kernel(registry, "pow", "reciprocal", is_pow<-1>, run_elementwise_cuda<Reciprocal>);
  add_special_kernel(registry, "pow_grad", "square", is_pow<2>, run_elementwise_grad_cuda<Square>);
}

}  // namespace sinter::ops
