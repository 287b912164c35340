#include <sinter/ops/binary/binary_math.h>
#include <sinter/ops/common/block_cpu.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// z[i] = function(x[i], y[i]) over one run; a repeated operand is read once.
template <bool kStepX, bool kStepY, class C, class R, class F>
void compute_block(const C* __restrict x, const C* __restrict y, R* __restrict z, int64_t count, F function) {
  if constexpr (kStepX && kStepY) {
    for (int64_t i = 0; i < count; ++i) z[i] = function(x[i], y[i]);
  } else if constexpr (kStepX) {
    const C b = *y;
    for (int64_t i = 0; i < count; ++i) z[i] = function(x[i], b);
  } else {
    const C a = *x;
    for (int64_t i = 0; i < count; ++i) z[i] = function(a, y[i]);
  }
}

template <bool kStepX, bool kStepY, class In, class Out, class F>
void compute_run(const In* x, const In* y, Out* z, int64_t count, F function) {
  if constexpr (std::is_same_v<In, compute_type<In>>) {
    compute_block<kStepX, kStepY>(x, y, z, count, function);
  } else {
    BlockBuffer<In> x_buffer, y_buffer;
    BlockBuffer<Out> z_buffer;
    for (int64_t i = 0; i < count; i += kBlock) {
      const int64_t n = std::min(kBlock, count - i);
      const auto* a = load_block(kStepX ? x + i : x, kStepX ? n : 1, x_buffer.values);
      const auto* b = load_block(kStepY ? y + i : y, kStepY ? n : 1, y_buffer.values);
      auto* results = result_block(z + i, z_buffer.values);
      compute_block<kStepX, kStepY>(a, b, results, n, function);
      finish_block(results, z + i, n);
    }
  }
}

template <class In, class Out, class F>
void broadcast_elements(const KernelContext& context, F function) {
  const TensorView &a = context.input(0), &b = context.input(1), &out = context.output(0);
  if (out.numel() == 0) return;
  const auto plan = plan_broadcast<2>(out.shape, {a.shape, b.shape});
  const auto walk = [&]<bool kStepA, bool kStepB> {
    parallel_for(out.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
      for_each_run(plan, begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
        compute_run<kStepA, kStepB>(a.as<const In>() + offsets[0], b.as<const In>() + offsets[1],
                                    out.as<Out>() + first, count, function);
      });
    });
  };
  if (!plan.steps(0)) {
    walk.template operator()<false, true>();
  } else if (!plan.steps(1)) {
    walk.template operator()<true, false>();
  } else {
    walk.template operator()<true, true>();
  }
}

template <class F>
void run_number(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, F::kName, [&]<class T> { broadcast_elements<T, T>(context, F()); });
}

template <class F>
void run_float(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, F::kName, [&]<class T> { broadcast_elements<T, T>(context, F()); });
}

template <class F>
void run_compare(const KernelContext& context) {
  dispatch_all(context.input(0).dtype, F::kName, [&]<class T> { broadcast_elements<T, bool>(context, F()); });
}

template <class F>
void run_extreme_grad(const KernelContext& context) {
  const TensorView &a = context.input(0), &b = context.input(1), &dy = context.input(2),
                   &da = context.output(0);
  if (da.numel() == 0) return;
  const auto plan = plan_broadcast<2>(da.shape, {a.shape, b.shape});
  const int64_t step_a = plan.steps(0) ? 1 : 0, step_b = plan.steps(1) ? 1 : 0;
  dispatch_float(a.dtype, F::kName, [&]<class T> {
    using C = compute_type<T>;
    parallel_for(da.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
      for_each_run(plan, begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
        const T* x = a.as<const T>() + offsets[0];
        const T* y = b.as<const T>() + offsets[1];
        for (int64_t i = 0; i < count; ++i) {
          da.as<T>()[first + i] =
              static_cast<T>(F::derivative(static_cast<C>(x[i * step_a]), static_cast<C>(y[i * step_b]),
                                           static_cast<C>(dy.as<const T>()[first + i])));
        }
      });
    });
  });
}

}  // namespace

void register_binary_cpu(OpRegistry& registry);
void register_binary_cpu(OpRegistry& registry) {
  const auto add = [&](const std::string& name, void (*run)(const KernelContext&)) {
    registry.add_kernel(name, {.device = DeviceType::kCpu, .run = run});
  };
  for_each_functor<NumberFunctors>([&]<class F>(F) { add(F::kName, run_number<F>); });
  for_each_functor<FloatFunctors>([&]<class F>(F) { add(F::kName, run_float<F>); });
  for_each_functor<CompareFunctors>([&]<class F>(F) { add(F::kName, run_compare<F>); });
  for_each_functor<ExtremeFunctors>(
      [&]<class F>(F) { add(std::string(F::kName) + "_grad", run_extreme_grad<F>); });
}

}  // namespace sinter::ops
