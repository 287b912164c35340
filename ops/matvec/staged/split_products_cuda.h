// Products of float32 on tensor cores in full precision: the instruction, and a float32 as the sum of two
// numbers that fit TF32. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {

/// value * 2^13 as the sum of two numbers, of which tensor cores read the upper 19 bits: `high` has no
/// others, and of `low` they lose what is below 2^-21 of the value. The factor brings whatever float32 holds,
/// down to its denormals, to where that is so. Multiplied by a little more than it, what is cut off is about
/// as often too much as too little.
struct SplitFloat {
  uint32_t high, low;

  static constexpr float kScale = 8192.0F, kRoundingScale = 8194.75F;
  static constexpr float kUnscale = 1.0F / (kScale * kScale);  // of a product

  __device__ __forceinline__ void split(float value) {
    constexpr uint32_t kUpperBits = 0xFFFFE000U;
    high = __float_as_uint(value * kRoundingScale) & kUpperBits;
    low = __float_as_uint(fmaf(value, kScale, -__uint_as_float(high)));
  }
};

template <int count>
__device__ __forceinline__ void split_floats(const float (&values)[count], uint32_t (&high)[count],
                                             uint32_t (&low)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    SplitFloat halves;
    halves.split(values[i]);
    high[i] = halves.high;
    low[i] = halves.low;
  }
}

/// sums += left (16 x 8 terms) right (8 terms x 8), of whose elements the upper 19 bits count.
__device__ __forceinline__ void multiply_add_tf32(float (&sums)[4], const uint32_t (&left)[4],
                                                  const uint32_t (&right)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// The same without sums before.
__device__ __forceinline__ void multiply_tf32(float (&sums)[4], const uint32_t (&left)[4],
                                              const uint32_t (&right)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]), "f"(0.0F));
}

/// `count` sums of `lanes` threads, from a multiple of 16 bytes in shared memory on, to neighbours in y.
template <int32_t lanes = 32>
__device__ __forceinline__ void write_floats(const float* sums, int32_t count, float* to) {
  const auto lane = static_cast<int32_t>(threadIdx.x % lanes);
  if ((reinterpret_cast<uintptr_t>(to) & 15) == 0 && count % 4 == 0) {
#pragma unroll 2
    for (int32_t i = 4 * lane; i < count; i += 4 * lanes) {
      *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(sums + i);
    }
    return;
  }
#pragma unroll 2
  for (int32_t i = lane; i < count; i += lanes) to[i] = sums[i];
}

}  // namespace sinter::ops
