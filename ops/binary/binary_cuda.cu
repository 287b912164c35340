#include <limits>
#include <type_traits>

#include <sinter/ops/binary/binary_math.h>
#include <sinter/ops/common/coarse_math.h>
#include <sinter/ops/common/cuda/broadcast_cuda.h>
#include <sinter/ops/common/element_bits.h>
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

/// What one of OrderFunctors says of numbers of each order; `other`: one of them is NaN. One kernel serves
/// all.
struct OrderTable {
  bool less, equal, greater, other;

  template <class F>
  static OrderTable of(F function) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    return {function(0, 1), function(1, 1), function(1, 0), function(nan, nan)};
  }
  template <class C>
  __device__ bool operator()(C a, C b) const {
    return a < b ? less : a == b ? equal : a > b ? greater : other;
  }
};

/// The same of LogicFunctors.
struct LogicTable {
  bool neither, first, second, both;

  template <class F>
  static LogicTable of(F function) {
    return {function(0, 0), function(1, 0), function(0, 1), function(1, 1)};
  }
  template <class C>
  __device__ bool operator()(C a, C b) const {
    const bool without = a != C{0} ? first : neither, with = a != C{0} ? both : second;
    return b != C{0} ? with : without;
  }
};

template <class T, class F>
using FunctionFor = std::conditional_t<std::is_same_v<F, Div> && sizeof(T) == 2, CoarseDiv, F>;

template <class In, class Out, class F>
void broadcast_elements(const KernelContext& context, F function = {}) {
  const TensorView &a = context.input(0), &b = context.input(1), &out = context.output(0);
  launch_broadcast(context.stream(), out.shape, {a.shape, b.shape}, function, out.as<Out>(), a.as<const In>(),
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

template <class F, class Table>
void run_compare(const KernelContext& context) {
  dispatch_number(number_dtype(context.input(0).dtype), F::kName,
                  [&]<class T> { broadcast_elements<T, bool>(context, Table::of(F())); });
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
  for_each_functor<OrderFunctors>([&]<class F>(F) { add(F::kName, run_compare<F, OrderTable>); });
  for_each_functor<LogicFunctors>([&]<class F>(F) { add(F::kName, run_compare<F, LogicTable>); });
  for_each_functor<GradientFunctors>(
      [&]<class F>(F) { add(std::string(F::kName) + "_grad", run_gradient<F>); });
}

}  // namespace sinter::ops
