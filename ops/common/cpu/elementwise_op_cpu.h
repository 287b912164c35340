// The CPU kernels of elementwise ops, from their functors.
#pragma once

#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/elementwise_op.h>

namespace sinter::ops {

template <template <class> class F>
void run_elementwise_cpu(const KernelContext& context) {
  dispatch_elementwise<F>(context, [&]<class T>(auto functor) {
    map_elements<T, T>(context.input(0), context.output(0), functor);
  });
}

template <template <class> class F>
void run_elementwise_grad_cpu(const KernelContext& context) {
  dispatch_elementwise_grad<F>(context, [&]<class T>(auto functor) {
    using C = compute_type<T>;
    if constexpr (F<C>::kReads == DerivativeReads::kBoth) {
      map_elements<T, T>(context.input(0), context.input(1), context.input(2), context.output(0),
                         [=](C x, C y, C dy) { return functor.derivative(x, y, dy); });
    } else {
      map_elements<T, T>(context.input(0), context.input(1), context.output(0),
                         [=](C saved, C dy) { return functor.derivative(saved, dy); });
    }
  });
}

/// Adds the kernels of the op F and of its gradient op.
template <template <class> class F>
void add_elementwise_cpu_kernels(OpRegistry& registry) {
  registry.add_kernel(F<double>::kName, {.device = DeviceType::kCpu, .run = run_elementwise_cpu<F>});
  if constexpr (detail::has_gradient_op<F>) {
    registry.add_kernel(detail::gradient_name<F>(),
                        {.device = DeviceType::kCpu, .run = run_elementwise_grad_cpu<F>});
  }
}

template <template <class> class... F>
void add_elementwise_cpu_kernels(OpRegistry& registry, ElementwiseOps<F...>) {
  (add_elementwise_cpu_kernels<F>(registry), ...);
}

}  // namespace sinter::ops
