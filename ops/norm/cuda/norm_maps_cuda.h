// Maps over a tensor on a GPU, with parameters per channel. For .cu files. NormPlan says how a tensor is cut.
//
// Map, what is mapped:
//   Parameter, channels             its MapParameters
//   kBlocks                         blocks by columns that a processor must be able to hold, or 0
//   load<pack, whole>(offset, valid)        valid < pack only if not `whole`; then elements may lie anywhere
//   apply<whole>(offset, valid, parameters, loaded)
#pragma once

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/core/cuda/device/resident_blocks.h>
#include <sinter/ops/norm/cuda/norm_packs_cuda.h>

namespace sinter::ops {
namespace detail {

/// Block (tile, part) of a plan by columns, from the last rows to the first: the last ones are those that the
/// pass before has left in the cache.
/// Told how many blocks there should be, compilers have registers for all of a batch's loads; else they put
/// some off behind what the first ones are for.
template <int pack, int unroll, bool folds, class Map>
__global__ void __launch_bounds__(NormPlan::kThreads, Map::kBlocks)
    map_columns_kernel(Map map, NormPlan plan, cuda::WideDivide by_image) {
  cuda::let_next_begin();
  const int id = static_cast<int>(threadIdx.x), lanes = plan.lanes(), lane = id / plan.columns;
  const int64_t part = blockIdx.x / plan.tiles, tile = blockIdx.x - part * plan.tiles;
  const int64_t column = (tile * plan.columns + id - lane * plan.columns) * pack;
  if (lane >= lanes || column >= plan.width) return;
  cuda::wait_for_previous();
  typename Map::Parameter parameters[pack];
  if constexpr (folds) {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      int64_t channel;
      by_image.divide(column + i, channel);
      parameters[i] = map.channels.at(channel);
    }
  } else {
    map.channels.neighbours(column, parameters);
  }
  const int64_t step = plan.parts * lanes, first = part * lanes + lane;
  int64_t left = first < plan.items ? (plan.items - 1 - first) / step + 1 : 0;
  // What is left behind the last row is one more where it is a whole group. Else threads that share a byte of
  // the mask write it together, whichever of them have elements.
  const int64_t group = column & ~int64_t{NormPlan::kGroup - 1};
  if (folds && first + left * step == plan.items && group + NormPlan::kGroup <= plan.rest) {
    ++left;
  } else if (folds && first + left * step == plan.items && group < plan.rest) {
    const int64_t offset = plan.items * plan.width + column;
    const int valid = static_cast<int>(min(max(plan.rest - column, int64_t{0}), int64_t{pack}));
    map.template apply<false>(offset, valid, parameters, map.template load<pack, false>(offset, valid));
  }
  int64_t offset = (first + (left - 1) * step) * plan.width + column;
  const int64_t stride = -step * plan.width;
  // `most` rows that are read together; where the last may not be there, the first again in their place.
  const auto map_rows = [&]<int most, bool whole>() {
    typename Map::template Loaded<pack> loaded[most];
#pragma unroll
    for (int u = 0; u < most; ++u) {
      loaded[u] = map.template load<pack, true>(whole || u < left ? offset + u * stride : offset, pack);
    }
#pragma unroll
    for (int u = 0; u < most; ++u) {
      if (!whole && u >= left) break;
      map.template apply<true>(offset + u * stride, pack, parameters, loaded[u]);
    }
  };
  for (; left >= unroll; left -= unroll, offset += unroll * stride)
    map_rows.template operator()<unroll, true>();
  if constexpr (unroll > 1) {
    if (left > 0) map_rows.template operator()<unroll - 1, false>();
  }
}

/// Packs of a plane from which on most warps have none that crosses into the next plane.
constexpr int kLongFlatPlane = 2 * kWarp;

/// How map_flat_kernel finds the channels of a pack.
enum class FlatWalk {
  kOneChannel,   ///< planes come in whole packs
  kTwoChannels,  ///< planes are no shorter than a pack, which may cross into the next; the last may be a part
  kAnything      ///< elements are accessed, and counted on from the pack's first, one by one
};

/// Blocks that a processor must be able to hold, or 0: parameters of two channels must not take the registers
/// of as many as keep memory busy.
template <FlatWalk walk, int pack, int unroll, class Map>
constexpr int flat_blocks() {
  constexpr size_t loaded = unroll * sizeof(typename Map::template Loaded<pack>);
  constexpr size_t parameters = 2 * sizeof(typename Map::Parameter);
  return walk != FlatWalk::kTwoChannels ? 0 : loaded + parameters <= 100 ? 4 : loaded <= 80 ? 3 : 0;
}

/// What belongs to the elements of a pack that begins at `place` of a plane of `channel`.
template <bool one_channel, int pack, class Map>
__device__ __forceinline__ void count_parameters(const Map& map, int64_t place, int64_t channel,
                                                 int64_t inner, int64_t channels,
                                                 typename Map::Parameter (&parameters)[pack]) {
  parameters[0] = map.channels.at(channel);
#pragma unroll
  for (int i = 1; i < pack; ++i) {
    parameters[i] = parameters[i - 1];
    if constexpr (!one_channel) {
      if (++place == inner) {
        place = 0;
        if (++channel == channels) channel = 0;
        parameters[i] = map.channels.at(channel);
      }
    }
  }
}

/// Maps a whole pack, of which the first `split` elements belong to `channel` and those behind to the next
/// one. Few packs of long planes cross: the others need no second channel. Whole groups have code of their
/// own for that, without the selections; threads that share a byte of the mask must write it together.
template <int pack, class Map>
__device__ __forceinline__ void map_crossing(const Map& map, int64_t offset, int64_t split, int64_t channel,
                                             int64_t channels, bool long_planes,
                                             const typename Map::template Loaded<pack>& loaded) {
  constexpr bool shares = pack < NormPlan::kGroup;
  typename Map::Parameter parameters[pack];
  const typename Map::Parameter own = map.channels.at(channel);
#pragma unroll
  for (int i = 0; i < pack; ++i) parameters[i] = own;
  const bool within = long_planes && split >= pack;
  if (!shares && within) {
    map.template apply<true>(offset, pack, parameters, loaded);
    return;
  }
  if (!shares || !within) {
    const typename Map::Parameter next = map.channels.at(split >= pack             ? channel
                                                         : channel + 1 == channels ? 0
                                                                                   : channel + 1);
#pragma unroll
    for (int i = 1; i < pack; ++i) {
      if (i >= split) parameters[i] = next;
    }
  }
  map.template apply<true>(offset, pack, parameters, loaded);
}

/// Any view, `unroll` packs per thread, from the last to the first. Packs that share a byte of the mask are
/// taken alike: whole, where their group is, else one element at a time.
template <FlatWalk walk, int pack, int unroll, class Map>
__global__ void __launch_bounds__(NormPlan::kThreads, (flat_blocks<walk, pack, unroll, Map>()))
    map_flat_kernel(Map map, int64_t count, cuda::WideDivide by_inner, cuda::WideDivide by_channels,
                    int64_t inner, int64_t channels) {
  constexpr bool whole = walk != FlatWalk::kAnything;
  constexpr bool may_end = walk == FlatWalk::kTwoChannels;
  constexpr int group = NormPlan::kGroup;
  cuda::let_next_begin();
  const int64_t block = gridDim.x - 1 - blockIdx.x;
  const int64_t first = (block * unroll * NormPlan::kThreads + threadIdx.x) * pack;
  cuda::wait_for_previous();
  const auto group_of = [](int64_t offset) { return offset & ~int64_t{group - 1}; };
  const auto valid_of = [&](int64_t offset) {
    return static_cast<int>(min(max(count - offset, int64_t{0}), int64_t{pack}));
  };
  typename Map::template Loaded<pack> loaded[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const int64_t offset = first + u * NormPlan::kThreads * pack;
    const bool there = group_of(offset) + (may_end ? group - 1 : 0) < count;
    // Another whole pack is read in place of one that is not there: without a branch, no load's data is
    // waited for before they are looked at.
    if (whole || there)
      loaded[u] = map.template load<pack, whole>(there ? offset : 0, whole ? pack : valid_of(offset));
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const int64_t offset = first + u * NormPlan::kThreads * pack;
    if (group_of(offset) >= count) break;
    const bool ends = may_end && group_of(offset) + group > count;
    int64_t place, channel;
    by_channels.divide(by_inner.divide(offset, place), channel);
    if (walk == FlatWalk::kTwoChannels && !ends) {
      map_crossing<pack>(map, offset, inner - place, channel, channels, inner >= kLongFlatPlane * pack,
                         loaded[u]);
      continue;
    }
    typename Map::Parameter parameters[pack];
    count_parameters<walk == FlatWalk::kOneChannel>(map, place, channel, inner, channels, parameters);
    const int valid = walk == FlatWalk::kOneChannel ? pack : valid_of(offset);
    if (ends) {
      map.template apply<false>(offset, valid, parameters, map.template load<pack, false>(offset, valid));
    } else {
      map.template apply<whole>(offset, valid, parameters, loaded[u]);
    }
  }
}

}  // namespace detail

/// Maps every element of `view`, behind a kernel on the same stream. `wide`: all pointers allow accesses of
/// whole packs. A thread has `column_groups` of 8 elements in flight by columns, and `plane_groups` by
/// planes, in packs of `plane_pack` elements; at most four packs.
template <class T, int column_groups, int plane_groups, int plane_pack, class Map>
void map_channels_of(const Stream& stream, const ChannelView& view, bool wide, const Map& map) {
  using detail::FlatWalk;
  constexpr int kGroup = NormPlan::kGroup;
  constexpr auto packs_of = [](int groups, int of) { return std::min(groups * kGroup / of, 4); };
  const int64_t count = view.numel();
  if (count == 0) return;
  const auto flat = [&]<FlatWalk walk, int pack, int packs>() {
    const int64_t per_block = int64_t{packs} * NormPlan::kThreads * pack;
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(cuda::blocks_for(count, per_block))),
                                  dim3(NormPlan::kThreads)};
    cuda::launch_early(stream, shape, detail::map_flat_kernel<walk, pack, packs, Map>, map, count,
                       cuda::WideDivide(view.inner), cuda::WideDivide(view.channels), view.inner,
                       view.channels);
  };
  const auto columns = [&]<int pack, bool folds>() {
    const auto kernel = detail::map_columns_kernel<pack, packs_of(column_groups, pack), folds, Map>;
    static cuda::ResidentBlocks resident;
    const NormPlan plan =
        plan_norm_map(view, pack, resident.of(kernel, stream.device.index, NormPlan::kThreads));
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())), dim3(NormPlan::kThreads)};
    cuda::launch_early(stream, shape, kernel, map, plan, cuda::WideDivide(plan.image()));
  };
  // Lanes of a warp must lie 16 bytes apart, or each of its accesses touches twice as many sectors or more.
  if constexpr (has_norm_packs<T>) {
    constexpr int pack = cuda::kPackSize<T>, packs = packs_of(plane_groups, plane_pack);
    if (wide && view.inner == 1 && view.channels % kGroup == 0)
      return columns.template operator()<pack, false>();
    if (wide && maps_by_columns(view, pack)) return columns.template operator()<pack, true>();
    if (wide && view.inner % plane_pack == 0 && count % kGroup == 0)
      return flat.template operator()<FlatWalk::kOneChannel, plane_pack, packs>();
    if (wide && view.inner >= plane_pack)
      return flat.template operator()<FlatWalk::kTwoChannels, plane_pack, packs>();
  }
  flat.template operator()<FlatWalk::kAnything, kGroup, 1>();
}

}  // namespace sinter::ops
