// Rows in shared memory as they lie in global memory: lines of 128 bytes become like lines, so that what
// eight lanes copy asks L2 for one line and fills one. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/ops/matvec/staged/staged_copy_cuda.h>

namespace sinter::ops {

/// Rows of 16-bit elements, of which a tile has `width` neighbouring ones each.
struct RowLines {
  int64_t pitch;  // elements from a row to the next
  int32_t rows, log_width;

  __device__ __forceinline__ int32_t width() const { return 1 << log_width; }
  /// Bytes of a row in shared memory.
  __device__ __forceinline__ int32_t line() const { return 2 * width() + 128; }
};

/// A unit in front of an operand's end: behind it nothing is read.
__device__ __forceinline__ void copy_in_front_of(uintptr_t end, uint32_t target, uintptr_t source,
                                                 uint64_t policy) {
  if (source + 16 <= end) return copy_unit<true>(target, source, policy);
#pragma unroll 1
  for (uint32_t i = 0; i < 16 && source + i < end; i += 2) {
    asm volatile("st.shared.u16 [%0], %1;"
                 :
                 : "r"(target + i), "h"(*reinterpret_cast<const uint16_t*>(source + i))
                 : "memory");
  }
}

/// A warp's copies of rows: an instruction brings a line of four rows each. `swap`: the halves of lines of
/// odd rows change places, for those who read whole units of two rows at once.
template <bool swap>
struct RowLineCopies {
  static constexpr int32_t kMostLines = 8;  // of a tile's row, beside its last

  uintptr_t from, end;  // of the lane's row of the first four: its first element; of all rows
  int64_t step;         // bytes of four rows
  uint32_t to;          // shared address of the lane's unit in the first stage

  template <class T>
  __device__ __forceinline__ RowLineCopies(const RowLines& lines, const T* data, uint32_t shared) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32), row = lane / 8;
    from = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(row * lines.pitch * 2);
    end = reinterpret_cast<uintptr_t>(data + lines.rows * lines.pitch);
    step = lines.pitch * 8;
    to = shared + static_cast<uint32_t>(row * lines.line() + (lane % 8 ^ (swap ? row % 2 * 4 : 0)) * 16);
  }

  /// Begins to copy `count` elements from element `first` of each row on, to the stage that begins `stage`
  /// bytes behind the first. `inside`: they are `width`, and a unit more lies in all rows.
  __device__ __forceinline__ void copy(const RowLines& lines, int64_t first, int32_t count, bool inside,
                                       uint32_t stage, uint64_t policy) const {
    const int32_t full = lines.width() / 64;
    const auto lane = static_cast<int32_t>(threadIdx.x % 32), unit = lane % 8 * 16;
    uintptr_t row = from + static_cast<uintptr_t>(first * 2);
    uint32_t target = to + stage;
#pragma unroll 1
    for (int32_t i = lane / 8; i < lines.rows; i += 4) {
      const auto shift = static_cast<int32_t>(row & 127);
      const uintptr_t source = row - static_cast<uintptr_t>(shift - unit);
      if (inside) {
        if (unit + 16 > shift) copy_unit<true>(target, source, policy);
#pragma unroll
        for (int32_t line = 1; line <= kMostLines; ++line) {
          if (line < full || (line == full && unit < shift)) {
            copy_unit<true>(target + line * 128, source + line * 128, policy);
          }
        }
      } else {
#pragma unroll 1
        for (int32_t at = unit; at < shift + 2 * count; at += 128) {
          if (at + 16 > shift) copy_in_front_of(end, target + (at - unit), source + (at - unit), policy);
        }
      }
      row += static_cast<uintptr_t>(step);
      target += static_cast<uint32_t>(4 * lines.line());
    }
  }
};

/// `bytes` from address `from` on, to shared address `to`, where the line of memory that has `from` begins:
/// the lanes of a warp, a unit each.
__device__ __forceinline__ void copy_run(uintptr_t from, int32_t bytes, bool inside, uintptr_t end,
                                         uint32_t to, uint64_t policy) {
  const auto shift = static_cast<int32_t>(from & 127), behind = shift + bytes;
  const uintptr_t source = from - static_cast<uintptr_t>(shift);
  int32_t at = static_cast<int32_t>(threadIdx.x % 32) * 16;
  if (inside) {
    if (at + 16 > shift && at < behind) copy_unit<true>(to + at, source + at, policy);
#pragma unroll 2
    for (at += 512; at < behind; at += 512) copy_unit<true>(to + at, source + at, policy);
    return;
  }
#pragma unroll 1
  for (; at < behind; at += 512) {
    if (at + 16 > shift) copy_in_front_of(end, to + at, source + at, policy);
  }
}

}  // namespace sinter::ops
