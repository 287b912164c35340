#include <type_traits>

#include <sinter/ops/binary/binary_math.h>
#include <sinter/ops/common/coarse_math.h>
#include <sinter/ops/common/cuda/broadcast_cuda.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

template <class F>
struct Derivative {
  template <class C>
  __device__ C operator()(C a, C b, C dy) const {
    return F::derivative(a, b, dy);
  }
};

/// Division for results that are rounded to 16 bits.
struct CoarseDiv {
  __device__ float operator()(float a, float b) const { return math::coarse::divide(a, b); }
};

template <class T, class F>
using FunctionFor = std::conditional_t<std::is_same_v<F, Div> && sizeof(T) == 2, CoarseDiv, F>;

template <class In, class Out, class F>
void broadcast_elements(const KernelContext& context) {
  const TensorView &a = context.input(0), &b = context.input(1), &out = context.output(0);
  launch_broadcast(context.stream(), out.shape, {a.shape, b.shape}, F(), out.as<Out>(), a.as<const In>(),
                   b.as<const In>());
}

template <class F>
void run_number(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, F::kName, [&]<class T> { broadcast_elements<T, T, F>(context); });
}

template <class F>
void run_float(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, F::kName,
                 [&]<class T> { broadcast_elements<T, T, FunctionFor<T, F>>(context); });
}

template <class F>
void run_compare(const KernelContext& context) {
  dispatch_all(context.input(0).dtype, F::kName, [&]<class T> { broadcast_elements<T, bool, F>(context); });
}

template <class F>
void run_gradient(const KernelContext& context) {
  const TensorView &a = context.input(0), &b = context.input(1), &dy = context.input(2),
                   &da = context.output(0);
  dispatch_float(a.dtype, F::kName, [&]<class T> {
    launch_broadcast(context.stream(), da.shape, {a.shape, b.shape, dy.shape}, Derivative<F>(), da.as<T>(),
                     a.as<const T>(), b.as<const T>(), dy.as<const T>());
  });
}

}  // namespace

void register_binary_cuda(OpRegistry& registry);
void register_binary_cuda(OpRegistry& registry) {
  const auto add = [&](const std::string& name, void (*run)(const KernelContext&)) {
    registry.add_kernel(name, {.device = DeviceType::kCuda, .run = run});
  };
  for_each_functor<NumberFunctors>([&]<class F>(F) { add(F::kName, run_number<F>); });
  for_each_functor<FloatFunctors>([&]<class F>(F) { add(F::kName, run_float<F>); });
  for_each_functor<CompareFunctors>([&]<class F>(F) { add(F::kName, run_compare<F>); });
  for_each_functor<GradientFunctors>(
      [&]<class F>(F) { add(std::string(F::kName) + "_grad", run_gradient<F>); });
}

}  // namespace sinter::ops
