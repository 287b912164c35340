#include <cmath>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/common/channel_loops_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

ChannelLoop loop_over(const Shape& shape, Layout layout) {
  return ChannelLoop(channel_view(shape, shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1));
}

// ---- the statistics of a batch

/// By runs: mean and squared deviations of every part of every channel.
template <class T>
void run_moments(const ChannelLoop& loop, const T* x, double* means, double* squares, double* counts) {
  using C = compute_type<T>;
  loop.for_runs([&](int64_t part, int64_t channel) {
    Moments moments;
    loop.for_blocks(
        part, channel, [&](auto pieces) __attribute__((always_inline)) {
          int64_t count = 0;
          LaneSums<C, 1> first;
          pieces([&](int64_t begin, int64_t end) __attribute__((always_inline)) {
            count += end - begin;
            first.add(begin, end, [x](int64_t i) { return std::array<C, 1>{static_cast<C>(x[i])}; });
          });
          const C pilot = static_cast<C>(first.total(0) / static_cast<double>(count));
          LaneSums<C, 2> second;  // the block is still in the cache
          pieces([&](int64_t begin, int64_t end) __attribute__((always_inline)) {
            second.add(begin, end, [x, pilot](int64_t i) {
              const C deviation = static_cast<C>(x[i]) - pilot;
              return std::array<C, 2>{deviation, deviation * deviation};
            });
          });
          moments.merge(
              moments_about(double{pilot}, static_cast<double>(count), second.total(0), second.total(1)));
        });
    means[part * loop.width() + channel] = moments.mean;
    squares[part * loop.width() + channel] = moments.squares;
    counts[part] = moments.count;
  });
}

/// By rows: mean and squared deviations of every lane of every entry, rows merged block by block.
template <class T>
void row_moments(const ChannelLoop& loop, const T* x, double* means, double* squares, double* counts,
                 compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t width = loop.width(), step = loop.rows_per_block();
  loop.for_rows([&](int64_t entry, int64_t first, int64_t last, int64_t lanes) {
    double* mean = means + entry * width;
    double* square = squares + entry * width;
    C* pilot = scratch + entry * 3 * width;
    C* sums = pilot + width;
    std::fill_n(mean, width, 0.0);
    std::fill_n(square, width, 0.0);
    for (int64_t begin = first; begin < last; begin += step) {
      const int64_t end = std::min(begin + step, last);
      const double count = static_cast<double>(end - begin), before = static_cast<double>(begin - first);
      const C share = static_cast<C>(1.0 / count);
      std::fill_n(pilot, 3 * width, C{0});
      loop.add_rows<1>(begin, end, lanes, pilot,
                       [=](int64_t i, int64_t) { return std::array<C, 1>{static_cast<C>(x[i])}; });
      for (int64_t lane = 0; lane < lanes; ++lane) pilot[lane] *= share;
      loop.add_rows<2>(begin, end, lanes, sums, [=](int64_t i, int64_t lane) {
        const C deviation = static_cast<C>(x[i]) - pilot[lane];
        return std::array<C, 2>{deviation, deviation * deviation};
      });
      const double new_share = count / (before + count), product = before * new_share;
#pragma GCC ivdep
      for (int64_t lane = 0; lane < lanes; ++lane) {  // Moments::merge with the divisions taken out
        const double deviation = double{sums[lane]} / count;
        const double centred = double{sums[width + lane]} - deviation * double{sums[lane]};
        const double delta = double{pilot[lane]} + deviation - mean[lane];
        mean[lane] += delta * new_share;
        square[lane] += (centred < 0.0 ? 0.0 : centred) + delta * delta * product;
      }
    }
    counts[entry] = static_cast<double>(last - first);
  });
}

size_t moments_bytes(const ChannelLoop& loop, size_t element) {
  const auto table = static_cast<size_t>(loop.entries() * loop.width());
  return table * (2 * sizeof(double) + 3 * element) + static_cast<size_t>(loop.entries()) * sizeof(double);
}

/// mean and sum of squared deviations per channel.
template <class T>
void batch_moments(const ChannelLoop& loop, const T* x, double* mean, double* squares, void* workspace) {
  const int64_t width = loop.width(), entries = loop.entries(), channels = loop.view().channels;
  auto* entry_means = static_cast<double*>(workspace);
  double* entry_squares = entry_means + entries * width;
  double* counts = entry_squares + entries * width;
  if (loop.by_rows()) {
    row_moments(loop, x, entry_means, entry_squares, counts,
                reinterpret_cast<compute_type<T>*>(counts + entries));
  } else {
    run_moments(loop, x, entry_means, entry_squares, counts);
  }
  const double per_channel = static_cast<double>(loop.view().per_channel());
  std::fill_n(mean, channels, 0.0);
  std::fill_n(squares, channels, 0.0);
  for (int64_t entry = 0; entry < entries; ++entry) {
    const double* means = entry_means + entry * width;
    const double share = counts[entry] / per_channel;
    loop.for_lanes(entry, [=](int64_t c, int64_t lane) { mean[c] += share * means[lane]; });
  }
  for (int64_t entry = 0; entry < entries; ++entry) {
    const double* means = entry_means + entry * width;
    const double* within = entry_squares + entry * width;
    const double count = counts[entry];
    loop.for_lanes(entry, [=](int64_t c, int64_t lane) {
      const double delta = means[lane] - mean[c];
      squares[c] += within[lane] + count * delta * delta;
    });
  }
}

// ---- forward

/// The value of an optional parameter.
template <class C>
double value_or(const TensorView& parameter, int64_t channel, double otherwise) {
  return parameter.present ? double{parameter.as<const C>()[channel]} : otherwise;
}

template <class C>
void move_running(C& running, double value, double momentum) {
  running = static_cast<C>(moved_running(double{running}, value, momentum));
}

/// The mean and 1 / sqrt(variance + epsilon) to normalise with, per channel; moves the running statistics in
/// training.
template <class T>
void statistics(const KernelContext& context, const ChannelLoop& loop, double* mean, double* inv_std,
                void* workspace) {
  using C = compute_type<T>;
  const auto& options = context.attributes<BatchNormOptions>();
  const TensorView& running_mean = context.input(3);
  const TensorView& running_var = context.input(4);
  const int64_t channels = loop.view().channels;
  if (!options.training) {
    for (int64_t c = 0; c < channels; ++c) {
      mean[c] = double{running_mean.as<const C>()[c]};
      inv_std[c] = 1.0 / std::sqrt(double{running_var.as<const C>()[c]} + options.epsilon);
    }
    return;
  }
  const double count = static_cast<double>(loop.view().per_channel());
  if (count == 0.0) {
    std::fill_n(mean, channels, 0.0);
    std::fill_n(inv_std, channels, 1.0 / std::sqrt(options.epsilon));
    return;
  }
  double* squares = inv_std;
  batch_moments(loop, context.input(0).as<const T>(), mean, squares, workspace);
  for (int64_t c = 0; c < channels; ++c) {
    if (running_mean.present) {
      move_running(running_mean.as<C>()[c], mean[c], options.momentum);
      move_running(running_var.as<C>()[c], squares[c] / (count - 1.0), options.momentum);
    }
    inv_std[c] = 1.0 / std::sqrt(squares[c] / count + options.epsilon);
  }
}

/// Workspace: mean and inv_std (channels, double), then that of the moments, whose place the parameters of
/// the second pass take.
template <class T>
void normalize(const KernelContext& context) {
  using C = compute_type<T>;
  const TensorView& x = context.input(0);
  const ChannelLoop loop = loop_over(x.shape, context.attributes<BatchNormOptions>().layout);
  const int64_t channels = loop.view().channels;
  double* mean = context.workspace<double>();
  double* inv_std = mean + channels;
  statistics<T>(context, loop, mean, inv_std, inv_std + channels);
  for (int64_t c = 0; c < channels; ++c) {
    context.output(1).as<C>()[c] = static_cast<C>(mean[c]);
    context.output(2).as<C>()[c] = static_cast<C>(inv_std[c]);
  }
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
  const ChannelLoop loop = loop_over(query.input(0).shape, options.layout);
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
  const ChannelLoop loop = loop_over(context.input(0).shape, options.layout);
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
        make_normalize_grad<C>(mean[c], double{inv_std[c]}, value_or<C>(context.input(2), c, 1.0), count,
                               sums[c], sums[channels + c]);
    return std::array<C, 4>{of_channel.mean, of_channel.scale, of_channel.slope, of_channel.offset};
  });
  loop.for_each(parameters, [=](int64_t i, const std::array<C, 4>& p) {
    const NormalizeGrad<C> gradient{p[0], p[1], p[2], p[3]};
    dx[i] = static_cast<T>(gradient(static_cast<C>(x[i]), static_cast<C>(dy[i])));
  });
}

size_t batch_norm_grad_workspace(const KernelQuery& query) {
  const ChannelLoop loop = loop_over(query.input(0).shape, query.attributes<BatchNormGradOptions>().layout);
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
}

}  // namespace sinter::ops
