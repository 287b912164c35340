// Both gradients of PReLU where a channel's elements can be given to one block, or to a cluster of blocks
// that run at once: they add up dalpha between themselves.
#include <sinter/core/cuda/device/cluster_inbox.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_cluster.h>
#include <sinter/ops/prelu/prelu_grad_kernels_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = PReluClusterPlan::kMostThreads;

/// Packs of x and of dy that a thread has in flight, as many as its registers hold: where it has one sum, and
/// where it has one for each element of a pack.
template <class T>
constexpr int kInFlightOneSum = sizeof(T) == 2 ? 4 : 5;
template <class T>
constexpr int kInFlight = sizeof(T) == 2 ? 3 : 4;

struct PReluClusterWalk {
  PReluClusterPlan plan;
  cuda::FastDivide by_span, by_inner;  // the latter with fixed columns: they are narrow

  explicit PReluClusterWalk(const PReluClusterPlan& p)
      : plan(p),
        by_span(static_cast<uint32_t>(p.span)),
        by_inner(p.lanes > 0 ? static_cast<uint32_t>(p.inner) : 1U) {}
};

/// What the blocks of a cluster have of each channel of their group, gathered in the first block.
template <class C>
struct ClusterSums {
  cuda::ClusterInbox inbox;
  C received[PReluClusterPlan::kMostCluster * PReluClusterPlan::kMostChannels];

  __device__ __forceinline__ void open(int channels) {
    if (gridDim.y > 1) {
      inbox.open(blockIdx.y == 0, gridDim.y * static_cast<unsigned>(channels * static_cast<int>(sizeof(C))));
    }
  }
  __device__ __forceinline__ void all_open() {
    if (gridDim.y > 1) inbox.all_open();
  }
  /// By one thread for each channel of the group.
  template <class S>
  __device__ __forceinline__ void give(int channel, int channels, C sum, S* dalpha) {
    if (gridDim.y == 1) {
      dalpha[channel] = cuda::round_to<S>(sum);
    } else {
      inbox.send(received + static_cast<int>(blockIdx.y) * channels + channel, sum);
    }
  }
  /// By all threads, when all have given.
  template <class S>
  __device__ __forceinline__ void finish(int channels, S* dalpha) {
    const auto channel = static_cast<int>(threadIdx.x);
    if (gridDim.y == 1 || blockIdx.y != 0 || channel >= channels) return;
    inbox.wait();
    C sum = 0;
    for (int block = 0; block < static_cast<int>(gridDim.y); ++block)
      sum += received[block * channels + channel];
    dalpha[channel] = cuda::round_to<S>(sum);
  }
};

/// Block (group of one channel, rank): takes the channel's packs as they come.
template <class T, class S>
__global__ void __launch_bounds__(kThreads)
    prelu_grad_channel_kernel(const __grid_constant__ PReluClusterWalk walk, PReluGradData<T, S> data) {
  using C = compute_type<T>;
  using Slopes = PReluWords<S, cuda::kPackSize<T>>;
  __shared__ C shared[kPReluWarp];
  __shared__ ClusterSums<C> cluster;
  const PReluClusterPlan& plan = walk.plan;
  cluster.open(1);
  const auto columns = static_cast<uint32_t>(plan.columns),
             base = blockIdx.x * static_cast<uint32_t>(plan.span);
  const uint32_t step = blockDim.x * gridDim.y, first = blockIdx.y * blockDim.x + threadIdx.x;
  C total = 0;
  take_prelu_packs<kInFlightOneSum<T>, cuda::kPackSize<T>, 1>(
      data, first, static_cast<uint32_t>(plan.rows * plan.span), step,
      [&](uint32_t i) {
        uint32_t place;
        const uint32_t row = walk.by_span.divide(i, place);
        return row * columns + base + place;
      },
      [&] { return Slopes::all(data.alpha[from_here(blockIdx.x)]); },
      [&](const C(&sums)[1]) { total += sums[0]; });
  cluster.all_open();
  const C sum = sum_of_block(total, shared);
  if (threadIdx.x == 0) cluster.give(0, 1, sum, data.dalpha + blockIdx.x);
  cluster.finish(1, data.dalpha + blockIdx.x);
}

/// Block (group of channels, rank): threads have fixed columns. A pack changes its channel at most once, so
/// that a thread ends with two sums: of its first channel, and of the next one.
template <class T, class S>
__global__ void __launch_bounds__(kThreads)
    prelu_grad_group_kernel(const __grid_constant__ PReluClusterWalk walk, PReluGradData<T, S> data) {
  using C = compute_type<T>;
  constexpr int pack = cuda::kPackSize<T>;
  __shared__ C firsts[kThreads], seconds[kThreads];
  __shared__ ClusterSums<C> cluster;
  const PReluClusterPlan& plan = walk.plan;
  const int channels = plan.group_channels;
  cluster.open(channels);
  const auto inner = static_cast<int>(plan.inner);
  uint32_t x, place;
  const auto lane = static_cast<int>(walk.by_span.divide(threadIdx.x, x));
  const auto channel = static_cast<int>(walk.by_inner.divide(x * pack, place));
  const int left = inner - static_cast<int>(place);  // elements before the channel changes
  if (lane < plan.lanes) {
    const uint32_t first = blockIdx.x * static_cast<uint32_t>(channels) + static_cast<uint32_t>(channel),
                   more = channel + 1 < channels ? 1 : 0;
    // A row's end is no bound: packs are counted through all rows, so that a number is a place.
    const auto columns = static_cast<uint32_t>(plan.columns), lanes = static_cast<uint32_t>(plan.lanes);
    const uint32_t row = blockIdx.y * lanes + static_cast<uint32_t>(lane),
                   begin = row * columns + blockIdx.x * static_cast<uint32_t>(plan.span) + x;
    C before = 0;
    seconds[threadIdx.x] = 0;  // not in a register: they are short
    take_prelu_packs<kInFlight<T>, pack, pack>(
        data, begin, static_cast<uint32_t>(plan.rows) * columns, lanes * gridDim.y * columns,
        [](uint32_t i) { return i; },
        [&] {
          const S* alpha = data.alpha + from_here(first);
          const S own = alpha[0], next = alpha[more];
          return PReluWords<S, pack>::of([&](int i) { return i < left ? own : next; });
        },
        [&](const C(&sums)[pack]) {
          C in_first = 0, in_second = 0;
#pragma unroll
          for (int i = 0; i < pack; ++i) {
            in_first += i < left ? sums[i] : C{0};
            in_second += i < left ? C{0} : sums[i];
          }
          before += in_first;
          seconds[threadIdx.x] += in_second;
        });
    firsts[threadIdx.x] = before;
  }
  cluster.all_open();
  __syncthreads();
  S* const dalpha = data.dalpha + int64_t{blockIdx.x} * channels;
  // A group of threads for every channel, `across` columns side by side; both powers of two.
  const unsigned members = 1U << plan.log_members, across = 1U << plan.log_across;
  const unsigned member = threadIdx.x & (members - 1);
  const auto first_column = static_cast<int>(member & (across - 1)),
             first_lane = static_cast<int>(member >> plan.log_across);
  for (unsigned base = 0; base < static_cast<unsigned>(channels); base += blockDim.x >> plan.log_members) {
    const auto c = static_cast<int>(base + (threadIdx.x >> plan.log_members));
    C sum = 0;
    if (c < channels) {
      const PReluChannelColumns of(c, inner, pack);
      const C* of_low = of.begins_within ? seconds : firsts;
      for (int l = first_lane; l < plan.lanes; l += static_cast<int>(members >> plan.log_across)) {
        for (int k = of.low + first_column; k <= of.high; k += static_cast<int>(across)) {
          sum += (k == of.low ? of_low : firsts)[l * plan.span + k];
        }
      }
    }
    sum = sum_of_lanes(sum, members);
    if (c < channels && member == 0) cluster.give(c, channels, sum, dalpha);
  }
  cluster.finish(channels, dalpha);
}

}  // namespace

template <class T, class S>
void launch_prelu_grad_channels(const Stream& stream, const PReluClusterPlan& plan,
                                const PReluGradData<T, S>& data) {
  const PReluClusterWalk walk(plan);
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.groups), static_cast<unsigned>(plan.cluster)),
      .block = dim3(static_cast<unsigned>(plan.threads))};
  cuda::launch_column_clusters(
      stream, shape, plan.lanes > 0 ? prelu_grad_group_kernel<T, S> : prelu_grad_channel_kernel<T, S>, walk,
      data);
}

template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<float, float>&);
template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<double, double>&);
template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<float16, float16>&);
template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<bfloat16, bfloat16>&);
template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<float16, float>&);
template void launch_prelu_grad_channels(const Stream&, const PReluClusterPlan&,
                                         const PReluGradData<bfloat16, float>&);

}  // namespace sinter::ops
