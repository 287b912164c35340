#include <sinter/ops/common/elementwise_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/relu/relu_math.h>

namespace sinter::ops {
namespace {

void run_relu(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu", [&]<class T> {
    launch_elementwise(context.stream(), context.output(0).numel(), Relu{}, context.output(0).as<T>(),
                       context.input(0).as<const T>());
  });
}

void run_relu_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu_grad", [&]<class T> {
    launch_elementwise(context.stream(), context.output(0).numel(), ReluGrad{}, context.output(0).as<T>(),
                       context.input(0).as<const T>(), context.input(1).as<const T>());
  });
}

}  // namespace

void register_relu_cuda(OpRegistry& registry);
void register_relu_cuda(OpRegistry& registry) {
  registry.add_kernel("relu", {.device = DeviceType::kCuda, .run = run_relu});
  registry.add_kernel("relu_grad", {.device = DeviceType::kCuda, .run = run_relu_grad});
}

}  // namespace sinter::ops
