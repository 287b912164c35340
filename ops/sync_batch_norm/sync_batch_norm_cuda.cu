// rank_statistics on a GPU: ops/norm/cuda does the work, the communicator sums between two kernels.
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>
#include <sinter/ops/sync_batch_norm/rank_sums.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256;

/// From the sums of all ranks; `share`: one over the number of elements that each channel has there.
template <class C>
__global__ void finish_rank_statistics_kernel(int64_t channels, const double* sums,
                                              ChannelStatistics<C> statistics, C* share) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double count = sums[2 * channels];
  Moments moments;
  if (count > 0.0) moments = moments_of_sums(count, sums[c], sums[channels + c]);
  statistics.learn(c, statistics.known(c), moments);
  if (c == 0) share[0] = static_cast<C>(count > 0.0 ? 1.0 / count : 0.0);
}

/// Workspace: the sums of this rank, those of all, then the table of the sums.
size_t statistics_bytes(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  const ChannelView view = norm_view(x.shape, query.attributes<RankStatisticsAttributes>().layout);
  const auto sums = static_cast<size_t>(rank_sums_count(view.channels)) * sizeof(double);
  return 2 * NormScratch::bytes(sums) + norm_table_bytes(view, x.dtype, x.device.index, kStatisticsBlocks, 2);
}

void run_statistics(const KernelContext& context) {
  const auto& options = context.attributes<RankStatisticsAttributes>();
  const TensorView& x = context.input(0);
  const ChannelView view = norm_view(x.shape, options.layout);
  if (view.channels == 0) return;
  const Stream& stream = context.stream();
  const int64_t count = rank_sums_count(view.channels);
  NormScratch scratch(context.workspace());
  auto* const own = scratch.take<double>(count);
  auto* const sums = scratch.take<double>(count);
  sum_for_ranks(view, x.dtype, x.data, stream, own, scratch.rest());
  sum_over_ranks(own, sums, count, options.communicator, stream);
  dispatch_float(x.dtype, "rank_statistics", [&]<class T> {
    using C = compute_type<T>;
    const ChannelStatistics<C> statistics{.running_mean = pointer_or_null<C>(context.input(1)),
                                          .running_var = pointer_or_null<C>(context.input(2)),
                                          .mean = context.output(0).as<C>(),
                                          .inv_std = context.output(1).as<C>(),
                                          .epsilon = options.epsilon,
                                          .momentum = options.momentum};
    cuda::launch(stream, cuda::grid_stride_shape(view.channels, kThreads), finish_rank_statistics_kernel<C>,
                 view.channels, static_cast<const double*>(sums), statistics, context.output(2).as<C>());
  });
}

}  // namespace

void register_sync_batch_norm_cuda(OpRegistry& registry);
void register_sync_batch_norm_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "rank_statistics",
      {.device = DeviceType::kCuda, .workspace_bytes = statistics_bytes, .run = run_statistics});
}

}  // namespace sinter::ops
