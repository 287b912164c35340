// Products of the 16-bit types on tensor cores by warps that share nothing: the instructions, what they take
// of the vectors, and the way of their sums through shared memory to y. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {

/// sums += left (16 x 16 terms) right (16 terms x 8).
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&left)[4],
                                             const uint32_t (&right)[2]) {
  if constexpr (std::is_same_v<T, float16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}

/// The same of 8 terms.
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&left)[2], uint32_t right) {
  if constexpr (std::is_same_v<T, float16>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(right));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(right));
  }
}

/// Two sums, rounded, in one register.
template <class T>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  if constexpr (std::is_same_v<T, float16>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

/// The vectors of a product, in global memory.
template <class T>
struct ThinVectors {
  const T* data;
  int64_t vector, element;  // strides
  int32_t terms, vectors;

  /// Elements `term` and `term` + 1 of vector v; those that do not exist are zero.
  __device__ __forceinline__ uint32_t pair(int32_t v, int32_t term) const {
    return uint32_t{bits(v, term)} | uint32_t{bits(v, term + 1)} << 16;
  }

 private:
  __device__ __forceinline__ uint16_t bits(int32_t v, int32_t term) const {
    return v < vectors && term >= 0 && term < terms ? data[v * vector + term * element].bits : uint16_t{0};
  }
};

/// Where sums of a warp lie in shared memory until they are written: those of an out side by side, or of a
/// vector, in lines of kLine.
template <int outs>
struct HalfSums {
  static constexpr int32_t kOuts = outs,
                           kLine = outs + 8;  // whole units, which eight lines have in other banks
  static constexpr int bytes(int vectors) { return vectors * kLine * 2; }
};

/// `count` sums from a multiple of 16 bytes in shared memory on, to neighbours in y. Reads up to 2 bytes
/// more.
__device__ __forceinline__ void write_run(const uint16_t* sums, int32_t count, uint16_t* to) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto address = reinterpret_cast<uintptr_t>(to);
  if ((address & 15) == 0) {
    int32_t i = lane * 8;
#pragma unroll 1
    for (; i + 8 <= count; i += 256) {
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(sums + i);
    }
#pragma unroll 1
    for (; i < count; ++i) to[i] = sums[i];
    return;
  }
  // Words begin behind the first sum, or with it.
  const auto* const words = reinterpret_cast<const uint32_t*>(sums);
  const int32_t odd = (address & 2) != 0 ? 1 : 0;
  const uint32_t order = odd != 0 ? 0x5432 : 0x3210;
#pragma unroll 1
  for (int32_t i = 2 * lane + odd; i + 1 < count; i += 64) {
    *reinterpret_cast<uint32_t*>(to + i) = __byte_perm(words[i / 2], words[i / 2 + 1], order);
  }
  if (lane == 0 && odd != 0 && count > 0) to[0] = sums[0];
  if (lane == 31 && ((count - odd) & 1) != 0) to[count - 1] = sums[count - 1];
}

/// A line of sums in shared memory to y, where it begins in the middle of a word if `odd`: in words, and two
/// single sums at its ends.
template <int outs>
struct LineWords {
  static constexpr int kWords = outs / 64;  // of a lane

  uint32_t order;
  int32_t word_at, end_at;  // elements
  bool has_last_word, has_end, is_last;

  __device__ __forceinline__ explicit LineWords(bool odd) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    is_last = lane == 31;
    order = odd ? 0x5432 : 0x3210;
    word_at = 2 * lane + (odd ? 1 : 0);
    end_at = is_last ? outs - 1 : 0;
    has_last_word = !odd || !is_last;
    has_end = odd && (is_last || lane == 0);
  }
  __device__ __forceinline__ void write(const uint16_t* sums, uint16_t* to) const {
    const auto* const words = reinterpret_cast<const uint32_t*>(sums) + threadIdx.x % 32;
    uint32_t low[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      low[i] = words[32 * i];
      const uint32_t word = __byte_perm(low[i], words[32 * i + 1], order);
      if (i + 1 < kWords || has_last_word) *reinterpret_cast<uint32_t*>(to + word_at + 64 * i) = word;
    }
    if (has_end) to[end_at] = static_cast<uint16_t>(is_last ? low[kWords - 1] >> 16 : low[0]);
  }
};

/// The same of `count` outs of each vector, which begin `y_vector` elements apart in y.
template <int outs>
__device__ __forceinline__ void write_lines(const uint16_t* sums, int32_t vectors, int32_t count,
                                            uint16_t* to, int64_t y_vector) {
  constexpr int32_t units = outs / 8, line = HalfSums<outs>::kLine;
  const auto address = reinterpret_cast<uintptr_t>(to);
  if (count < outs) {
#pragma unroll 1
    for (int32_t v = 0; v < vectors; ++v) write_run(sums + v * line, count, to + v * y_vector);
  } else if (((address | static_cast<uintptr_t>(y_vector * 2)) & 15) == 0) {
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x % 32); i < vectors * units; i += 32) {
      const int32_t v = i / units, place = i % units * 8;
      *reinterpret_cast<uint4*>(to + v * y_vector + place) =
          *reinterpret_cast<const uint4*>(sums + v * line + place);
    }
  } else {
    const bool odd = (address & 2) != 0, next_odd = odd != ((y_vector & 1) != 0);
    const LineWords<outs> even_lines(odd), odd_lines(next_odd);
#pragma unroll 1
    for (int32_t v = 0; v < vectors; v += 2) {
      even_lines.write(sums, to);
      if (v + 1 < vectors) odd_lines.write(sums + line, to + y_vector);
      sums += 2 * line;
      to += 2 * y_vector;
    }
  }
}

}  // namespace sinter::ops
