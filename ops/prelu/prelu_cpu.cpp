#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {
namespace {

ChannelLoop loop_over(const Shape& x, const Shape& alpha, Layout layout) {
  if (alpha.numel() == 1) return ChannelLoop({.outer = x.numel(), .channels = 1, .inner = 1});
  const bool last = x.rank() <= 2 || layout == Layout::kNHWC;
  return ChannelLoop(channel_view(x, last ? x.rank() - 1 : 1));
}

template <class S, class C = compute_type<S>>
std::array<const C*, 1> expand_alpha(const ChannelLoop& loop, const S* alpha, C* lanes) {
  return loop.expand<C, 1>(lanes, [=](int64_t c) { return std::array<C, 1>{static_cast<C>(alpha[c])}; });
}

template <class T, class S>
void forward(const KernelContext& context, const ChannelLoop& loop) {
  using C = compute_type<T>;
  const T* x = context.input(0).as<const T>();
  T* y = context.output(0).as<T>();
  loop.for_each(expand_alpha(loop, context.input(1).as<const S>(), context.workspace<C>()),
                [=](int64_t i, const std::array<C, 1>& alpha) {
                  y[i] = static_cast<T>(prelu_value(static_cast<C>(x[i]), alpha[0]));
                });
}

template <class T, class S>
void backward_x(const KernelContext& context, const ChannelLoop& loop) {
  using C = compute_type<T>;
  const T* x = context.input(0).as<const T>();
  const T* dy = context.input(2).as<const T>();
  T* dx = context.output(0).as<T>();
  loop.for_each(expand_alpha(loop, context.input(1).as<const S>(), context.workspace<C>()),
                [=](int64_t i, const std::array<C, 1>& alpha) {
                  dx[i] = static_cast<T>(prelu_slope(static_cast<C>(x[i]), alpha[0], static_cast<C>(dy[i])));
                });
}

size_t prelu_workspace(const KernelQuery& query) {
  const ChannelLoop loop =
      loop_over(query.input(0).shape, query.input(1).shape, query.attributes<PReluAttributes>().layout);
  return static_cast<size_t>(loop.width()) * size_of(accumulate_dtype(query.input(0).dtype));
}

void run_prelu(const KernelContext& context) {
  const ChannelLoop loop =
      loop_over(context.input(0).shape, context.input(1).shape, context.attributes<PReluAttributes>().layout);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu",
                 [&]<class T, class S> { forward<T, S>(context, loop); });
}

void run_prelu_grad_x(const KernelContext& context) {
  const ChannelLoop loop =
      loop_over(context.input(0).shape, context.input(1).shape, context.attributes<PReluAttributes>().layout);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu_grad_x",
                 [&]<class T, class S> { backward_x<T, S>(context, loop); });
}

/// Workspace: the sums per channel and their table (double), then scratch of the sums and the slopes (C).
template <class T, class S>
void backward(const KernelContext& context, const ChannelLoop& loop) {
  using C = compute_type<T>;
  const int64_t channels = loop.view().channels;
  const T* x = context.input(0).as<const T>();
  const T* dy = context.input(2).as<const T>();
  T* dx = context.output(0).as<T>();
  double* sums = context.workspace<double>();
  double* table = sums + channels;
  C* scratch = reinterpret_cast<C*>(table + loop.entries() * loop.width());
  const auto alphas =
      expand_alpha(loop, context.input(1).as<const S>(), scratch + loop.entries() * loop.width());
  loop.sum<1>(alphas, table, scratch, [=](int64_t i, const std::array<C, 1>& alpha) {
    const C value = static_cast<C>(x[i]), slope = static_cast<C>(dy[i]);
    dx[i] = static_cast<T>(prelu_slope(value, alpha[0], slope));
    return std::array<C, 1>{prelu_alpha_slope(value, slope)};
  });
  loop.fold(table, loop.width(), sums);
  for (int64_t c = 0; c < channels; ++c) context.output(1).as<S>()[c] = static_cast<S>(sums[c]);
}

size_t prelu_grad_workspace(const KernelQuery& query) {
  const ChannelLoop loop =
      loop_over(query.input(0).shape, query.input(1).shape, query.attributes<PReluAttributes>().layout);
  const size_t element = size_of(accumulate_dtype(query.input(0).dtype));
  return static_cast<size_t>(loop.view().channels) * sizeof(double) + loop.sum_bytes(1, element) +
         static_cast<size_t>(loop.width()) * element;
}

void run_prelu_grad(const KernelContext& context) {
  const ChannelLoop loop =
      loop_over(context.input(0).shape, context.input(1).shape, context.attributes<PReluAttributes>().layout);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu_grad",
                 [&]<class T, class S> { backward<T, S>(context, loop); });
}

}  // namespace

void register_prelu_cpu(OpRegistry& registry);
void register_prelu_cpu(OpRegistry& registry) {
  registry.add_kernel("prelu",
                      {.device = DeviceType::kCpu, .workspace_bytes = prelu_workspace, .run = run_prelu});
  registry.add_kernel(
      "prelu_grad_x",
      {.device = DeviceType::kCpu, .workspace_bytes = prelu_workspace, .run = run_prelu_grad_x});
  registry.add_kernel(
      "prelu_grad",
      {.device = DeviceType::kCpu, .workspace_bytes = prelu_grad_workspace, .run = run_prelu_grad});
}

}  // namespace sinter::ops
