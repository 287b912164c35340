// Reductions along one axis of a tensor, in an order that depends on shapes only: a warp or a block for every
// row of the last axis, a tile of columns for any other. For .cu files.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/axis_split.h>

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

namespace detail {

constexpr int kColumnsWide = 32, kColumnsDeep = 8;

/// RowReduce for tiles of kColumnsWide columns: over the kColumnsDeep threads of each.
struct ColumnReduce {
  template <class C, class F>
  __device__ __forceinline__ C operator()(C value, F combine) const {
    __shared__ C parts[kColumnsDeep][kColumnsWide];
    __syncthreads();  // the values of an earlier call have been read
    parts[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    value = parts[0][threadIdx.x];
#pragma unroll
    for (int part = 1; part < kColumnsDeep; ++part) value = combine(value, parts[part][threadIdx.x]);
    return value;
  }
};

template <int kThreads, int pack, class Op>
__global__ void rows_kernel(Op op, int64_t rows, int64_t extent) {
  constexpr int kRows = kRowBlock / kThreads;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const int64_t packs = extent / pack;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kRows) {
    const int64_t first = row * extent;
    typename Op::Partial partial;
    for (int64_t i = thread; i < packs; i += kThreads) op.template add<pack>(partial, first + i * pack);
    const auto line = op.finish(partial, row, thread == 0, RowReduce<kThreads>{});
    for (int64_t i = thread; i < packs; i += kThreads) op.template store<pack>(first + i * pack, line);
  }
}

template <class Op>
__global__ void columns_kernel(Op op, int64_t tiles, int64_t tiles_across, int64_t extent, int64_t inner) {
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t outer = tile / tiles_across;
    const int64_t column = tile % tiles_across * kColumnsWide + threadIdx.x;
    const bool inside = column < inner;
    const int64_t first = outer * extent * inner + column;
    typename Op::Partial partial;
    if (inside) {
      for (int64_t i = threadIdx.y; i < extent; i += kColumnsDeep)
        op.template add<1>(partial, first + i * inner);
    }
    const auto line = op.finish(partial, outer * inner + column, inside && threadIdx.y == 0, ColumnReduce{});
    if (inside) {
      for (int64_t i = threadIdx.y; i < extent; i += kColumnsDeep)
        op.template store<1>(first + i * inner, line);
    }
  }
}

template <int pack, class Op>
void launch_rows(const Stream& stream, int64_t rows, int64_t extent, const Op& op) {
  if (extent <= kWarpRow) {
    cuda::launch(stream, cuda::grid_stride_shape(rows, kRowBlock / 32, kRowBlock), rows_kernel<32, pack, Op>,
                 op, rows, extent);
  } else {
    cuda::launch(stream, cuda::grid_stride_shape(rows, 1, kRowBlock), rows_kernel<kRowBlock, pack, Op>, op,
                 rows, extent);
  }
}

}  // namespace detail

/// True if rows of `extent` elements of type T in all `tensors` can be read in packs of 16 bytes.
template <class T>
bool rows_are_packed(int64_t extent, std::initializer_list<const void*> tensors) {
  bool packed = extent % cuda::kPackSize<T> == 0;
  for (const void* tensor : tensors) packed = packed && cuda::is_aligned(tensor, 16);
  return packed;
}

/// Reduces every line along an axis and maps its elements with the result. Op gives
///   Partial                             what a thread gathers; the default one is of no element
///   add<pack>(Partial&, at)             gathers the elements at, ..., at + pack - 1
///   finish(partial, line, lead, reduce) the result for line number `line`, from reduce(value, combine) calls
///   that every
///                                       thread makes; one thread of each line has `lead` and may write it
///   store<pack>(at, result)             writes the elements at, ..., at + pack - 1
/// `tensors`: all arrays of T that add and store use.
template <class T, class Op>
void launch_lines(const Stream& stream, const AxisSplit& split, const Op& op,
                  std::initializer_list<const void*> tensors) {
  if (split.outer == 0 || split.inner == 0) return;
  if (split.inner > 1) {
    const int64_t across = cuda::blocks_for(split.inner, detail::kColumnsWide);
    cuda::LaunchShape shape = cuda::grid_stride_shape(split.outer * across, 1);
    shape.block = dim3(detail::kColumnsWide, detail::kColumnsDeep);
    cuda::launch(stream, shape, detail::columns_kernel<Op>, op, split.outer * across, across, split.extent,
                 split.inner);
  } else if (rows_are_packed<T>(split.extent, tensors)) {
    detail::launch_rows<cuda::kPackSize<T>>(stream, split.outer, split.extent, op);
  } else {
    detail::launch_rows<1>(stream, split.outer, split.extent, op);
  }
}

}  // namespace sinter::ops
