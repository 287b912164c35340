// Both gradients of PReLU in one pass over x and dy, in two deterministic stages: blocks write dx and add up
// their part of dalpha; a small kernel adds the parts.
#include <sinter/core/cuda/block_reduce.h>
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/launch_early.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_math.h>
#include <sinter/ops/prelu/prelu_plan.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

constexpr int kUnroll = 2;  // rows that a thread has in flight
constexpr int kChunk = 64;  // terms that are added up before they join a thread's sum
constexpr unsigned kFoldThreads = 256;
constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// The plan with what its divisions need.
struct PReluGradWalk {
  PReluGradPlan plan;
  cuda::FastDivide by_width;
  cuda::WideDivide by_inner, by_channels;

  explicit PReluGradWalk(const PReluGradPlan& p)
      : plan(p), by_width(static_cast<uint32_t>(p.width)), by_inner(p.inner), by_channels(p.channels) {}

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

/// Walks down a thread's column from `first` on, `count` packs that are `stride` packs apart.
template <int pack, class T, class C>
__device__ __forceinline__ void walk_column(const PReluGradData<T>& data, int64_t first, int64_t count,
                                            int64_t stride, const C (&slopes)[pack], C (&sums)[pack]) {
  using Elements = cuda::Pack<T, pack>;
  const auto* x = reinterpret_cast<const Elements*>(data.x) + first;
  const auto* dy = reinterpret_cast<const Elements*>(data.dy) + first;
  auto* dx = reinterpret_cast<Elements*>(data.dx) + first;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int n = static_cast<int>(count - begin < kChunk ? count - begin : kChunk);
    C chunk[pack] = {};
    for (int i = 0; i < n; i += kUnroll) {
      Elements values[kUnroll], gradients[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u >= n) continue;
        values[u] = x[u * stride];
        gradients[u] = dy[u * stride];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i + u >= n) continue;
#pragma unroll
        for (int lane = 0; lane < pack; ++lane) {
          values[u].values[lane] =
              take_element(values[u].values[lane], gradients[u].values[lane], slopes[lane], chunk[lane]);
        }
        dx[u * stride] = values[u];
      }
      x += kUnroll * stride, dy += kUnroll * stride, dx += kUnroll * stride;
    }
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) sums[lane] += chunk[lane];
  }
}

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
__global__ void prelu_grad_kernel(const __grid_constant__ PReluGradWalk walk, PReluGradData<T> data,
                                  compute_type<T>* table) {
  using C = compute_type<T>;
  extern __shared__ __align__(16) std::byte shared[];
  C* all_sums = reinterpret_cast<C*>(shared);
  cuda::allow_next_kernel();
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
    const int64_t first = blockIdx.y * plan.part_rows,
                  last = min(first + plan.part_rows, plan.rows_of(column));
    const int64_t count = (last - first - lane + plan.lanes - 1) / plan.lanes;
    walk_column<pack>(data, (first + lane) * plan.columns + column, count, plan.lanes * plan.columns, slopes,
                      sums);
    const int64_t behind = plan.elements_behind(column);
    if (behind > 0 && lane == 0 && blockIdx.y + 1 == gridDim.y) {
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

/// Adds up the table's places of every channel, `lanes` (a power of two) threads to a channel.
template <class T>
__global__ void __launch_bounds__(kFoldThreads)
    fold_slots_kernel(const __grid_constant__ PReluGradWalk walk, cuda::WideDivide by_tile, unsigned lanes,
                      const compute_type<T>* table, T* dalpha) {
  __shared__ double sums[kFoldThreads];
  cuda::wait_for_previous_kernel();
  const PReluGradPlan& plan = walk.plan;
  const unsigned lane = threadIdx.x & (lanes - 1);
  const int64_t channel = (int64_t{blockIdx.x} * kFoldThreads + threadIdx.x) / lanes;
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
  cuda::fold_lanes(sums, threadIdx.x, lane, lanes, 1u, [](double a, double b) { return a + b; });
  if (lane == 0 && channel < plan.channels) dalpha[channel] = cuda::round_to<T>(sums[threadIdx.x]);
}

// ---- host

template <int pack, class T>
void launch_grad(const Stream& stream, const ChannelView& view, const PReluGradData<T>& data,
                 compute_type<T>* table, T* dalpha) {
  const PReluGradWalk walk(plan_prelu_grad(view, pack));
  const PReluGradPlan& plan = walk.plan;
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(static_cast<unsigned>(plan.threads())),
      .shared_bytes = static_cast<size_t>(plan.lanes * plan.tile_elements()) * sizeof(compute_type<T>)};
  cuda::launch(stream, shape, prelu_grad_kernel<pack, T>, walk, data, table);
  const auto lanes = std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(plan.parts, 1, kFoldThreads)));
  const cuda::LaunchShape fold{
      .grid = dim3(static_cast<unsigned>(cuda::blocks_for(plan.channels * lanes, kFoldThreads))),
      .block = dim3(kFoldThreads)};
  cuda::launch_early(stream, fold, fold_slots_kernel<T>, walk, cuda::WideDivide(plan.tile_elements()), lanes,
                     table, dalpha);
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
