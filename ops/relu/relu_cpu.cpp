#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void run_relu(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu", [&]<class T> {
    using C = compute_type<T>;
    map_elements<T, T>(context.input(0), context.output(0),
                       [](C x) { return x > C{0} || x != x ? x : C{0}; });
  });
}

void run_relu_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "relu_grad", [&]<class T> {
    using C = compute_type<T>;
    map_elements<T, T>(context.input(0), context.input(1), context.output(0),
                       [](C y, C dy) { return y > C{0} ? dy : C{0}; });
  });
}

}  // namespace

void register_relu_cpu(OpRegistry& registry);
void register_relu_cpu(OpRegistry& registry) {
  registry.add_kernel("relu", {.device = DeviceType::kCpu, .run = run_relu});
  registry.add_kernel("relu_grad", {.device = DeviceType::kCpu, .run = run_relu_grad});
}

}  // namespace sinter::ops
