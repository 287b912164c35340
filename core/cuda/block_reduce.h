// Reductions across the threads of a block, in an order that depends on the block's shape alone. For .cu
// files.
#pragma once

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

}  // namespace sinter::cuda
