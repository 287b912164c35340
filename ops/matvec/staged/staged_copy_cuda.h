// Copies to shared memory that run beside the arithmetic, in the units of 16 bytes that hold what is copied.
// For .cu files.
#pragma once

#include <cstdint>

#include <sinter/ops/matvec/plan/staged_plan.h>

namespace sinter::ops {

/// The segments that chunks copy, as StagedCopy has them; in bytes. Threads that share a segment are a group.
struct StagedSegments {
  int64_t pitch, group_pitch;  // in global memory, from one to the next, and to the next of a group
  int64_t advance;             // from a block's place to its next
  int64_t bytes;               // of one matrix, or of its vectors: behind them nothing is read
  int32_t step, group_step;    // the pitches in shared memory
  int32_t log_lanes;           // of a group
};

/// 16 bytes to shared memory. A matrix is read once: its data are the first to leave L2.
template <bool once>
__device__ __forceinline__ void copy_unit(uint32_t to, uintptr_t from, uint64_t policy) {
  if constexpr (once) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
  }
}
/// The same, of which `used` bytes come from memory and the others are zero.
__device__ __forceinline__ void copy_part_of_unit(uint32_t to, uintptr_t from, uint32_t used) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(used) : "memory");
}
/// `bytes` of 16-bit elements from a multiple of 16 on to shared address `to`: the lanes of a warp, a unit
/// each. What fills no unit is copied at once, by elements: compute-sanitizer 2025.3 takes a part of a unit
/// for a whole one, behind the end of memory.
__device__ __forceinline__ void copy_halves(uintptr_t from, int32_t bytes, uint32_t to, uint64_t policy) {
  const auto lane_at = static_cast<int32_t>(threadIdx.x % 32) * 16;
  int32_t left = bytes - lane_at;
  from += static_cast<uintptr_t>(lane_at);
  to += static_cast<uint32_t>(lane_at);
#pragma unroll 2
  for (; left >= 16; left -= 32 * 16, from += 32 * 16, to += 32 * 16) copy_unit<true>(to, from, policy);
#pragma unroll 1
  for (; left > 0; left -= 2, from += 2, to += 2) {
    asm volatile("st.shared.u16 [%0], %1;"
                 :
                 : "r"(to), "h"(*reinterpret_cast<const uint16_t*>(from))
                 : "memory");
  }
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}
__device__ __forceinline__ uint64_t leaves_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The segments of a place: how many, and of how many bytes each.
struct StagedExtent {
  int32_t segments, bytes;
};

/// A thread's copies of one operand, place after place. Segments are copied in the whole units of memory that
/// hold them: in front of one and behind it lies the same operand, or the allocation that it begins in;
/// behind the operand's end nothing is read. A place's first segment begins in shared memory at the rest of
/// its address modulo 16.
struct StagedCopier {
  uintptr_t from, end;  // of the thread's first segment of the next place; of the operand
  uint32_t rest, to;    // of the place's first segment modulo 16; of the thread's, in shared memory
  int32_t group, lane;

  __device__ __forceinline__ StagedCopier(const StagedSegments& segments, uintptr_t first, uintptr_t behind)
      : end(behind),
        rest(static_cast<uint32_t>(first) & 15),
        group(static_cast<int32_t>(threadIdx.x >> segments.log_lanes)),
        lane(static_cast<int32_t>(threadIdx.x & ((1U << segments.log_lanes) - 1))) {
    from = first + static_cast<uintptr_t>(group * segments.pitch);
    to = static_cast<uint32_t>(group * segments.step);
  }

  /// Begins to copy the next place to shared address `stage`, and goes on to the one behind it. Only
  /// `near_end` may the last unit reach behind the operand.
  template <bool once>
  __device__ __forceinline__ void copy(const StagedSegments& segments, const StagedExtent& extent,
                                       uint32_t stage, bool near_end, uint64_t policy) {
    const int32_t groups = StagedPlan::kThreads >> segments.log_lanes, step = 16 << segments.log_lanes;
    uint32_t target = stage + rest + to;
    uintptr_t source = from;
#pragma unroll 1
    for (int32_t segment = group; segment < extent.segments; segment += groups) {
      int32_t at = 16 * lane - static_cast<int32_t>(source & 15);
      if (near_end) {
        copy_near_end(target, source, at, step, extent.bytes);
      } else {
#pragma unroll 2
        for (; at < extent.bytes; at += step) copy_unit<once>(target + at, source + at, policy);
      }
      source += static_cast<uintptr_t>(segments.group_pitch);
      target += static_cast<uint32_t>(segments.group_step);
    }
    from += static_cast<uintptr_t>(segments.advance);
    rest = next_rest(segments, rest);
  }

  __device__ __forceinline__ void copy_near_end(uint32_t target, uintptr_t source, int32_t at, int32_t step,
                                                int32_t bytes) const {
#pragma unroll 1
    for (; at < bytes; at += step) {
      const auto left = static_cast<int64_t>(end - (source + at));
      copy_part_of_unit(target + at, source + at, static_cast<uint32_t>(min(left, int64_t{16})));
    }
  }

  static __device__ __forceinline__ uint32_t next_rest(const StagedSegments& segments, uint32_t of) {
    return (of + static_cast<uint32_t>(segments.advance)) & 15;
  }
};

}  // namespace sinter::ops
