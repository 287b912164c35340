#include <algorithm>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/batch_norm/norm_statistics_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

// ---- forward

/// Workspace: mean and inv_std (channels, double), then that of the moments, whose place the parameters of
/// the second pass take.
template <class T>
void normalize(const KernelContext& context) {
  using C = compute_type<T>;
  const TensorView& x = context.input(0);
  const NormCall call(context, context.attributes<BatchNormOptions>());
  const ChannelLoop loop(call.view());
  const int64_t channels = loop.view().channels;
  double* mean = context.workspace<double>();
  double* inv_std = mean + channels;
  norm_statistics<T>(call.options, call.main, loop, mean, inv_std, inv_std + channels);
  const auto parameters = loop.expand<C, 3>(reinterpret_cast<C*>(inv_std + channels), [&](int64_t c) {
    const Normalize<C> of_channel = make_normalize<C>(
        mean[c], inv_std[c], value_or<C>(context.input(1), c, 1.0), value_or<C>(context.input(2), c, 0.0));
    return std::array<C, 3>{of_channel.mean, of_channel.scale, of_channel.shift};
  });
  const T* in = x.as<const T>();
  T* out = context.output(0).as<T>();
  loop.for_each(parameters, [=](int64_t i, const std::array<C, 3>& p) {
    out[i] = static_cast<T>(Normalize<C>{p[0], p[1], p[2]}(static_cast<C>(in[i])));
  });
}

size_t batch_norm_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormOptions>();
  const ChannelLoop loop = norm_loop(query.input(0).shape, options.layout);
  const size_t element = size_of(accumulate_dtype(query.input(0).dtype));
  // The parameters of the second pass take the place of the moments of the first.
  return static_cast<size_t>(loop.view().channels) * 2 * sizeof(double) +
         std::max(moments_bytes(loop, element), 3 * static_cast<size_t>(loop.width()) * element);
}

void run_batch_norm(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "batch_norm", [&]<class T> { normalize<T>(context); });
}

// ---- gradient

/// The sums over dy and dy * (x - mean) per channel: sums[c] and sums[channels + c].
template <class T>
void gradient_sums(const KernelContext& context, const ChannelLoop& loop, double* sums) {
  using C = compute_type<T>;
  const int64_t channels = loop.view().channels, width = loop.width();
  double* table = sums + 2 * channels;
  C* means = reinterpret_cast<C*>(table + loop.entries() * 2 * width);
  const C* mean = context.input(3).as<const C>();
  const auto parameters = loop.expand<C, 1>(means, [=](int64_t c) { return std::array<C, 1>{mean[c]}; });
  const T* x = context.input(0).as<const T>();
  const T* dy = context.input(1).as<const T>();
  loop.sum<2>(parameters, table, means + width, [=](int64_t i, const std::array<C, 1>& p) {
    const C slope = static_cast<C>(dy[i]);
    return std::array<C, 2>{slope, slope * (static_cast<C>(x[i]) - p[0])};
  });
  loop.fold(table, 2 * width, sums);
  loop.fold(table + width, 2 * width, sums + channels);
}

/// Workspace: the sums, then the table that they come from, whose place the parameters of the second pass
/// take.
template <class T>
void normalize_grad(const KernelContext& context) {
  using C = compute_type<T>;
  const auto& options = context.attributes<BatchNormGradOptions>();
  const ChannelLoop loop = norm_loop(context.input(0).shape, options.layout);
  const int64_t channels = loop.view().channels;
  const double count = static_cast<double>(loop.view().per_channel());
  const C* mean = context.input(3).as<const C>();
  const C* inv_std = context.input(4).as<const C>();
  double* sums = context.workspace<double>();
  if (options.training || options.parameter_grads) gradient_sums<T>(context, loop, sums);
  if (options.parameter_grads) {
    for (int64_t c = 0; c < channels; ++c) {
      context.output(1).as<C>()[c] = static_cast<C>(sums[channels + c] * double{inv_std[c]});
      context.output(2).as<C>()[c] = static_cast<C>(sums[c]);
    }
  }
  const T* x = context.input(0).as<const T>();
  const T* dy = context.input(1).as<const T>();
  T* dx = context.output(0).as<T>();
  C* lanes = reinterpret_cast<C*>(sums + 2 * channels);
  if (!options.training) {
    const auto scales = loop.expand<C, 1>(lanes, [&](int64_t c) {
      return std::array<C, 1>{static_cast<C>(double{inv_std[c]} * value_or<C>(context.input(2), c, 1.0))};
    });
    loop.for_each(scales, [=](int64_t i, const std::array<C, 1>& p) {
      dx[i] = static_cast<T>(static_cast<C>(dy[i]) * p[0]);
    });
    return;
  }
  const auto parameters = loop.expand<C, 4>(lanes, [&](int64_t c) {
    const NormalizeGrad<C> of_channel =
        make_normalize_grad<C>(mean[c], double{inv_std[c]}, value_or<C>(context.input(2), c, 1.0),
                               1.0 / count, sums[c], sums[channels + c]);
    return std::array<C, 4>{of_channel.mean, of_channel.scale, of_channel.slope, of_channel.offset};
  });
  loop.for_each(parameters, [=](int64_t i, const std::array<C, 4>& p) {
    const NormalizeGrad<C> gradient{p[0], p[1], p[2], p[3]};
    dx[i] = static_cast<T>(gradient(static_cast<C>(x[i]), static_cast<C>(dy[i])));
  });
}

size_t batch_norm_grad_workspace(const KernelQuery& query) {
  const ChannelLoop loop = norm_loop(query.input(0).shape, query.attributes<BatchNormGradOptions>().layout);
  const size_t element = size_of(accumulate_dtype(query.input(0).dtype));
  const auto lanes = static_cast<size_t>(loop.width()) * element;
  return static_cast<size_t>(loop.view().channels) * 2 * sizeof(double) +
         std::max(loop.sum_bytes(2, element) + lanes, 4 * lanes);
}

void run_batch_norm_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "batch_norm_grad", [&]<class T> { normalize_grad<T>(context); });
}

}  // namespace

void register_batch_norm_cpu(OpRegistry& registry);
void register_batch_norm_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "batch_norm",
      {.device = DeviceType::kCpu, .workspace_bytes = batch_norm_workspace, .run = run_batch_norm});
  registry.add_kernel(
      "batch_norm_grad",
      {.device = DeviceType::kCpu, .workspace_bytes = batch_norm_grad_workspace, .run = run_batch_norm_grad});
  register_batch_norm_act_cpu(registry);
}

}  // namespace sinter::ops
