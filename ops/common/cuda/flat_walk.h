// How a kernel walks over the output of a broadcast in packs that begin where its memory is aligned, whatever
// the extents: packs may straddle rows, and what is left at both ends is walked one by one. Host code without
// devices too, so that a unit test can use it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/common/broadcast_plan.h>

namespace sinter::ops {

/// Elements before the first one at a multiple of `bytes` (a power of two that `element` divides), of a
/// memory of `count` elements whose address is a multiple of `element`.
inline int64_t elements_before_aligned(const void* pointer, int64_t bytes, int64_t element, int64_t count) {
  const auto behind =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) & (static_cast<uintptr_t>(bytes) - 1));
  return std::min(count, (bytes - behind) % bytes / element);
}

/// A memory of `count` elements: `head` of them, then packs, then fewer than a pack.
struct FlatCut {
  int64_t count = 0, head = 0, packs = 0;
  int pack = 1;

  FlatCut() = default;
  FlatCut(int64_t all, int64_t before, int pack_size)
      : count(all), head(before), packs((all - before) / pack_size), pack(pack_size) {}

  SINTER_HOST_DEVICE int64_t first_of(int64_t number) const { return head + number * pack; }
  /// The element outside all packs that thread `thread` of the grid has, -1 if none; the grid has 2 * pack
  /// threads or more.
  SINTER_HOST_DEVICE int64_t edge(int64_t thread) const {
    if (thread < head) return thread;
    const int64_t behind = first_of(packs) + thread - head;
    return behind < count ? behind : -1;
  }
};

/// Where the elements of `inputs` broadcast inputs lie. Of input k, `flat` tells that its elements lie as the
/// output's do.
template <int inputs>
struct FlatWalk {
  static constexpr auto kInputs = static_cast<size_t>(inputs);

  FlatWalk() = default;
  explicit FlatWalk(const BroadcastPlan<kInputs>& plan) : rank(plan.rank), inner(plan.inner()) {
    for (int k = 0; k < inputs; ++k) flat[k] = true;
    int64_t dense = 1;
    for (int axis = plan.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      extents[axis] = cuda::WideDivide(plan.extents[a]);
      for (int k = 0; k < inputs; ++k) {
        strides[k][axis] = plan.strides[static_cast<size_t>(k)][a];
        flat[k] = flat[k] && strides[k][axis] == dense;
      }
      dense *= plan.extents[a];
    }
  }

  /// Where element `index` of the output has that of each input; returns how many elements its row has from
  /// there on.
  SINTER_HOST_DEVICE int64_t locate(int64_t index, int64_t (&offsets)[kInputs]) const {
    for (int k = 0; k < inputs; ++k) offsets[k] = 0;
    int64_t left = inner - index;  // of the only axis
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
      if (axis == rank - 1) left = inner - place;
      for (int k = 0; k < inputs; ++k) offsets[k] += place * strides[k][axis];
    }
    for (int k = 0; k < inputs; ++k) offsets[k] += index * strides[k][0];
    return left;
  }
  /// The same for one input.
  SINTER_HOST_DEVICE int64_t offset(int k, int64_t index) const {
    int64_t sum = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
      sum += place * strides[k][axis];
    }
    return sum + index * strides[k][0];
  }
  SINTER_HOST_DEVICE bool steps(int k) const { return strides[k][rank - 1] != 0; }

  int rank = 1;
  int64_t inner = 1;
  cuda::WideDivide extents[kMaxRank];
  int64_t strides[kInputs][kMaxRank] = {};
  bool flat[kInputs] = {};
};

}  // namespace sinter::ops
