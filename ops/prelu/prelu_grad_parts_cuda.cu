// Both gradients of PReLU for any shape: blocks take parts of all channels and leave sums in a table, which a
// second kernel adds up.
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/ops/prelu/prelu_grad_kernels_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = PReluGradPlan::kThreads;

/// Packs of x and of dy that a thread has in flight, as many as its registers hold.
template <class T>
constexpr int kInFlight = sizeof(T) == 2 ? 3 : 4;

/// The plan with what its divisions need.
struct PReluGradWalk {
  PReluGradPlan plan;
  bool vectors;  // a pack's slopes are an aligned pack of alpha's
  cuda::FastDivide by_width, by_tile, by_parts;
  cuda::WideDivide by_inner, by_channels;

  PReluGradWalk(const PReluGradPlan& p, bool aligned_alpha)
      : plan(p),
        vectors(aligned_alpha && p.inner == 1 && p.channels % p.pack == 0),
        by_width(static_cast<uint32_t>(p.width)),
        by_tile(static_cast<uint32_t>(p.tile_elements())),
        by_parts(static_cast<uint32_t>(std::max<int64_t>(p.parts, 1))),
        by_inner(std::max<int64_t>(p.inner, 1)),
        by_channels(std::max<int64_t>(p.channels, 1)) {}

  /// The run of a row in which its element `element` lies.
  __device__ int64_t run_of(int64_t element) const {
    int64_t place;
    return by_inner.divide(element, place);
  }
  __device__ int64_t channel_of(int64_t element) const {
    int64_t channel;
    by_channels.divide(run_of(element), channel);
    return channel;
  }
  /// The slopes of the pack at a column of a row.
  template <int pack, bool flat, class S>
  __device__ PReluWords<S, pack> slopes(const S* alpha, int64_t column) const {
    int64_t place = 0, channel;
    by_channels.divide(flat ? column * pack : by_inner.divide(column * pack, place), channel);
    if (flat && vectors) return PReluWords<S, pack>::load(alpha, static_cast<uint64_t>(channel) / pack);
    return PReluWords<S, pack>::of([&](int) {
      const S slope = alpha[channel];
      if (flat || ++place == plan.inner) place = 0, channel = channel + 1 == plan.channels ? 0 : channel + 1;
      return slope;
    });
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
  unsigned group = kPReluWarp;
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
    sum = sum_of_lanes(sum, group);
    if (run < runs && member == 0) slots[run] = sum;
  }
}

/// The same where a run is one element; sums[lane][element] are overwritten. Every thread of the block calls
/// it after writing its sums; it begins with a barrier.
template <class C>
__device__ __forceinline__ void add_elements(const PReluGradWalk& walk, C* sums, C* slots) {
  const auto lanes = static_cast<uint32_t>(walk.plan.lanes),
             elements = static_cast<uint32_t>(walk.plan.tile_elements());
  if (lanes > PReluGradPlan::kFewLanes) {
    const C sum = cuda::add_columns<kThreads>(sums, lanes, elements, walk.by_tile);
    if (threadIdx.x < elements) slots[threadIdx.x] = sum;
    return;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < elements; e += blockDim.x) {
    slots[e] = cuda::add_strided<4>(sums, e, lanes * elements, elements);
  }
}

/// Takes in the elements that a column has behind its last whole pack; `sums` has a place for each.
template <class T, class S, class C>
__device__ __forceinline__ void take_elements_behind(const PReluGradWalk& walk,
                                                     const PReluGradData<T, S>& data, int64_t column,
                                                     C* sums) {
  using Element = PReluWords<T, 1>;
  const PReluGradPlan& plan = walk.plan;
  const int64_t behind = plan.elements_behind(column);
#pragma unroll 1
  for (int64_t i = 0; i < behind; ++i) {
    const int64_t in_row = column * plan.pack + i, offset = plan.rows * plan.columns * plan.pack + in_row;
    const Element value{{data.x[offset]}}, gradient{{data.dy[offset]}};
    prelu_pack(value, gradient, PReluWords<S, 1>{{data.alpha[walk.channel_of(in_row)]}})
        .store(data.dx, offset);
    C term[1] = {};
    add_prelu_terms(value, gradient, term);
    sums[i] += term[0];
  }
}

/// Block (tile, part) of the plan. `flat`: a run is one element. Index counts the tensor's packs.
template <int pack, bool flat, class Index, class T, class S>
__global__ void __launch_bounds__(kThreads, 2)
    prelu_grad_parts_kernel(const __grid_constant__ PReluGradWalk walk, PReluGradData<T, S> data,
                            compute_type<T>* table) {
  using C = compute_type<T>;
  __shared__ C shared[kThreads * pack];
  cuda::let_next_begin();
  const PReluGradPlan& plan = walk.plan;
  uint32_t x;
  const auto lane = static_cast<int>(walk.by_width.divide(threadIdx.x, x));
  const int64_t column = int64_t{blockIdx.x} * plan.width + x;
  if (lane < plan.lanes) {
    C sums[pack] = {};
    if (column < plan.columns) {
      const PReluWords<S, pack> slopes = walk.template slopes<pack, flat>(data.alpha, column);
      // Packs are counted through all rows, so that a number is a place.
      const int64_t row = plan.first_row(blockIdx.y) + lane, end = plan.end_row(blockIdx.y, column);
      const auto columns = static_cast<Index>(plan.columns);
      take_prelu_packs<kInFlight<T>, pack, pack>(
          data, static_cast<Index>(row) * columns + static_cast<Index>(column),
          static_cast<Index>(end) * columns, static_cast<Index>(plan.lanes) * columns,
          [](Index i) { return i; }, [&] { return slopes; },
          [&](const C(&terms)[pack]) {
#pragma unroll
            for (int i = 0; i < pack; ++i) sums[i] += terms[i];
          });
    }
    C* const mine = shared + (lane * plan.width + static_cast<int>(x)) * pack;
#pragma unroll
    for (int i = 0; i < pack; ++i) mine[i] = sums[i];
    if (lane == 0 && blockIdx.y == 0 && column < plan.columns) take_elements_behind(walk, data, column, mine);
  }
  C* slots = table + (blockIdx.y * plan.tiles + blockIdx.x) * plan.slots;
  if constexpr (flat) {
    add_elements(walk, shared, slots);
  } else {
    __syncthreads();
    add_runs(walk, shared, slots);
  }
}

/// Adds up the table's places of every channel: `side` channels of a block side by side, `lanes` threads to a
/// channel, both powers of two.
template <bool flat, class T, class S>
__global__ void __launch_bounds__(PReluGradFold::kMostThreads)
    fold_slots_kernel(const __grid_constant__ PReluGradWalk walk, PReluGradFold fold,
                      const compute_type<T>* table, S* dalpha) {
  using C = compute_type<T>;
  __shared__ C sums[PReluGradFold::kMostThreads];
  const PReluGradPlan& plan = walk.plan;
  const unsigned lane = threadIdx.x / fold.side;
  const int64_t channel = int64_t{blockIdx.x} * fold.side + threadIdx.x % fold.side;
  const int64_t part_size = plan.tiles * plan.slots;
  cuda::wait_for_previous();
  C sum = 0;
  if (channel < plan.channels) {
    for (int64_t run = channel; run < plan.runs; run += plan.channels) {
      if constexpr (flat) {  // the tiles' places follow each other as the elements do
        sum += cuda::add_strided<4>(table, lane * part_size + run, plan.parts * part_size,
                                    fold.lanes * part_size);
      } else {
        const int64_t first = run * plan.inner / plan.tile_elements(),
                      last = (run * plan.inner + plan.inner - 1) / plan.tile_elements();
        const auto places = static_cast<uint32_t>((last - first + 1) * plan.parts);
#pragma unroll 4
        for (uint32_t i = lane; i < places; i += fold.lanes) {
          uint32_t part;
          const int64_t tile = first + walk.by_parts.divide(i, part);
          sum += table[part * part_size + tile * plan.slots + run - walk.run_of(tile * plan.tile_elements())];
        }
      }
    }
  }
  sums[threadIdx.x] = sum;
  cuda::fold_lanes(sums, threadIdx.x, lane, fold.lanes, fold.side, [](C a, C b) { return a + b; });
  if (lane == 0 && channel < plan.channels) dalpha[channel] = cuda::round_to<S>(sums[threadIdx.x]);
}

// ---- host

/// `early`: behind a kernel of this stream that lets it begin, and which it awaits.
template <bool flat, class T, class S>
void launch_fold(const Stream& stream, const PReluGradWalk& walk, bool early, const compute_type<T>* table,
                 S* dalpha) {
  const PReluGradFold fold = plan_prelu_grad_fold(walk.plan);
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(cuda::blocks_for(walk.plan.channels, fold.side))),
      .block = dim3(fold.side * fold.lanes)};
  const auto kernel = fold_slots_kernel<flat, T, S>;
  if (early) {
    cuda::launch_early(stream, shape, kernel, walk, fold, table, dalpha);
  } else {
    cuda::launch(stream, shape, kernel, walk, fold, table, dalpha);
  }
}

template <int pack, bool flat, class T, class S>
void launch_flat(const Stream& stream, const PReluGradPlan& plan, const PReluGradData<T, S>& data,
                 compute_type<T>* table) {
  const PReluGradWalk walk(plan, cuda::is_aligned(data.alpha, pack > 1 ? 16 : sizeof(S)));
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.parts)),
      .block = dim3(static_cast<unsigned>(plan.threads()))};
  // With some steps of a block's threads beyond the end.
  const bool narrow = (plan.all_rows() + 8 * plan.lanes) * plan.columns < INT32_MAX;
  cuda::launch(stream, shape,
               narrow ? prelu_grad_parts_kernel<pack, flat, uint32_t, T, S>
                      : prelu_grad_parts_kernel<pack, flat, uint64_t, T, S>,
               walk, data, table);
  // Without blocks no kernel of parts comes before it.
  launch_fold<flat, T, S>(stream, walk, plan.tiles * plan.parts > 0, table, data.dalpha);
}

template <int pack, class T, class S>
void launch_parts(const Stream& stream, const ChannelView& view, const PReluGradData<T, S>& data,
                  compute_type<T>* table) {
  const PReluGradPlan plan = plan_prelu_grad(view, pack);
  (plan.inner == 1 ? launch_flat<pack, true, T, S> : launch_flat<pack, false, T, S>)(stream, plan, data,
                                                                                     table);
}

}  // namespace

template <class T, class S>
void launch_prelu_fold(const Stream& stream, int64_t channels, int64_t parts, const compute_type<T>* table,
                       S* dalpha) {
  const PReluGradPlan plan{.channels = channels,
                           .columns = channels,
                           .runs = channels,
                           .tiles = 1,
                           .parts = parts,
                           .slots = channels};
  launch_fold<true, T, S>(stream, PReluGradWalk(plan, false), true, table, dalpha);
}

template <class T, class S>
void launch_prelu_grad_parts(const Stream& stream, const ChannelView& view, bool wide,
                             const PReluGradData<T, S>& data, compute_type<T>* table) {
  (wide ? launch_parts<cuda::kPackSize<T>, T, S> : launch_parts<1, T, S>)(stream, view, data, table);
}

template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<float, float>&, float*);
template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<double, double>&, double*);
template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<float16, float16>&, float*);
template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<bfloat16, bfloat16>&, float*);
template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<float16, float>&, float*);
template void launch_prelu_grad_parts(const Stream&, const ChannelView&, bool,
                                      const PReluGradData<bfloat16, float>&, float*);

template void launch_prelu_fold<float, float>(const Stream&, int64_t, int64_t, const float*, float*);
template void launch_prelu_fold<double, double>(const Stream&, int64_t, int64_t, const double*, double*);
template void launch_prelu_fold<float16, float16>(const Stream&, int64_t, int64_t, const float*, float16*);
template void launch_prelu_fold<bfloat16, bfloat16>(const Stream&, int64_t, int64_t, const float*, bfloat16*);
template void launch_prelu_fold<float16, float>(const Stream&, int64_t, int64_t, const float*, float*);
template void launch_prelu_fold<bfloat16, float>(const Stream&, int64_t, int64_t, const float*, float*);

}  // namespace sinter::ops
