// Element types inside kernels: loading to the compute type, rounding back, and packs for wide accesses. For
// .cu files.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <sinter/core/base/dtype.h>

namespace sinter::cuda {

/// An element as its compute type (float for the 16-bit types).
template <class T>
__device__ __forceinline__ compute_type<T> load_as_compute(T value) {
  return value;
}
template <>
__device__ __forceinline__ float load_as_compute(float16 value) {
  return __half2float(__ushort_as_half(value.bits));
}
template <>
__device__ __forceinline__ float load_as_compute(bfloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

/// A compute value rounded to nearest even into an element type.
template <class T, class C>
__device__ __forceinline__ T round_to(C value) {
  if constexpr (std::is_same_v<T, float16>) {
    float16 result;
    result.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return result;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    bfloat16 result;
    result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    return result;
  } else {
    return static_cast<T>(value);
  }
}

/// `size` elements that are loaded and stored in one access.
template <class T, int size>
struct alignas(sizeof(T) * size) Pack {
  T values[size];
};

/// Elements of the widest access, 16 bytes.
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

/// True if `pointer` allows accesses of `bytes` (a power of two).
inline bool is_aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace sinter::cuda
