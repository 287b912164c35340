// The CUDA kernels of elementwise ops, from their functors. For .cu files.
#pragma once

#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/elementwise_op.h>

namespace sinter::ops {

namespace detail {

template <class Functor>
struct ElementwiseDerivative {
  Functor functor;

  template <class... C>
  __device__ auto operator()(C... values) const {
    return functor.derivative(values...);
  }
};

}  // namespace detail

template <template <class> class F>
void run_elementwise_cuda(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_elementwise<F>(context, [&]<class T>(auto functor) {
    launch_elementwise(context.stream(), y.numel(), functor, y.as<T>(), x.as<const T>());
  });
}

template <template <class> class F>
void run_elementwise_grad_cuda(const KernelContext& context) {
  const TensorView& dx = context.output(0);
  dispatch_elementwise_grad<F>(context, [&]<class T>(auto functor) {
    const detail::ElementwiseDerivative<decltype(functor)> derivative{functor};
    const auto input = [&](size_t i) { return context.input(i).as<const T>(); };
    if constexpr (F<double>::kReads == DerivativeReads::kBoth) {
      launch_elementwise(context.stream(), dx.numel(), derivative, dx.as<T>(), input(0), input(1), input(2));
    } else {
      launch_elementwise(context.stream(), dx.numel(), derivative, dx.as<T>(), input(0), input(1));
    }
  });
}

/// Adds the kernels of the op F and of its gradient op.
template <template <class> class F>
void add_elementwise_cuda_kernels(OpRegistry& registry) {
  registry.add_kernel(F<double>::kName, {.device = DeviceType::kCuda, .run = run_elementwise_cuda<F>});
  if constexpr (detail::has_gradient_op<F>) {
    registry.add_kernel(detail::gradient_name<F>(),
                        {.device = DeviceType::kCuda, .run = run_elementwise_grad_cuda<F>});
  }
}

template <template <class> class... F>
void add_elementwise_cuda_kernels(OpRegistry& registry, ElementwiseOps<F...>) {
  (add_elementwise_cuda_kernels<F>(registry), ...);
}

}  // namespace sinter::ops
