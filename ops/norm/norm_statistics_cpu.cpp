// The statistics of a batch on the CPU: mean and deviation per channel, in blocks that stay in the cache.
#include <cmath>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/norm/norm_statistics_cpu.h>

namespace sinter::ops {
namespace {

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
      SINTER_IVDEP
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

}  // namespace

size_t moments_bytes(const ChannelLoop& loop, size_t element) {
  const auto table = static_cast<size_t>(loop.entries() * loop.width());
  return table * (2 * sizeof(double) + 3 * element) + static_cast<size_t>(loop.entries()) * sizeof(double);
}

void norm_moments(const TensorView& x, const ChannelLoop& loop, double* mean, double* squares,
                  void* scratch) {
  dispatch_float(x.dtype, "batch_norm",
                 [&]<class T> { batch_moments(loop, x.as<const T>(), mean, squares, scratch); });
}

template <class C>
void keep_statistics(const NormOptions& options, const NormTensor& tensor, int64_t channels, double count,
                     double* mean, double* inv_std) {
  const auto move = [&](const TensorView& running, int64_t c, double value) {
    C& own = running.as<C>()[c];
    own = static_cast<C>(moved_running(double{own}, value, options.momentum));
  };
  for (int64_t c = 0; c < channels; ++c) {
    const double squares = inv_std[c];
    if (tensor.running_mean.present && count > 0.0) {
      move(tensor.running_mean, c, mean[c]);
      move(tensor.running_var, c, squares / (count - 1.0));
    }
    inv_std[c] = 1.0 / std::sqrt((count > 0.0 ? squares / count : 0.0) + options.epsilon);
    tensor.mean.as<C>()[c] = static_cast<C>(mean[c]);
    tensor.inv_std.as<C>()[c] = static_cast<C>(inv_std[c]);
  }
}

template void keep_statistics<float>(const NormOptions&, const NormTensor&, int64_t, double, double*,
                                     double*);
template void keep_statistics<double>(const NormOptions&, const NormTensor&, int64_t, double, double*,
                                      double*);

namespace {

/// mean and sum of squared deviations in training, from the sums that came with the tensor or by a pass over
/// it.
template <class C>
void find_moments(const NormTensor& tensor, const ChannelLoop& loop, double* mean, double* squares,
                  void* scratch) {
  if (!tensor.sums.present) {
    norm_moments(tensor.x, loop, mean, squares, scratch);
    return;
  }
  const int64_t channels = loop.view().channels;
  const C* sums = tensor.sums.as<const C>();
  for (int64_t c = 0; c < channels; ++c) {
    const Moments moments = moments_of_sums(static_cast<double>(loop.view().per_channel()), double{sums[c]},
                                            double{sums[channels + c]});
    mean[c] = moments.mean;
    squares[c] = moments.squares;
  }
}

template <class C>
void find_statistics(const NormOptions& options, const NormTensor& tensor, const ChannelLoop& loop,
                     double* mean, double* inv_std, void* scratch) {
  const int64_t channels = loop.view().channels;
  const double count = static_cast<double>(loop.view().per_channel());
  if (options.statistics_given) {
    for (int64_t c = 0; c < channels; ++c) {
      mean[c] = double{tensor.mean.as<const C>()[c]};
      inv_std[c] = double{tensor.inv_std.as<const C>()[c]};
    }
    return;
  }
  if (options.training) {
    std::fill_n(mean, channels, 0.0);
    std::fill_n(inv_std, channels, 0.0);
    if (count > 0.0) find_moments<C>(tensor, loop, mean, inv_std, scratch);
    keep_statistics<C>(options, tensor, channels, count, mean, inv_std);
    return;
  }
  for (int64_t c = 0; c < channels; ++c) {
    mean[c] = double{tensor.running_mean.as<const C>()[c]};
    inv_std[c] = 1.0 / std::sqrt(double{tensor.running_var.as<const C>()[c]} + options.epsilon);
    tensor.mean.as<C>()[c] = static_cast<C>(mean[c]);
    tensor.inv_std.as<C>()[c] = static_cast<C>(inv_std[c]);
  }
}

}  // namespace

void norm_statistics(const NormOptions& options, const NormTensor& tensor, const ChannelLoop& loop,
                     double* mean, double* inv_std, void* scratch) {
  if (tensor.x.dtype == DType::kFloat64) {
    find_statistics<double>(options, tensor, loop, mean, inv_std, scratch);
  } else {
    find_statistics<float>(options, tensor, loop, mean, inv_std, scratch);
  }
}

}  // namespace sinter::ops
