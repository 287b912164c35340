#include <sinter/ops/common/elementwise_cuda.h>
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
    const auto run = [&](auto function) {
      launch_elementwise(context.stream(), y.numel(), function, y.as<T>(), x.as<const T>());
    };
    if (functor.exponent == C{2}) {
      run(PowTwo());
    } else if (functor.exponent == C{-1}) {
      run(PowMinusOne());
    } else {
      run(functor);
    }
  });
}

void run_pow_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  dispatch_float(x.dtype, "pow_grad", [&]<class T> {
    using C = compute_type<T>;
    const auto functor = functor_of<C>(context);
    const auto run = [&](auto function) {
      launch_elementwise(context.stream(), dx.numel(), function, dx.as<T>(), x.as<const T>(),
                         dy.as<const T>());
    };
    if (functor.exponent == C{2}) {
      run(PowTwoGrad());
    } else {
      run(PowGrad<C>{functor});
    }
  });
}

}  // namespace

void register_pow_cuda(OpRegistry& registry);
void register_pow_cuda(OpRegistry& registry) {
  registry.add_kernel("pow", {.device = DeviceType::kCuda, .run = run_pow});
  registry.add_kernel("pow_grad", {.device = DeviceType::kCuda, .run = run_pow_grad});
}

}  // namespace sinter::ops
