#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

template <class F>
struct Derivative {
  template <class C>
  __device__ C operator()(C saved, C dy) const {
    return F::derivative(saved, dy);
  }
};

template <class F>
void run_unary(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const auto run = [&]<class T> {
    launch_elementwise(context.stream(), y.numel(), F(), y.as<T>(), x.as<const T>());
  };
  if constexpr (F::kIntegers) {
    dispatch_number(x.dtype, F::kName, run);
  } else {
    dispatch_float(x.dtype, F::kName, run);
  }
}

template <class F>
void run_unary_grad(const KernelContext& context) {
  const TensorView &saved = context.input(0), &dy = context.input(1), &dx = context.output(0);
  dispatch_float(saved.dtype, F::kName, [&]<class T> {
    launch_elementwise(context.stream(), dx.numel(), Derivative<F>(), dx.as<T>(), saved.as<const T>(),
                       dy.as<const T>());
  });
}

}  // namespace

void register_unary_cuda(OpRegistry& registry);
void register_unary_cuda(OpRegistry& registry) {
  for_each_unary([&]<class F>(F) {
    registry.add_kernel(F::kName, {.device = DeviceType::kCuda, .run = run_unary<F>});
    if constexpr (F::kReads != UnaryReads::kNothing) {
      registry.add_kernel(std::string(F::kName) + "_grad",
                          {.device = DeviceType::kCuda, .run = run_unary_grad<F>});
    }
  });
}

}  // namespace sinter::ops
