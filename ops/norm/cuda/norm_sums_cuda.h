// Sums per channel over a tensor on a GPU, in two deterministic stages. For .cu files. NormPlan says how a
// tensor is cut.
//
// Terms, what is summed:
//   C, kValues, Parameter           the compute type; sums per channel; what a channel's terms need
//   kBlocks                         blocks that a processor must be able to hold, or 0
//   Loaded<pack>                    the elements of a pack, in registers
//   parameter(channel), and neighbours(channel, parameters), those of a pack of channels
//   load<pack>(offset)              Loaded of the pack at element `offset`
//   prefetch(offset)                sends for it, to the L2 cache
//   add(offset, loaded, parameters, sums)   adds the terms to sums[kValues][pack], C each
// Finish, on the device:
//   Known, known(channel)           what it has to read beside the sums, before these are there
//   finish(channel, known, sums)    with the double sums of a channel
#pragma once

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/ops/norm/cuda/norm_packs_cuda.h>

namespace sinter::ops {
namespace detail {

constexpr int kWarps = NormPlan::kThreads / kWarp;

/// Sums over the lanes of each of a block's columns, which one part has found: to the table, in which the
/// parts' lines of value k follow each other. To be called by all threads; those without a column have none.
template <int values, int pack, class C>
__device__ __forceinline__ void store_column_sums(const NormPlan& plan, int64_t tile, int64_t part,
                                                  C (&sums)[values][pack], C* table) {
  constexpr int line = NormPlan::kThreads + 4;  // the elements of a pack lie in different banks
  __shared__ C shared[values * pack][line];
  const int id = static_cast<int>(threadIdx.x), columns = plan.columns;
  const bool in_warps = columns <= kWarp && (columns & (columns - 1)) == 0;
  if (in_warps) {
    for (int step = kWarp / 2; step >= columns; step /= 2) {
#pragma unroll
      for (int i = 0; i < values * pack; ++i) {
        C& sum = sums[i / pack][i % pack];
        sum += __shfl_xor_sync(~0u, sum, step);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < values * pack; ++i) shared[i][id] = sums[i / pack][i % pack];
  __syncthreads();
  const int side = columns * pack;
  const int64_t first = tile * side;
  const int count = in_warps ? kWarps : plan.lanes(), step = in_warps ? kWarp : columns;
  const auto all_of = [&](int value, int place) {
    return &shared[value * pack + place % pack][place / pack];
  };
  const auto sum_of = [&](int value, int place) {
    const C* own = all_of(value, place);
    C sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum += own[i * step];
    return sum;
  };
  if (!plan.adds_folds()) {
    for (int i = id; i < values * side; i += NormPlan::kThreads) {
      const int value = i / side, place = i % side;
      if (first + place >= plan.width) continue;
      table[(value * plan.parts + part) * plan.width + first + place] = sum_of(value, place);
    }
    return;
  }
  // Each place's sum takes the place of its first lane's.
  for (int i = id; i < values * side; i += NormPlan::kThreads)
    *all_of(i / side, i % side) = sum_of(i / side, i % side);
  __syncthreads();
  // Place 0 is in column `begin` of its image; what a channel has begins at one of the first `image` places.
  const int image = static_cast<int>(plan.image()), begin = static_cast<int>(first % image);
  const int end = static_cast<int>(min(int64_t{side}, plan.width - first));
  for (int i = id; i < values * image; i += NormPlan::kThreads) {
    const int value = i / image, column = i % image;
    C sum = 0;
#pragma unroll 4
    for (int place = (column - begin + image) % image; place < end; place += image)
      sum += *all_of(value, place);
    table[((value * plan.parts + part) * plan.tiles + tile) * image + column] = sum;
  }
}

/// Adds the terms of one element to those of place `i` of a pack.
template <int pack, class Terms>
__device__ __forceinline__ void add_element(const Terms& terms, int64_t offset, int i,
                                            const typename Terms::Parameter& parameter,
                                            typename Terms::C (&sums)[Terms::kValues][pack]) {
  typename Terms::C own[Terms::kValues][1] = {};
  const typename Terms::Parameter parameters[1] = {parameter};
  terms.add(offset, terms.template load<1>(offset), parameters, own);
#pragma unroll
  for (int value = 0; value < Terms::kValues; ++value) {
#pragma unroll
    for (int k = 0; k < pack; ++k) sums[value][k] += k == i ? own[value][0] : typename Terms::C{0};
  }
}

/// Block (tile, part) of a plan by columns; `by_image` divides by the columns before they were folded,
/// `by_inner` by those of a channel.
template <int pack, int unroll, class Terms>
__global__ void __launch_bounds__(NormPlan::kThreads, Terms::kBlocks)
    sum_columns_kernel(Terms terms, NormPlan plan, cuda::WideDivide by_inner, cuda::WideDivide by_image,
                       typename Terms::C* table) {
  using C = typename Terms::C;
  cuda::let_next_begin();
  const int id = static_cast<int>(threadIdx.x), lanes = plan.lanes(), lane = id / plan.columns;
  const int64_t part = blockIdx.x / plan.tiles, tile = blockIdx.x - part * plan.tiles;
  const int64_t column = (tile * plan.columns + id - lane * plan.columns) * pack;
  C sums[Terms::kValues][pack] = {};
  if (lane < lanes && column < plan.width) {
    // What is left behind the last row is one more where it is a whole pack.
    const int64_t step = plan.parts * lanes, items = plan.items + (column + pack <= plan.rest ? 1 : 0);
    int64_t row = part * lanes + lane;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (pack > 1 && row + u * step < items) terms.prefetch((row + u * step) * plan.width + column);
    }
    typename Terms::Parameter parameters[pack];
    if (pack > 1 && plan.inner == 1 && plan.fold == 1) {
      if constexpr (pack > 1) terms.neighbours(column, parameters);
    } else {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        int64_t own = column + i, place;
        if (plan.fold > 1) by_image.divide(column + i, own);
        parameters[i] = terms.parameter(plan.inner == 1 ? own : by_inner.divide(own, place));
      }
    }
    // `most` rows that are read together; where the last may not be there, the first again in their place.
    const auto add_rows = [&]<int most, bool whole>() {
      typename Terms::template Loaded<pack> loaded[most];
      int64_t offsets[most];
#pragma unroll
      for (int u = 0; u < most; ++u) {
        const int64_t at = whole || row + u * step < items ? row + u * step : row;
        offsets[u] = at * plan.width + column;
        loaded[u] = terms.template load<pack>(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < most; ++u) {
        if (!whole && row >= items) break;
        terms.add(offsets[u], loaded[u], parameters, sums);
        row += step;
      }
    };
    while (row + (unroll - 1) * step < items) add_rows.template operator()<unroll, true>();
    if constexpr (unroll > 1) {
      if (row < items) add_rows.template operator()<unroll - 1, false>();
    }
    if (row == plan.items && column < plan.rest) {
      const int64_t offset = row * plan.width + column;
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        if (column + i < plan.rest) add_element(terms, offset + i, i, parameters[i], sums);
      }
    }
  }
  store_column_sums(plan, tile, part, sums, table);
}

/// Adds what planes of `channel` have in front of their first own pack, and behind their last one, in the
/// images of `part`: each thread takes the same place of such packs in other images.
template <int pack, class Terms>
__device__ __forceinline__ void add_ends(const Terms& terms, const NormPlan& plan, int64_t images,
                                         int64_t part, int64_t channel,
                                         const typename Terms::Parameter& parameter,
                                         typename Terms::C (&sums)[Terms::kValues][pack]) {
  constexpr int in_flight = 4, places = 2 * pack;
  const int id = static_cast<int>(threadIdx.x), place = id % places;
  const int64_t step = NormPlan::kThreads / places * plan.parts, somewhere = channel * plan.inner;
  const typename Terms::Parameter parameters[1] = {parameter};
  for (int64_t image = part + id / places * plan.parts; image < images; image += in_flight * step) {
    typename Terms::template Loaded<1> loaded[in_flight];
    int64_t offsets[in_flight];
    bool has[in_flight];
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const int64_t begin = ((image + u * step) * plan.channels + channel) * plan.inner,
                    end = begin + plan.inner;
      const int64_t first = (begin + pack - 1) & ~int64_t{pack - 1}, last = end & ~int64_t{pack - 1};
      offsets[u] = (place < pack ? first : last) + place - pack;
      has[u] = image + u * step < images && (place < pack ? offsets[u] >= begin : offsets[u] < end);
      loaded[u] = terms.template load<1>(has[u] ? offsets[u] : somewhere);
    }
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      typename Terms::C own[Terms::kValues][1] = {};
      if (has[u]) terms.add(offsets[u], loaded[u], parameters, own);
#pragma unroll
      for (int value = 0; value < Terms::kValues; ++value) sums[value][u % pack] += own[value][0];
    }
  }
}

/// Block (channel, part) of a plan by planes; `by_plane` divides by the packs of a plane.
template <int pack, int unroll, bool straddles, class Terms>
__global__ void __launch_bounds__(NormPlan::kThreads, straddles&& Terms::kBlocks < 2 ? 2 : Terms::kBlocks)
    sum_planes_kernel(Terms terms, NormPlan plan, cuda::WideDivide by_plane, typename Terms::C* table) {
  using C = typename Terms::C;
  __shared__ C shared[Terms::kValues][kWarps];
  cuda::let_next_begin();
  const int id = static_cast<int>(threadIdx.x);
  const int64_t part = blockIdx.x / plan.channels, channel = blockIdx.x - part * plan.channels;
  const int64_t step = plan.parts * NormPlan::kThreads;
  // Where an item's pack begins; `has` says whether it is there, as it may not be where packs straddle: then
  // it is the one before.
  const auto offset_of = [&](int64_t item, bool& has) {
    int64_t place;
    const int64_t begin = (by_plane.divide(item, place) * plan.channels + channel) * plan.inner;
    const int64_t offset = (straddles ? (begin + pack - 1) & ~int64_t{pack - 1} : begin) + place * pack;
    has = !straddles || offset + pack <= begin + plan.inner;
    return has ? offset : offset - pack;
  };
  int64_t item = part * NormPlan::kThreads + id;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    bool has;
    if (pack > 1 && item + u * step < plan.items) terms.prefetch(offset_of(item + u * step, has));
  }
  typename Terms::Parameter parameters[pack];
  parameters[0] = terms.parameter(channel);
#pragma unroll
  for (int i = 1; i < pack; ++i) parameters[i] = parameters[0];
  C lanes[Terms::kValues][pack] = {};
  if constexpr (straddles) {
    int64_t none;
    add_ends(terms, plan, by_plane.divide(plan.items, none), part, channel, parameters[0], lanes);
  }
  // `unroll` items, the last of which may not be there if not `whole`. Branches between the loads would hold
  // them up: in place of those that are not there, others are read.
  const auto add_batch = [&]<bool whole>() {
    typename Terms::template Loaded<pack> loaded[unroll];
    int64_t offsets[unroll];
    bool has[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const bool in_range = whole || item + u * step < plan.items;
      offsets[u] = offset_of(in_range ? item + u * step : item, has[u]);
      has[u] = has[u] && in_range;
      loaded[u] = terms.template load<pack>(offsets[u]);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (has[u]) terms.add(offsets[u], loaded[u], parameters, lanes);
    }
  };
  for (; item + (unroll - 1) * step < plan.items; item += unroll * step)
    add_batch.template operator()<true>();
  if (item < plan.items) add_batch.template operator()<false>();
#pragma unroll
  for (int value = 0; value < Terms::kValues; ++value) {
    C sum = lanes[value][0];
#pragma unroll
    for (int i = 1; i < pack; ++i) sum += lanes[value][i];
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    if (id % kWarp == 0) shared[value][id / kWarp] = sum;
  }
  __syncthreads();
  if (id >= Terms::kValues) return;
  C sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += shared[id][warp];
  table[(id * plan.parts + part) * plan.width + channel] = sum;
}

/// Adds up the partial results of `side` neighbouring channels per block and finishes them: as a
/// NormFinishPlan says. `by_columns` divides by the columns of a channel.
template <int values, class C, class Finish>
__global__ void __launch_bounds__(NormFinishPlan::kMostThreads)
    finish_channels_kernel(NormPlan plan, int side, cuda::WideDivide by_columns, const C* table,
                           Finish finish) {
  static_assert(values * kWarp <= NormFinishPlan::kLeastThreads);
  __shared__ double shared[values][NormFinishPlan::kMostThreads / kWarp][kWarp];
  cuda::let_next_begin();
  const int id = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lanes = threads / side, warps = threads / kWarp;
  const int64_t channel = int64_t{blockIdx.x} * side + id % side, columns = plan.columns_per_channel();
  const bool finishes = id < side && channel < plan.channels;
  double sums[values] = {};
  typename Finish::Known known;
  if (finishes) known = finish.known(channel);  // older than the kernel before this one
  cuda::wait_for_previous();
  if (channel < plan.channels) {
    const C* own = table + channel * columns;
#pragma unroll 4
    for (int64_t i = id / side; i < plan.parts * columns; i += lanes) {
      int64_t column = 0;
      const int64_t part = columns == 1 ? i : by_columns.divide(i, column);
#pragma unroll
      for (int value = 0; value < values; ++value) {
        sums[value] += static_cast<double>(own[(value * plan.parts + part) * plan.width + column]);
      }
    }
  }
#pragma unroll
  for (int value = 0; value < values; ++value) {
    for (int step = kWarp / 2; step >= side; step /= 2) {
      sums[value] += __shfl_xor_sync(~0u, sums[value], step);
    }
    shared[value][id / kWarp][id % kWarp] = sums[value];
  }
  __syncthreads();
  if (id >= kWarp * values) return;
  // Warp k adds value k of all warps up, in groups of lanes for the channels; then its sums go to warp 0.
  const int value = id / kWarp, place = id % kWarp % side;
  double sum = 0.0;
  for (int warp = id % kWarp / side; warp < warps; warp += kWarp / side) sum += shared[value][warp][place];
  for (int step = kWarp / 2; step >= side; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  __syncwarp();
  shared[value][0][id % kWarp] = sum;
  asm volatile("bar.sync 1, %0;" ::"n"(kWarp * values) : "memory");
  if (!finishes) return;
#pragma unroll
  for (int k = 0; k < values; ++k) sums[k] = shared[k][0][id];
  finish(channel, known, static_cast<const double*>(sums));
}

}  // namespace detail

/// Elements of an access of 16 bytes by the sums.
template <class T>
inline constexpr int kSumPack = cuda::kPackSize<T>;

/// Sums the terms over the tensor that `plan` cuts, into `table` (kValues tables of the plan). A thread has
/// `column_packs` packs in flight by columns, `plane_packs`, of `plane_pack` elements, by planes,
/// `straddling_packs`, of 16 bytes, where these straddle planes; of single elements twice as many, since they
/// are small.
template <class T, int column_packs, int plane_packs, int plane_pack, int straddling_packs = plane_packs,
          class Terms>
void sum_channels(const Stream& stream, const NormPlan& plan, const Terms& terms, typename Terms::C* table) {
  if (plan.blocks() == 0) return;
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())), dim3(NormPlan::kThreads)};
  const auto columns = [&](auto* kernel) {
    cuda::launch(stream, shape, kernel, terms, plan, cuda::WideDivide(plan.inner),
                 cuda::WideDivide(plan.image()), table);
  };
  const auto planes = [&](auto* kernel) {
    cuda::launch(stream, shape, kernel, terms, plan, cuda::WideDivide(plan.plane_packs()), table);
  };
  if constexpr (has_norm_packs<T>) {
    if (plan.pack > 1 && plan.by_columns)
      return columns(detail::sum_columns_kernel<kSumPack<T>, column_packs, Terms>);
    if (plan.straddles) return planes(detail::sum_planes_kernel<kSumPack<T>, straddling_packs, true, Terms>);
    if (plan.pack > 1) return planes(detail::sum_planes_kernel<plane_pack, plane_packs, false, Terms>);
  }
  plan.by_columns ? columns(detail::sum_columns_kernel<1, 2 * column_packs, Terms>)
                  : planes(detail::sum_planes_kernel<1, 2 * plane_packs, false, Terms>);
}

/// Adds the partial results in `table` up and finishes every channel.
template <int values, class C, class Finish>
void finish_channels(const Stream& stream, const NormPlan& of_sums, const C* table, const Finish& finish) {
  const NormPlan plan = of_sums.unfolded();
  const auto [side, threads] = plan_norm_finish(plan.parts, plan.columns_per_channel());
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(cuda::blocks_for(plan.channels, side))),
                                dim3(static_cast<unsigned>(threads))};
  const auto kernel = detail::finish_channels_kernel<values, C, Finish>;
  const cuda::WideDivide by_columns(std::max<int64_t>(plan.columns_per_channel(), 1));
  if (plan.blocks() == 0) {  // no kernel of sums comes before it
    cuda::launch(stream, shape, kernel, plan, int{side}, by_columns, table, finish);
  } else {
    cuda::launch_early(stream, shape, kernel, plan, int{side}, by_columns, table, finish);
  }
}

}  // namespace sinter::ops
