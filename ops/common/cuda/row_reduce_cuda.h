// Reductions over the threads that share a row, a warp or a block, in an order that depends on their number
// only. For .cu files.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>

namespace sinter::ops {

struct SumOf {
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};

struct MaxOf {
  template <class C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

/// `combine` over the 32 values of a warp, which all take part; every lane gets the result.
template <class C, class F>
__device__ __forceinline__ C reduce_warp(C value, F combine) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

/// The threads that share a row: kThreads = 32 is a warp of many in the block, anything else the whole block
/// of so many threads. Called by all of them, it gives all of them the result of `combine` over their values.
template <int kThreads>
struct RowReduce {
  template <class C, class F>
  __device__ __forceinline__ C operator()(C value, F combine) const {
    value = reduce_warp(value, combine);
    if constexpr (kThreads > 32) {
      __shared__ C warps[kThreads / 32];
      __syncthreads();  // the values of an earlier call have been read
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = warps[0];
#pragma unroll
      for (int warp = 1; warp < kThreads / 32; ++warp) value = combine(value, warps[warp]);
    }
    return value;
  }
};

/// Elements `pack` long from an address aligned to them, in the compute type.
template <int pack, class T>
__device__ __forceinline__ void load_pack(const T* from, compute_type<T> (&values)[pack]) {
  const auto loaded = *reinterpret_cast<const cuda::Pack<T, pack>*>(from);
#pragma unroll
  for (int j = 0; j < pack; ++j) values[j] = cuda::load_as_compute(loaded.values[j]);
}

template <int pack, class T>
__device__ __forceinline__ void store_pack(T* to, const compute_type<T> (&values)[pack]) {
  cuda::Pack<T, pack> rounded;
#pragma unroll
  for (int j = 0; j < pack; ++j) rounded.values[j] = cuda::round_to<T>(values[j]);
  *reinterpret_cast<cuda::Pack<T, pack>*>(to) = rounded;
}

/// log(sum(exp(x))) in one pass: the largest element so far, and the sum relative to it.
template <class C>
struct LogSumExp {
  C largest = -std::numeric_limits<C>::infinity();
  C sum = 0;

  __device__ __forceinline__ void add(C x) {
    if (x > largest) {
      sum = sum * std::exp(largest - x) + C{1};
      largest = x;
    } else {
      // Equal elements are told apart because -infinity - (-infinity) is not 0.
      sum += x == largest ? C{1} : std::exp(x - largest);
    }
  }
  /// Of all threads of `reduce`. A row of infinities gives NaN, as exp(x - largest) does.
  template <class Reduce>
  __device__ __forceinline__ LogSumExp reduced(Reduce reduce) const {
    LogSumExp result;
    result.largest = reduce(largest, MaxOf{});
    result.sum = reduce(sum * std::exp(largest - result.largest), SumOf{});
    return result;
  }
};

/// Threads of a block that works on rows, and the longest row that one warp takes.
inline constexpr int kRowBlock = 256;
inline constexpr int64_t kWarpRow = 1024;

/// True if rows of `extent` elements of type T in all `tensors` can be read in packs of 16 bytes.
template <class T>
bool rows_are_packed(int64_t extent, std::initializer_list<const void*> tensors) {
  bool packed = extent % cuda::kPackSize<T> == 0;
  for (const void* tensor : tensors) packed = packed && cuda::is_aligned(tensor, 16);
  return packed;
}

}  // namespace sinter::ops
