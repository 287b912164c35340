#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/relu/relu_math.h>

namespace sinter::ops {
namespace {

void run_relu(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu",
                 [&]<class T> { map_elements<T, T>(context.input(0), context.output(0), Relu{}); });
}

void run_relu_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu_grad", [&]<class T> {
    map_elements<T, T>(context.input(0), context.input(1), context.output(0), ReluGrad{});
  });
}

}  // namespace

void register_relu_cpu(OpRegistry& registry);
void register_relu_cpu(OpRegistry& registry) {
  registry.add_kernel("relu", {.device = DeviceType::kCpu, .run = run_relu});
  registry.add_kernel("relu_grad", {.device = DeviceType::kCpu, .run = run_relu_grad});
}

}  // namespace sinter::ops
