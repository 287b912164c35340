#include <sinter/ops/common/elementwise_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pow/pow_math.h>

namespace sinter::ops {
namespace {

void run_pow(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_float(x.dtype, "pow", [&]<class T> {
    with_pow<compute_type<T>>(context.attributes<PowAttributes>().exponent, [&](auto function) {
      launch_elementwise(context.stream(), y.numel(), function, y.as<T>(), x.as<const T>());
    });
  });
}

void run_pow_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  dispatch_float(x.dtype, "pow_grad", [&]<class T> {
    with_pow_grad<compute_type<T>>(context.attributes<PowAttributes>().exponent, [&](auto function) {
      launch_elementwise(context.stream(), dx.numel(), function, dx.as<T>(), x.as<const T>(),
                         dy.as<const T>());
    });
  });
}

}  // namespace

void register_pow_cuda(OpRegistry& registry);
void register_pow_cuda(OpRegistry& registry) {
  registry.add_kernel("pow", {.device = DeviceType::kCuda, .run = run_pow});
  registry.add_kernel("pow_grad", {.device = DeviceType::kCuda, .run = run_pow_grad});
}

}  // namespace sinter::ops
