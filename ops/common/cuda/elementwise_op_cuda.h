// The CUDA kernels of elementwise ops, from their functors. For .cu files.
#pragma once

#include <cmath>
#include <type_traits>

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

/// Whether 16-bit elements of type T may lie beyond what F::coarse takes. Those of float16 end at 65504.
template <class T, class Functor>
constexpr bool leaves_coarse_range() {
  if constexpr (requires { Functor::kCoarseMost; }) {
    return !std::is_same_v<T, float16> || Functor::kCoarseMost < 65504.0f;
  } else {
    return false;
  }
}

template <class T, class Functor>
struct CoarseElementwise {
  Functor functor;

  __device__ float operator()(float x) const {
    if constexpr (leaves_coarse_range<T, Functor>()) {
      if (!(std::abs(x) <= Functor::kCoarseMost)) return functor(x);
    }
    return functor.coarse(x);
  }
};

template <class T, class Functor>
struct CoarseDerivative {
  Functor functor;

  template <class... C>
  __device__ float operator()(float first, C... others) const {
    if constexpr (leaves_coarse_range<T, Functor>()) {
      if (!(std::abs(first) <= Functor::kCoarseMost)) return functor.derivative(first, others...);
    }
    return functor.coarse_derivative(first, others...);
  }
};

/// Calls launch(coarse), or launch(exact) where the functor's attributes do not allow that.
template <class Functor, class Coarse, class Exact, class Launch>
void launch_either([[maybe_unused]] const Functor& functor, const Coarse& coarse,
                   [[maybe_unused]] const Exact& exact, Launch&& launch) {
  if constexpr (requires { functor.coarse_holds(); }) {
    if (!functor.coarse_holds()) return launch(exact);
  }
  launch(coarse);
}

/// Calls launch(function) with what computes `functor`, or its derivative, for elements of type T.
template <class T, class Functor, class Launch>
void with_forward(const Functor& functor, Launch&& launch) {
  if constexpr (sizeof(T) == 2 && requires { &Functor::coarse; }) {
    launch_either(functor, CoarseElementwise<T, Functor>{functor}, functor, launch);
  } else {
    launch(functor);
  }
}
template <class T, class Functor, class Launch>
void with_derivative(const Functor& functor, Launch&& launch) {
  const ElementwiseDerivative<Functor> exact{functor};
  if constexpr (sizeof(T) == 2 && requires { &Functor::coarse_derivative; }) {
    launch_either(functor, CoarseDerivative<T, Functor>{functor}, exact, launch);
  } else {
    launch(exact);
  }
}

}  // namespace detail

template <template <class> class F>
void run_elementwise_cuda(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_elementwise<F>(context, [&]<class T>(auto functor) {
    detail::with_forward<T>(functor, [&](auto function) {
      launch_elementwise(context.stream(), y.numel(), function, y.as<T>(), x.as<const T>());
    });
  });
}

template <template <class> class F>
void run_elementwise_grad_cuda(const KernelContext& context) {
  const TensorView& dx = context.output(0);
  dispatch_elementwise_grad<F>(context, [&]<class T>(auto functor) {
    detail::with_derivative<T>(functor, [&](auto derivative) {
      const auto input = [&](size_t i) { return context.input(i).as<const T>(); };
      if constexpr (F<double>::kReads == DerivativeReads::kBoth) {
        launch_elementwise(context.stream(), dx.numel(), derivative, dx.as<T>(), input(0), input(1),
                           input(2));
      } else {
        launch_elementwise(context.stream(), dx.numel(), derivative, dx.as<T>(), input(0), input(1));
      }
    });
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
