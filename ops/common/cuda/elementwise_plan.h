// How a launch over the elements of a memory divides them: packs that begin where the memory is aligned, and
// what is left at both ends; and how many packs a thread takes, docs/kernels/elementwise.md tells why. Host
// code without devices too, so that a unit test can use it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/core/base/host_device.h>

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

inline constexpr int kElementwiseThreads = 128;

/// Packs that a thread takes, all loads of which are on their way at once, where a pack moves `pack_bytes` in
/// all tensors and the output has `out_bytes`. Two where one moves little, and for tensors that L2 may hold,
/// as long as blocks suffice for two to each of the largest GPUs' processors; else one.
constexpr int elementwise_packs(int pack_bytes, int64_t packs, int64_t out_bytes) {
  constexpr int64_t kFewBlocks = 264, kInCache = int64_t{32} << 20;
  if (pack_bytes < 32) return 2;
  return out_bytes <= kInCache && packs >= kFewBlocks * 2 * kElementwiseThreads ? 2 : 1;
}

}  // namespace sinter::ops
