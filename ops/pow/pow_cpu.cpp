#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pow/pow_math.h>

namespace sinter::ops {
namespace {

template <class C>
PowFunctor<C> functor_of(const KernelContext& context) {
  return {static_cast<C>(context.attributes<PowAttributes>().exponent)};
}

void run_pow(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_float(x.dtype, "pow", [&]<class T> {
    using C = compute_type<T>;
    const auto functor = functor_of<C>(context);
    // std::pow cannot be vectorised; the exponents that people write most often can.
    if (functor.exponent == C{2}) {
      map_elements<T, T>(x, y, PowTwo());
    } else if (functor.exponent == C{-1}) {
      map_elements<T, T>(x, y, PowMinusOne());
    } else {
      map_elements<T, T>(x, y, functor);
    }
  });
}

void run_pow_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  dispatch_float(x.dtype, "pow_grad", [&]<class T> {
    using C = compute_type<T>;
    const auto functor = functor_of<C>(context);
    if (functor.exponent == C{2}) {
      map_elements<T, T>(x, dy, dx, PowTwoGrad());
    } else {
      map_elements<T, T>(x, dy, dx, PowGrad<C>{functor});
    }
  });
}

}  // namespace

void register_pow_cpu(OpRegistry& registry);
void register_pow_cpu(OpRegistry& registry) {
  registry.add_kernel("pow", {.device = DeviceType::kCpu, .run = run_pow});
  registry.add_kernel("pow_grad", {.device = DeviceType::kCpu, .run = run_pow_grad});
}

}  // namespace sinter::ops
