// Both gradients of PReLU in one pass over x and dy, deterministic. Where a channel's elements can be given
// to one block, or to a cluster of blocks that run at once, those add up dalpha between themselves; else
// blocks leave the sums of their parts in a table, and a second kernel adds them.
#include <cooperative_groups.h>

#include <sinter/core/cuda/block_reduce.h>
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/launch_cluster.h>
#include <sinter/core/cuda/launch_early.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_math.h>
#include <sinter/ops/prelu/prelu_plan.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

constexpr int kChunk = 64;  // terms that are added up before they join a thread's sum
constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
struct PReluGradData {
  const T *alpha, *x, *dy;
  T* dx;
};

/// One element: dx, and its term of dalpha.
template <class T, class C>
__device__ __forceinline__ T take_element(T x, T dy, C slope, C& sum) {
  const C value = load_as_compute(x), gradient = load_as_compute(dy);
  sum += prelu_alpha_slope(value, gradient);
  return cuda::round_to<T>(prelu_slope(value, slope, gradient));
}

/// Packs of x and dy that a thread has in flight.
template <int pack, int unroll, class T>
struct Batch {
  cuda::Pack<T, pack> values[unroll], gradients[unroll];

  /// Those number i to i + unroll - 1 of `count`, at(i) being the place of number i.
  template <class At>
  __device__ __forceinline__ void load(const PReluGradData<T>& data, int i, int count, At at) {
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u >= count) continue;
      const int64_t place = at(i + u);
      values[u] = reinterpret_cast<const cuda::Pack<T, pack>*>(data.x)[place];
      gradients[u] = reinterpret_cast<const cuda::Pack<T, pack>*>(data.dy)[place];
    }
  }
  /// Writes dx and adds to the sums; `slopes` and `sums` have an entry per element, or one for all.
  template <class C, int n, class At>
  __device__ __forceinline__ void finish(const PReluGradData<T>& data, int i, int count, At at,
                                         const C (&slopes)[n], C (&sums)[n]) {
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u >= count) continue;
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        values[u].values[lane] =
            take_element(values[u].values[lane], gradients[u].values[lane], slopes[lane % n], sums[lane % n]);
      }
      reinterpret_cast<cuda::Pack<T, pack>*>(data.dx)[at(i + u)] = values[u];
    }
  }
};

/// Takes in a thread's `count` packs.
template <int pack, int unroll, class T, class C, int n, class At>
__device__ __forceinline__ void take_packs(const PReluGradData<T>& data, int count, At at,
                                           const C (&slopes)[n], C (&sums)[n]) {
  for (int begin = 0; begin < count; begin += kChunk) {
    const int end = min(begin + kChunk, count);
    C chunk[n] = {};
    for (int i = begin; i < end; i += unroll) {
      Batch<pack, unroll, T> batch;
      batch.load(data, i, count, at);
      batch.finish(data, i, count, at, slopes, chunk);
    }
#pragma unroll
    for (int k = 0; k < n; ++k) sums[k] += chunk[k];
  }
}

__device__ __forceinline__ int turns(int64_t first, int64_t end, int64_t step) {
  return static_cast<int>(first < end ? (end - first + step - 1) / step : 0);
}

// ---- whole channels to a cluster

struct PReluClusterWalk {
  PReluClusterPlan plan;
  cuda::FastDivide by_span, by_inner;  // the latter with fixed columns: they are narrow

  explicit PReluClusterWalk(const PReluClusterPlan& p)
      : plan(p),
        by_span(static_cast<uint32_t>(p.span)),
        by_inner(p.lanes > 0 ? static_cast<uint32_t>(p.inner) : 1U) {}
};

/// The sum of the values of all threads of the block, at thread 0. `shared`: one place for every warp.
template <class C>
__device__ __forceinline__ C sum_of_block(C sum, C* shared) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return sum;
  sum = threadIdx.x < blockDim.x / kWarp ? shared[threadIdx.x] : C{0};
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum;
}

/// Adds up what the blocks of the cluster have in `sums`, and rounds it into dalpha.
template <class T, class C>
__device__ __forceinline__ void finish_channels(C* sums, int count, T* dalpha) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // others are never launched with clusters
  const auto cluster = cooperative_groups::this_cluster();
  const unsigned blocks = cluster.num_blocks(), rank = cluster.block_rank();
  cluster.sync();
  // Channel c is block c % blocks' to add.
  for (int c = static_cast<int>(threadIdx.x * blocks + rank); c < count;
       c += static_cast<int>(blockDim.x * blocks)) {
    C sum = 0;
    for (unsigned block = 0; block < blocks; ++block) sum += *cluster.map_shared_rank(sums + c, block);
    dalpha[c] = cuda::round_to<T>(sum);
  }
  cluster.sync();  // nobody leaves while others read
#endif
}

/// Block (group of one channel, rank): takes the channel's packs as they come.
template <int pack, class T>
__global__ void __launch_bounds__(1024)
    prelu_grad_channel_kernel(const __grid_constant__ PReluClusterWalk walk, PReluGradData<T> data,
                              T* dalpha) {
  using C = compute_type<T>;
  __shared__ C shared[kWarp], total;
  const PReluClusterPlan& plan = walk.plan;
  const C slopes[1] = {load_as_compute(data.alpha[blockIdx.x])};
  C sums[1] = {};
  const auto step = static_cast<int>(blockDim.x * gridDim.y),
             first = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int64_t base = int64_t{blockIdx.x} * plan.span;
  take_packs<pack, 2>(
      data, turns(first, plan.rows * plan.span, step),
      [&](int i) {
        uint32_t place;
        const uint32_t row = walk.by_span.divide(static_cast<uint32_t>(first + i * step), place);
        return row * plan.columns + base + place;
      },
      slopes, sums);
  const C sum = sum_of_block(sums[0], shared);
  if (threadIdx.x == 0) total = sum;
  if (gridDim.y == 1) {
    if (threadIdx.x == 0) dalpha[blockIdx.x] = cuda::round_to<T>(sum);
    return;
  }
  finish_channels(&total, 1, dalpha + blockIdx.x);
}

/// Block (group of channels, rank): threads have fixed columns. A pack changes its channel at most once, so
/// that a thread has two sums: of its first channel, and of the next one.
template <int pack, class T>
__global__ void __launch_bounds__(1024)
    prelu_grad_group_kernel(const __grid_constant__ PReluClusterWalk walk, PReluGradData<T> data, T* dalpha) {
  using C = compute_type<T>;
  extern __shared__ __align__(16) std::byte memory[];
  const PReluClusterPlan& plan = walk.plan;
  const auto inner = static_cast<int>(plan.inner), places = plan.lanes * plan.span;
  C *firsts = reinterpret_cast<C*>(memory), *seconds = firsts + places, *totals = seconds + places;
  uint32_t x, place;
  const auto lane = static_cast<int>(walk.by_span.divide(threadIdx.x, x));
  const int64_t column = int64_t{blockIdx.x} * plan.span + x;
  const auto channel = static_cast<int>(walk.by_inner.divide(x * pack, place));
  const int left = inner - static_cast<int>(place);  // elements before the channel changes
  if (lane < plan.lanes) {
    const T* alpha = data.alpha + int64_t{blockIdx.x} * plan.group_channels;
    const C first = load_as_compute(alpha[channel]);
    const C second = left < pack ? load_as_compute(alpha[channel + 1]) : first;
    C slopes[pack], sums[pack] = {};
#pragma unroll
    for (int i = 0; i < pack; ++i) slopes[i] = i < left ? first : second;
    const int64_t step = plan.lanes * int64_t{gridDim.y}, row = int64_t{blockIdx.y} * plan.lanes + lane;
    take_packs<pack, 1>(
        data, turns(row, plan.rows, step), [&](int i) { return (row + i * step) * plan.columns + column; },
        slopes, sums);
    C before = 0, behind = 0;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      before += i < left ? sums[i] : C{0};
      behind += i < left ? C{0} : sums[i];
    }
    firsts[threadIdx.x] = before;
    seconds[threadIdx.x] = behind;
  }
  __syncthreads();
  // A group of threads for every channel: `across` columns side by side.
  unsigned members = kWarp;
  while (members > 1 && members * static_cast<unsigned>(plan.group_channels) > blockDim.x) members /= 2;
  const int wide = (inner + pack - 1) / pack + 1;  // columns of a channel, at most
  auto across = static_cast<int>(members);
  while (across > 1 && across / 2 >= wide) across /= 2;
  const auto member = static_cast<int>(threadIdx.x & (members - 1));
  for (int base = 0; base < plan.group_channels; base += static_cast<int>(blockDim.x / members)) {
    const int c = base + static_cast<int>(threadIdx.x / members);
    C sum = 0;
    if (c < plan.group_channels) {
      const auto low = static_cast<int>(plan.low_column(c)), high = static_cast<int>(plan.high_column(c));
      const C* of_low = plan.begins_within(c) ? seconds : firsts;
      for (int l = member / across; l < plan.lanes; l += static_cast<int>(members) / across) {
        for (int k = low + member % across; k <= high; k += across) {
          sum += (k == low ? of_low : firsts)[l * plan.span + k];
        }
      }
    }
    for (unsigned distance = members / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (c < plan.group_channels && member == 0) {
      totals[c] = sum;
      if (gridDim.y == 1) dalpha[int64_t{blockIdx.x} * plan.group_channels + c] = cuda::round_to<T>(sum);
    }
  }
  if (gridDim.y > 1)
    finish_channels(totals, plan.group_channels, dalpha + int64_t{blockIdx.x} * plan.group_channels);
}

// ---- parts of all channels to a block

/// The plan with what its divisions need.
struct PReluGradWalk {
  PReluGradPlan plan;
  cuda::FastDivide by_width;
  cuda::WideDivide by_inner, by_channels;

  explicit PReluGradWalk(const PReluGradPlan& p)
      : plan(p),
        by_width(static_cast<uint32_t>(p.width)),
        by_inner(std::max<int64_t>(p.inner, 1)),
        by_channels(std::max<int64_t>(p.channels, 1)) {}

  /// The run of a row in which its element `element` lies.
  __device__ int64_t run_of(int64_t element) const {
    int64_t place;
    return by_inner.divide(element, place);
  }
  __device__ int64_t channel_of(int64_t run) const {
    int64_t channel;
    by_channels.divide(run, channel);
    return channel;
  }
};

/// Adds up a block's sums for every run of a channel in its tile. sums[lane][element of the tile] holds those
/// of the threads.
template <class C>
__device__ __forceinline__ void add_runs(const PReluGradWalk& walk, const C* sums, C* slots) {
  const PReluGradPlan& plan = walk.plan;
  const int64_t tile = plan.tile_elements(), begin = blockIdx.x * tile;
  const int64_t row = plan.columns * plan.pack, end = begin + tile < row ? begin + tile : row;
  const int64_t first_run = walk.run_of(begin);
  const auto runs = static_cast<unsigned>(walk.run_of(end - 1) - first_run + 1);
  // A group of lanes adds up a run, `across` of them side by side.
  unsigned group = kWarp;
  while (group > 1 && group * runs > blockDim.x) group /= 2;
  unsigned across = group;
  while (across > 1 && across / 2 >= plan.inner) across /= 2;
  const unsigned member = threadIdx.x & (group - 1);
  for (unsigned base = 0; base < runs; base += blockDim.x / group) {
    const unsigned run = base + threadIdx.x / group;
    C sum = 0;
    if (run < runs) {
      const int64_t from = (first_run + run) * plan.inner, to = from + plan.inner;
      const auto low = static_cast<int>((from > begin ? from : begin) - begin),
                 high = static_cast<int>((to < end ? to : end) - begin);
      for (int lane = static_cast<int>(member / across); lane < plan.lanes;
           lane += static_cast<int>(group / across)) {
        for (int e = low + static_cast<int>(member % across); e < high; e += static_cast<int>(across)) {
          sum += sums[lane * tile + e];
        }
      }
    }
    for (unsigned distance = group / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (run < runs && member == 0) slots[run] = sum;
  }
}

/// Block (tile, part) of the plan.
template <int pack, class T>
__global__ void __launch_bounds__(512)
    prelu_grad_parts_kernel(const __grid_constant__ PReluGradWalk walk, PReluGradData<T> data,
                            compute_type<T>* table) {
  using C = compute_type<T>;
  extern __shared__ __align__(16) std::byte shared[];
  C* all_sums = reinterpret_cast<C*>(shared);
  cuda::let_next_begin();
  const PReluGradPlan& plan = walk.plan;
  uint32_t x;
  const auto lane = static_cast<int>(walk.by_width.divide(threadIdx.x, x));
  const int64_t column = int64_t{blockIdx.x} * plan.width + x;
  C sums[pack] = {};
  if (lane < plan.lanes && column < plan.columns) {
    C slopes[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      slopes[i] = load_as_compute(data.alpha[walk.channel_of(walk.run_of(column * pack + i))]);
    }
    const int64_t first = plan.first_row(blockIdx.y, lane), step = plan.row_step();
    take_packs<pack, 1>(
        data, turns(first, plan.rows_of(column), step),
        [&](int i) { return (first + i * step) * plan.columns + column; }, slopes, sums);
    const int64_t behind = plan.elements_behind(column);
    if (behind > 0 && lane == 0 && blockIdx.y == 0) {
      const int64_t offset = (plan.rows * plan.columns + column) * pack;
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        if (i < behind) {
          data.dx[offset + i] = take_element(data.x[offset + i], data.dy[offset + i], slopes[i], sums[i]);
        }
      }
    }
  }
  if (lane < plan.lanes) {
    auto* place = reinterpret_cast<cuda::Pack<C, pack>*>(all_sums + lane * plan.tile_elements() + x * pack);
#pragma unroll
    for (int i = 0; i < pack; ++i) place->values[i] = sums[i];
  }
  __syncthreads();
  add_runs(walk, all_sums, table + (blockIdx.y * plan.tiles + blockIdx.x) * plan.slots);
}

/// Adds up the table's places of every channel: kFoldChannels of them to a block, side by side, `lanes` (a
/// power of two) threads to a channel.
constexpr unsigned kFoldChannels = 8, kMostFoldLanes = 128;

template <class T>
__global__ void __launch_bounds__(kFoldChannels* kMostFoldLanes)
    fold_slots_kernel(const __grid_constant__ PReluGradWalk walk, cuda::WideDivide by_tile, unsigned lanes,
                      const compute_type<T>* table, T* dalpha) {
  __shared__ double sums[kFoldChannels * kMostFoldLanes];
  const PReluGradPlan& plan = walk.plan;
  const unsigned lane = threadIdx.x / kFoldChannels;
  const int64_t channel = int64_t{blockIdx.x} * kFoldChannels + threadIdx.x % kFoldChannels;
  cuda::wait_for_previous();
  double sum = 0;
  if (channel < plan.channels) {
    for (int64_t run = channel; run < plan.runs; run += plan.channels) {
      int64_t place;
      const int64_t first = run * plan.inner, last = first + plan.inner - 1;
      const int64_t last_tile = by_tile.divide(last, place);
      for (int64_t tile = by_tile.divide(first, place); tile <= last_tile; ++tile) {
        const auto* slot = table + tile * plan.slots + run - walk.run_of(tile * plan.tile_elements());
#pragma unroll 4
        for (int64_t part = lane; part < plan.parts; part += lanes) {
          sum += static_cast<double>(slot[part * plan.tiles * plan.slots]);
        }
      }
    }
  }
  sums[threadIdx.x] = sum;
  cuda::fold_lanes(sums, threadIdx.x, lane, lanes, kFoldChannels, [](double a, double b) { return a + b; });
  if (lane == 0 && channel < plan.channels) dalpha[channel] = cuda::round_to<T>(sums[threadIdx.x]);
}

// ---- host

template <int pack, class T>
void launch_parts(const Stream& stream, const ChannelView& view, const PReluGradData<T>& data,
                  compute_type<T>* table, T* dalpha) {
  const PReluGradWalk walk(plan_prelu_grad(view, pack));
  const PReluGradPlan& plan = walk.plan;
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(static_cast<unsigned>(plan.threads())),
      .shared_bytes = static_cast<size_t>(plan.lanes * plan.tile_elements()) * sizeof(compute_type<T>)};
  cuda::launch(stream, shape, prelu_grad_parts_kernel<pack, T>, walk, data, table);
  const auto lanes = std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(plan.parts, 4, kMostFoldLanes)));
  const cuda::LaunchShape fold{
      .grid = dim3(static_cast<unsigned>(cuda::blocks_for(plan.channels, kFoldChannels))),
      .block = dim3(kFoldChannels * lanes)};
  cuda::launch_early(stream, fold, fold_slots_kernel<T>, walk, cuda::WideDivide(plan.tile_elements()), lanes,
                     table, dalpha);
}

template <int pack, class T>
void launch_clusters(const Stream& stream, const PReluClusterPlan& plan, const PReluGradData<T>& data,
                     T* dalpha) {
  const PReluClusterWalk walk(plan);
  const bool fixed = plan.lanes > 0;
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.groups), static_cast<unsigned>(plan.cluster)),
      .block = dim3(static_cast<unsigned>(plan.threads)),
      .shared_bytes = fixed ? static_cast<size_t>(2 * plan.lanes * plan.span + plan.group_channels) *
                                  sizeof(compute_type<T>)
                            : 0};
  cuda::launch_column_clusters(stream, shape,
                               fixed ? prelu_grad_group_kernel<pack, T> : prelu_grad_channel_kernel<pack, T>,
                               walk, data, dalpha);
}

template <int pack, class T>
void launch_grad(const Stream& stream, const ChannelView& view, const PReluGradData<T>& data,
                 compute_type<T>* table, T* dalpha) {
  if constexpr (pack > 1) {
    const PReluClusterPlan plan = plan_prelu_clusters(view, pack);
    if (plan.groups > 0 && cuda::device_traits(stream.device.index).clusters) {
      return launch_clusters<pack>(stream, plan, data, dalpha);
    }
  }
  launch_parts<pack>(stream, view, data, table, dalpha);
}

}  // namespace

size_t prelu_grad_workspace(const KernelQuery& query) {
  const DType dtype = query.input(0).dtype;
  const ChannelView view =
      prelu_view(query.input(0).shape, query.input(1).shape, query.attributes<PReluAttributes>().layout);
  const int64_t widest = 16 / static_cast<int64_t>(size_of(dtype));
  // Which one runs depends on addresses.
  const int64_t places =
      std::max(plan_prelu_grad(view, 1).table_size(), plan_prelu_grad(view, widest).table_size());
  return static_cast<size_t>(places) * size_of(accumulate_dtype(dtype));
}

void run_prelu_grad(const KernelContext& context) {
  const ChannelView view = prelu_view(context.input(0).shape, context.input(1).shape,
                                      context.attributes<PReluAttributes>().layout);
  dispatch_float(context.input(0).dtype, "prelu_grad", [&]<class T> {
    const PReluGradData<T> data{context.input(1).as<const T>(), context.input(0).as<const T>(),
                                context.input(2).as<const T>(), context.output(0).as<T>()};
    const bool aligned =
        cuda::is_aligned(data.x, 16) && cuda::is_aligned(data.dy, 16) && cuda::is_aligned(data.dx, 16);
    const auto launch = aligned ? launch_grad<cuda::kPackSize<T>, T> : launch_grad<1, T>;
    launch(context.stream(), view, data, context.workspace<compute_type<T>>(), context.output(1).as<T>());
  });
}

}  // namespace sinter::ops
