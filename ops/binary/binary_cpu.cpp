#include <sinter/ops/binary/binary_math.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// z[i] = F()(x[i], y[i]) over one block, in compute type C and with results of type R; a repeated operand is
/// read once. An input that is not repeated may be the output's memory.
template <bool kStepX, bool kStepY, class C, class R, class F>
void compute_block(const void* x_block, const void* y_block, void* z_block, int64_t count) {
  const C* x = static_cast<const C*>(x_block);
  const C* y = static_cast<const C*>(y_block);
  R* z = static_cast<R*>(z_block);
  const F function;
  if constexpr (kStepX && kStepY) {
    SINTER_IVDEP
    for (int64_t i = 0; i < count; ++i) z[i] = function(x[i], y[i]);
  } else if constexpr (kStepX) {
    const C b = *y;
    SINTER_IVDEP
    for (int64_t i = 0; i < count; ++i) z[i] = function(x[i], b);
  } else {
    const C a = *x;
    SINTER_IVDEP
    for (int64_t i = 0; i < count; ++i) z[i] = function(a, y[i]);
  }
}

/// The loops of one functor in one compute type, without their types: the walk below is compiled once.
struct BinaryLoops {
  using Loop = void (*)(const void* x, const void* y, void* z, int64_t count);
  Loop both, repeat_y, repeat_x;
};

template <class C, class R, class F>
constexpr BinaryLoops binary_loops() {
  return {compute_block<true, true, C, R, F>, compute_block<true, false, C, R, F>,
          compute_block<false, true, C, R, F>};
}

const void* advance(const void* from, int64_t elements, const BlockFormat& format) {
  return static_cast<const std::byte*>(from) + elements * static_cast<int64_t>(format.bytes);
}

/// One run of the output, in blocks where values have to be converted.
void compute_run(const BlockFormat& in, const BlockFormat& out, bool step_x, bool step_y, const void* x,
                 const void* y, void* z, int64_t count, BinaryLoops::Loop loop) {
  if (!in.converts() && !out.converts()) return loop(x, y, z, count);
  alignas(64) float x_buffer[kBlock], y_buffer[kBlock], z_buffer[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    const void* a = in.load(advance(x, step_x ? i : 0, in), step_x ? n : 1, x_buffer);
    const void* b = in.load(advance(y, step_y ? i : 0, in), step_y ? n : 1, y_buffer);
    void* results = static_cast<std::byte*>(z) + i * static_cast<int64_t>(out.bytes);
    loop(a, b, out.converts() ? z_buffer : results, n);
    if (out.converts()) out.store(z_buffer, results, n);
  }
}

void broadcast_blocks(const KernelContext& context, const BlockFormat& in, const BlockFormat& out,
                      const BinaryLoops& loops) {
  const TensorView &a = context.input(0), &b = context.input(1), &z = context.output(0);
  if (z.numel() == 0) return;
  const auto plan = plan_broadcast<2>(z.shape, {a.shape, b.shape});
  const bool step_a = plan.steps(0), step_b = plan.steps(1) || !step_a;
  const BinaryLoops::Loop loop = !step_a ? loops.repeat_x : step_b ? loops.both : loops.repeat_y;
  const auto run = [&](int64_t begin, int64_t end) {
    for_each_run(plan, begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
      compute_run(in, out, step_a, step_b, advance(a.data, offsets[0], in), advance(b.data, offsets[1], in),
                  static_cast<std::byte*>(z.data) + first * static_cast<int64_t>(out.bytes), count, loop);
    });
  };
  if (z.numel() <= kElementwiseGrain) return run(0, z.numel());  // without the price of a function object
  parallel_for(z.numel(), kElementwiseGrain, run);
}

template <class In, class Out, class F>
void broadcast_elements(const KernelContext& context, F) {
  broadcast_blocks(context, block_format<In>(), block_format<Out>(),
                   binary_loops<compute_type<In>, compute_type<Out>, F>());
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
