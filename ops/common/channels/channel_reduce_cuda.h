// Sums per channel on a GPU, in a fixed order: every block sums up some channels or parts of them, and where
// there are several parts, or copies of a channel in a row, a second kernel adds them up. For .cu files.
//
// Terms say what is summed up; they may write, too:
//   C                                    the type of sums
//   kInFlight<pack, one_sum>             packs that a thread loads before it uses any
//   Terms at(element, channel)           those of the tensor from that element and channel on
//   Loaded load<pack>(i)                 what is loaded for pack i
//   Loaded load_some<pack>(i, from, to)  the same if only elements [from, to) of it exist
//   Parameters parameters<pack>(at)      of the channels of a pack: at is RunChannels or ElementChannels
//   add<pack>(loaded, parameters, i, from, to, sums)
//                     takes in elements [from, to) of pack i. C (&sums)[pack]: a sum for each element, of
//                     which those of other elements are not used; or sums[1]: of [from, to)
// A Finish is called on the device as finish(out, sum) for every channel of every group.
#pragma once

#include <optional>

#include <cuda_runtime.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/ops/common/channels/channel_plan.h>
#include <sinter/ops/common/channels/split_reduce_cuda.h>

namespace sinter::ops {

/// The channels of a pack that has at most two: of the elements in front of `change`, and of those from it
/// on.
struct RunChannels {
  uint32_t first, next;
  int change;
};

/// The channel of an element that is number `place` of its run, and of those behind it.
struct ElementChannels {
  uint32_t channel, place, inner, channels;

  /// Whether packs of so many elements have aligned vectors of channels.
  __device__ bool adjoin(unsigned pack) const { return inner == 1 && channels % pack == 0; }
  __device__ void next() {
    if (++place == inner) place = 0, channel = channel + 1 == channels ? 0 : channel + 1;
  }
};

/// Where the sums of a cut go: into table rows of `outs` places or, without a table, to their finish.
template <class C, class Finish>
struct ChannelSink {
  C* table;
  int64_t outs, first;  ///< first: the out that is the cut's first
  Finish finish;

  __device__ __forceinline__ void put(uint32_t row, uint32_t out, C sum) const {
    if (table == nullptr) {
      finish(first + out, sum);
    } else {
      table[row * outs + first + out] = sum;
    }
  }
};

namespace detail {

/// The sum of the values of each group of `lanes` threads (a power of two) of a warp, at all of them.
template <class C>
__device__ __forceinline__ C sum_of_lanes(C sum, unsigned lanes = 32) {
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0U, sum, distance);
  return sum;
}

/// Takes in a thread's packs i, i + step, ... below `end`. Calls join(sums) with those of packs that were in
/// flight together: registers are what limits them, and neither sums nor parameters are alive while packs are
/// awaited.
template <int pack, class Terms, class Parameters, class Join>
__device__ __forceinline__ void take_column(const Terms& terms, uint32_t i, uint32_t end, uint32_t step,
                                            int from, int to, Parameters parameters_of, Join join) {
  constexpr int unroll = Terms::template kInFlight<pack, false>;
  const uint32_t stride = unroll * min(step, ~0U / unroll);  // 2^32 would be none
  while (i < end) {
    typename Terms::template Loaded<pack> loaded[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step < end) loaded[u] = terms.template load<pack>(i + u * step);
    }
    const auto parameters = parameters_of();
    typename Terms::C sums[pack] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      terms.template add<pack>(loaded[u], parameters, i + u * step, from, to, sums);
    }
    join(sums);
    if (end - i <= stride) break;
    i += stride;
  }
}

/// Where a thread of fixed columns is.
struct ColumnPlace {
  uint32_t lane, group, tile;
  ChannelColumn at;

  __device__ __forceinline__ ColumnPlace(const ChannelCut& cut, uint32_t thread, int pack) {
    uint32_t x;
    lane = cut.by_width.divide(thread, x);
    group = cut.by_tiles.divide(blockIdx.x, tile);
    at = cut.column_of(tile, x, pack);
  }
  __device__ __forceinline__ bool has_packs(const ChannelCut& cut) const {
    return lane < cut.lanes && !at.is_empty();
  }
  /// The pack of row 0.
  __device__ __forceinline__ uint32_t first_pack(const ChannelCut& cut, int pack) const {
    return group * (cut.outer * cut.channels * cut.inner / static_cast<uint32_t>(pack)) + at.column;
  }
};

/// Takes in the elements that a thread's column has behind its last whole pack, if the tensor ends there;
/// calls join(element of the pack, sum). Its place is computed anew: registers are short while packs are
/// awaited.
template <int pack, class Terms, class Join>
__device__ __forceinline__ void take_behind(const ChannelCut& cut, const Terms& terms, Join join) {
  if (blockIdx.y > 0 || cut.rest % pack == 0) return;
  const ColumnPlace place(cut, cuda::in_register(threadIdx.x), pack);
  if (place.lane > 0 || !place.has_packs(cut)) return;
  const uint32_t first = (place.first_pack(cut, pack) + cut.rows * cut.columns) * pack;
  const int end = min(cut.elements_behind(place.at.column), place.at.to);
#pragma unroll 1
  for (int e = place.at.from; e < end; ++e) {
    const auto i = static_cast<uint32_t>(e);
    uint32_t channel;
    cut.by_channels.divide(cut.by_inner.divide(place.at.column * pack + i), channel);
    typename Terms::C sum[1] = {};
    terms.template add<1>(terms.template load<1>(first + i),
                          terms.template parameters<1>(RunChannels{channel, channel, 1}), first + i, 0, 1,
                          sum);
    join(e, e < place.at.change, sum[0]);
  }
}

/// Adds up the sums of a tile of runs and puts them. shared[thread]: the sum of the run in which a column
/// begins; shared[kMostThreads + thread]: of the next one.
template <int pack, class C, class Sink>
__device__ __forceinline__ void add_runs(const ChannelCut& cut, uint32_t tile, const C* shared, Sink sink) {
  const uint32_t runs = cut.runs_of(tile), offset = cut.offset_of(tile, pack);
  const unsigned members = 1U << cut.log_members, across = 1U << cut.log_across;
  const unsigned member = threadIdx.x & (members - 1);
  for (uint32_t base = 0; base < runs; base += blockDim.x >> cut.log_members) {
    const uint32_t run = base + (threadIdx.x >> cut.log_members);
    C sum = 0;
    if (run < runs) {
      const uint32_t begin = offset + run * cut.inner, low = begin / pack,
                     high = (begin + cut.inner - 1) / pack;
      const C* const of_low = shared + (run > 0 && begin % pack != 0 ? ChannelCut::kMostThreads : 0);
      for (uint32_t lane = member >> cut.log_across; lane < cut.lanes; lane += members >> cut.log_across) {
        for (uint32_t k = low + (member & (across - 1)); k <= high; k += across) {
          sum += (k == low ? of_low : shared)[lane * cut.width + k];
        }
      }
    }
    sum = sum_of_lanes(sum, members);
    if (run < runs && member == 0) sink(run, sum);
  }
}

/// The same for a tile of elements; shared[lane][element] are overwritten. Begins with a barrier.
template <class C, class Sink>
__device__ __forceinline__ void add_elements(const ChannelCut& cut, uint32_t tile, C* shared, Sink sink) {
  const uint32_t elements = cut.by_tile.divisor();
  if (cut.lanes > ChannelCut::kFewLanes) {
    const C sum = cuda::add_columns<ChannelCut::kElementThreads>(shared, cut.lanes, elements, cut.by_tile);
    __syncthreads();
    if (threadIdx.x < elements) shared[threadIdx.x] = sum;
  } else {
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < elements; e += blockDim.x) {
      shared[e] = cuda::add_strided<4>(shared, e, cut.lanes * elements, elements);
    }
  }
  __syncthreads();
  const uint32_t runs = cut.runs_of(tile);
  for (uint32_t run = threadIdx.x; run < runs; run += blockDim.x) {
    sink(run, cuda::add_strided<4>(shared, run * cut.inner, (run + 1) * cut.inner, 1U));
  }
}

/// Block (tile of a group, part): fixed columns, by runs or by elements.
template <bool runs, int pack, class Terms, class Sink>
__global__ void __launch_bounds__(runs ? ChannelCut::kMostThreads : ChannelCut::kElementThreads, runs ? 1 : 2)
    reduce_columns_kernel(const __grid_constant__ ChannelCut cut, const __grid_constant__ Terms terms,
                          const __grid_constant__ Sink sink) {
  using C = typename Terms::C;
  __shared__ C shared[runs ? 2 * ChannelCut::kMostThreads : pack * ChannelCut::kElementThreads];
  cuda::let_next_begin();
  const uint32_t part = blockIdx.y;
  // With runs own[0] is the first run's, and the next one's lies in shared memory: registers are short.
  C own[runs ? 1 : pack] = {};
  C* const mine = shared + threadIdx.x * (runs ? 1 : pack);
  if constexpr (runs) mine[ChannelCut::kMostThreads] = 0;
  const ColumnPlace place(cut, threadIdx.x, pack);
  if (place.has_packs(cut)) {
    const ChannelColumn& at = place.at;
    // Packs are counted through all rows, so that a number is a place.
    const uint32_t first = place.first_pack(cut, pack), step = cut.lanes * cut.columns;
    const uint32_t i = first + (cut.first_row(part) + place.lane) * cut.columns;
    const uint32_t end = first + cut.end_row(part, at.column) * cut.columns;
    uint32_t channel;
    cut.by_channels.divide(at.run, channel);
    if constexpr (runs) {
      const uint32_t next = channel + 1 == cut.channels ? 0 : channel + 1;
      take_column<pack>(
          terms, i, end, step, at.from, at.to,
          [&] {  // not loaded in front of the loop, to be waited for before the loop's own loads begin
            return terms.template parameters<pack>(
                RunChannels{cuda::in_register(channel), cuda::in_register(next), at.change});
          },
          [&](const C(&sums)[pack]) {
            C first = 0, second = 0;
#pragma unroll
            for (int e = 0; e < pack; ++e) {
              const C sum = e >= at.from && e < at.to ? sums[e] : C{0};
              first += e < at.change ? sum : C{0};
              second += e < at.change ? C{0} : sum;
            }
            own[0] += first;
            mine[ChannelCut::kMostThreads] += second;
          });
    } else {
      const uint32_t in_run = cut.inner - static_cast<uint32_t>(at.change);
      const auto parameters =
          terms.template parameters<pack>(ElementChannels{channel, in_run, cut.inner, cut.channels});
      take_column<pack>(
          terms, i, end, step, 0, pack, [&] { return parameters; },
          [&](const C(&sums)[pack]) {
#pragma unroll
            for (int e = 0; e < pack; ++e) own[e] += sums[e];
          });
    }
  }
  if (runs || threadIdx.x < cut.lanes * cut.width) {
#pragma unroll
    for (int e = 0; e < (runs ? 1 : pack); ++e) mine[e] = own[e];
  }
  take_behind<pack>(cut, terms, [&](int e, bool is_first, C sum) {
    mine[runs ? (is_first ? 0 : ChannelCut::kMostThreads) : e] += sum;
  });
  uint32_t tile;
  const uint32_t group = cut.by_tiles.divide(cuda::in_register(blockIdx.x), tile);
  const auto put = [&](uint32_t run, C sum) {
    uint32_t channel;
    const uint32_t copy = cut.by_channels.divide(tile * cut.tile_runs + run, channel);
    sink.put(part * cut.copies + copy, group * cut.channels + channel, sum);
  };
  if constexpr (runs) {
    __syncthreads();
    add_runs<pack>(cut, tile, shared, put);
  } else {
    add_elements(cut, tile, shared, put);
  }
}

/// Block (channel, part): a part of one channel's planes.
template <int pack, class Terms, class Sink>
__global__ void __launch_bounds__(ChannelCut::kMostThreads, 1)
    reduce_planes_kernel(const __grid_constant__ ChannelCut cut, const __grid_constant__ Terms terms,
                         const __grid_constant__ Sink sink) {
  using C = typename Terms::C;
  constexpr int unroll = Terms::template kInFlight<pack, true>;
  __shared__ C shared[32];
  cuda::let_next_begin();
  const uint32_t channel = blockIdx.x, part = blockIdx.y, step = blockDim.x, items = cut.items();
  const uint32_t begin = part * cut.part_steps, elements = cut.outer * cut.channels * cut.inner;
  const uint32_t end = cut.part_steps < items - begin ? begin + cut.part_steps : items;
  C total = 0;
#pragma unroll 1
  for (uint32_t i = begin + threadIdx.x; i < end; i += unroll * step) {
    typename Terms::template Loaded<pack> loaded[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      const PlanePack at = cut.plane_pack(i + u * step, channel, pack);
      if (at.from == at.to) continue;
      loaded[u] = at.first + pack <= elements
                      ? terms.template load<pack>(at.first / pack)
                      : terms.template load_some<pack>(at.first / pack, at.from, at.to);
    }
    const uint32_t here = cuda::in_register(channel);
    const auto parameters = terms.template parameters<pack>(RunChannels{here, here, pack});
    C sums[1] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      // Its place is computed anew: registers are short while packs are awaited.
      const PlanePack at = cut.plane_pack(cuda::in_register(i + u * step), channel, pack);
      if (at.from == at.to) continue;
      terms.template add<pack>(loaded[u], parameters, at.first / pack, at.from, at.to, sums);
    }
    total += sums[0];
  }
  total = sum_of_lanes(total);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  total = sum_of_lanes(threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : C{0});
  if (threadIdx.x == 0) sink.put(part, channel, total);
}

template <int widest, class Terms, class Sink>
void launch_cut(const Stream& stream, const ChannelCut& cut, const Terms& terms, const Sink& sink) {
  const cuda::LaunchShape shape{.grid = dim3(cut.groups * cut.tiles, cut.parts),
                                .block = dim3(static_cast<unsigned>(cut.threads))};
  const bool wide = cut.pack > 1;
  switch (cut.walk) {
    case ChannelWalk::kElements:
      return cuda::launch(stream, shape,
                          wide ? reduce_columns_kernel<false, widest, Terms, Sink>
                               : reduce_columns_kernel<false, 1, Terms, Sink>,
                          cut, terms, sink);
    case ChannelWalk::kRuns:
      return cuda::launch(stream, shape, reduce_columns_kernel<true, widest, Terms, Sink>, cut, terms, sink);
    case ChannelWalk::kPlanes:
      return cuda::launch(
          stream, shape,
          wide ? reduce_planes_kernel<widest, Terms, Sink> : reduce_planes_kernel<1, Terms, Sink>, cut, terms,
          sink);
  }
}

}  // namespace detail

/// What is summed up, with the device's traits.
struct ChannelReduction {
  ChannelGroups shape;
  int64_t element_bytes;
  const cuda::DeviceTraits& traits;
  std::optional<ChannelWalk> forced = {};  ///< wherever it can be

  /// Calls body(cut, slab) for each slab of the tensor; `wide`: all addresses allow packs of 16 bytes.
  template <class Body>
  void for_each_cut(bool wide, Body&& body) const {
    const int64_t widest = 16 / element_bytes;
    for_each_group_slab(shape.simplified(), kMostSlabElements, widest, [&](const GroupSlab& slab) {
      const bool packs = wide && slab.first % widest == 0 &&
                         (slab.shape.groups == 1 || slab.shape.view.numel() % widest == 0);
      const int64_t pack = packs ? widest : 1;
      const bool can = forced && can_walk(*forced, slab.shape, pack);
      body(plan_channels(slab.shape, can ? *forced : choose_walk(slab.shape, pack, element_bytes), pack,
                         element_bytes, traits),
           slab);
    });
  }
  /// The rows of the table of all slabs; 0 if sums are whole without it.
  int64_t table_rows(bool wide) const {
    int64_t rows = 0;
    for_each_cut(wide, [&](const ChannelCut& cut, const GroupSlab&) { rows += cut.table_rows(); });
    return rows > 1 ? rows : 0;
  }
  /// Bytes of scratch for sums of `sum_bytes`, whatever the alignment.
  size_t table_bytes(size_t sum_bytes) const {
    const int64_t rows = std::max(table_rows(false), table_rows(true));
    return static_cast<size_t>(rows * shape.outs()) * sum_bytes;
  }
};

/// Sums up the channels of a tensor of Ts and finishes them: those of an empty tensor are 0. `wide`: all that
/// the terms touch allows packs of 16 bytes. `table`: scratch of table_bytes(sizeof(C)).
template <class T, class Terms, class Finish>
void channel_reduce(const Stream& stream, const ChannelReduction& of, bool wide, const Terms& terms,
                    typename Terms::C* table, const Finish& finish) {
  using C = typename Terms::C;
  const int64_t outs = of.shape.outs();
  if (outs == 0) return;
  const int64_t rows = of.table_rows(wide);
  if (of.shape.numel() > kMostSlabElements) {  // not every slab has every channel
    SINTER_CUDA_CHECK(cudaMemsetAsync(table, 0, static_cast<size_t>(rows * outs) * sizeof(C),
                                      static_cast<cudaStream_t>(stream.native)));
  }
  C* to = rows > 0 ? table : nullptr;
  of.for_each_cut(wide, [&](const ChannelCut& cut, const GroupSlab& slab) {
    const ChannelSink<C, Finish> sink{to, outs, slab.out, finish};
    detail::launch_cut<cuda::kPackSize<T>>(stream, cut, terms.at(slab.first, slab.channel), sink);
    if (rows > 0) to += cut.table_rows() * outs;
  });
  if (rows > 0 || of.shape.numel() == 0) split_reduce<C>(stream, rows, outs, table, finish);
}

}  // namespace sinter::ops
