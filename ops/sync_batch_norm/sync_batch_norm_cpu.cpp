// rank_statistics on the CPU: ops/norm does the work, the communicator sums.
#include <algorithm>

#include <sinter/core/op/registry.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/norm/norm_statistics_cpu.h>
#include <sinter/ops/sync_batch_norm/rank_sums.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {
namespace {

/// Workspace: mean and squares per channel, the sums of this rank, those of all, then that of the moments.
size_t front_bytes(int64_t channels) {
  return static_cast<size_t>(2 * channels + 2 * rank_sums_count(channels)) * sizeof(double);
}

size_t statistics_bytes(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  const ChannelView view = norm_view(x.shape, query.attributes<RankStatisticsAttributes>().layout);
  return front_bytes(view.channels) + moments_bytes(ChannelLoop(view), size_of(accumulate_dtype(x.dtype)));
}

/// What this rank adds to the sums.
void sum_own(const TensorView& x, const ChannelView& view, double* workspace, double* own) {
  const int64_t channels = view.channels;
  double *mean = workspace, *squares = mean + channels;
  const double count = static_cast<double>(view.per_channel());
  std::fill_n(mean, 2 * channels, 0.0);
  if (count > 0.0) {
    void* const scratch = reinterpret_cast<char*>(workspace) + front_bytes(channels);
    norm_moments(x, ChannelLoop(view), mean, squares, scratch);
  }
  for (int64_t c = 0; c < channels; ++c) {
    own[c] = count * mean[c];
    own[channels + c] = squares[c] + count * mean[c] * mean[c];
  }
  own[2 * channels] = count;
}

template <class C>
void finish(const KernelContext& context, int64_t channels, const double* sums, double* workspace) {
  const auto& options = context.attributes<RankStatisticsAttributes>();
  double *mean = workspace, *squares = mean + channels;
  const double count = sums[2 * channels];
  for (int64_t c = 0; c < channels; ++c) {
    Moments moments;
    if (count > 0.0) moments = moments_of_sums(count, sums[c], sums[channels + c]);
    mean[c] = moments.mean, squares[c] = moments.squares;
  }
  const NormTensor tensor{.running_mean = context.input(1),
                          .running_var = context.input(2),
                          .mean = context.output(0),
                          .inv_std = context.output(1)};
  keep_statistics<C>({.epsilon = options.epsilon, .momentum = options.momentum}, tensor, channels, count,
                     mean, squares);
  context.output(2).as<C>()[0] = static_cast<C>(count > 0.0 ? 1.0 / count : 0.0);
}

void run_statistics(const KernelContext& context) {
  const auto& options = context.attributes<RankStatisticsAttributes>();
  const TensorView& x = context.input(0);
  const ChannelView view = norm_view(x.shape, options.layout);
  const int64_t count = rank_sums_count(view.channels);
  auto* const workspace = static_cast<double*>(context.workspace());
  double *const own = workspace + 2 * view.channels, *const sums = own + count;
  sum_own(x, view, workspace, own);
  sum_over_ranks(own, sums, count, options.communicator, context.stream());
  const bool wide = x.dtype == DType::kFloat64;
  (wide ? finish<double> : finish<float>)(context, view.channels, sums, workspace);
}

}  // namespace

void register_sync_batch_norm_cpu(OpRegistry& registry);
void register_sync_batch_norm_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "rank_statistics",
      {.device = DeviceType::kCpu, .workspace_bytes = statistics_bytes, .run = run_statistics});
}

}  // namespace sinter::ops
