// Reductions across the threads of a block, in an order that depends on the block's shape alone. For .cu
// files.
#pragma once

#include <cstdint>

#include <sinter/core/cuda/device/fast_divide.h>

namespace sinter::cuda {

/// Folds `lanes` values (a power of two) that lie `step` apart in shared memory by halves, so that afterwards
/// lane 0's place holds combine(...) of them all. A thread owns values[place] and is number `lane` of its
/// group; groups that are interleaved or follow each other fold side by side. Every thread of the block must
/// call it with equal `lanes` and `step`, after writing its value; it begins and ends with a barrier.
template <class T, class F>
__device__ __forceinline__ void fold_lanes(T* values, unsigned place, unsigned lane, unsigned lanes,
                                           unsigned step, F combine) {
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) values[place] = combine(values[place], values[place + half * step]);
  }
  __syncthreads();
}

/// The same for `width` values per thread, those of thread t at values[j * stride + t].
template <int width, class T, class F>
__device__ __forceinline__ void fold_lanes_of(T* values, int used, unsigned stride, unsigned place,
                                              unsigned lane, unsigned lanes, unsigned step, F combine) {
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) {
#pragma unroll
      for (int j = 0; j < width; ++j) {
        if (j >= used) break;
        T& value = values[static_cast<unsigned>(j) * stride + place];
        value = combine(value, values[static_cast<unsigned>(j) * stride + place + half * step]);
      }
    }
  }
  __syncthreads();
}

/// values[first], values[first + step], ... below values[end], `at_once` of them loaded before any is waited
/// for, added up in order. Few instructions: code, too, comes from memory.
template <int at_once, class C, class Index>
__device__ __forceinline__ C add_strided(const C* values, Index first, Index end, Index step) {
  C sum = 0;
#pragma unroll 1
  for (Index i = first; i < end; i += at_once * step) {
    C loaded[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) loaded[k] = i + k * step < end ? values[i + k * step] : C{0};
#pragma unroll
    for (int k = 0; k < at_once; ++k) sum += loaded[k];
  }
  return sum;
}

/// Of `lanes` rows of `elements` values below each other in shared memory, the sum of column threadIdx.x; for
/// threads below `elements`, others have nothing. Every thread of the block, which has `threads` of them and
/// at least `elements`, must call it after writing its values; it begins with a barrier, and the values are
/// lost. `by_elements` divides by `elements`.
template <uint32_t threads, class C>
__device__ __forceinline__ C add_columns(C* values, uint32_t lanes, uint32_t elements,
                                         const FastDivide& by_elements) {
  constexpr uint32_t kSerial = 8;  // slices of the rows that one thread adds in the end
  uint32_t element;
  const uint32_t slice = by_elements.divide(threadIdx.x, element);
  uint32_t slices = min(threads / elements, lanes);
  C sum = 0;
  __syncthreads();
  if (slice < slices) {
    sum = add_strided<4>(values, threadIdx.x, lanes * elements, slices * elements);
  }
  __syncthreads();
  if (slice < slices) values[threadIdx.x] = sum;
  while (slices > kSerial) {
    const uint32_t half = (slices + 1) / 2;
    __syncthreads();
    if (slice + half < slices) values[threadIdx.x] = sum += values[threadIdx.x + half * elements];
    slices = half;
  }
  __syncthreads();
  return add_strided<kSerial>(values, threadIdx.x, slices * elements, elements);
}

}  // namespace sinter::cuda
