// Reductions along one axis of a tensor: a row of the last axis is held in registers if it is not too long
// (resident_rows_cuda.h), else a block reads it twice; a tile of columns for any other axis. Their
// order depends on shapes, and on where rows begin within 16 bytes. For .cu files.
#pragma once

#include <initializer_list>

#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>

namespace sinter::ops {

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

template <int pack, class Op>
__global__ void rows_kernel(Op op, int64_t rows, int64_t extent) {
  const int64_t packs = extent / pack;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * extent;
    typename Op::Partial partial;
    for (int64_t i = threadIdx.x; i < packs; i += kRowBlock) op.template add<pack>(partial, first + i * pack);
    const auto line = op.finish(partial, row, threadIdx.x == 0, RowReduce<kRowBlock>{});
    for (int64_t i = threadIdx.x; i < packs; i += kRowBlock) op.template store<pack>(first + i * pack, line);
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
  cuda::launch(stream, cuda::grid_stride_shape(rows, 1, kRowBlock), rows_kernel<pack, Op>, op, rows, extent);
}

}  // namespace detail

/// Reduces every line along an axis and maps its elements with the result. Op gives
///   Partial                             what a thread gathers; the default one is of no element
///   add<pack>(Partial&, at)             gathers the elements at, ..., at + pack - 1
///   finish(partial, line, lead, reduce) the result for line number `line`, from reduce(value, combine) calls
///   that every
///                                       thread makes; one thread of each line has `lead` and may write it
///   store<pack>(at, result)             writes the elements at, ..., at + pack - 1
///   run(row, number, first, reduce), kArrays
///                                       the same for a row that fits into registers (resident_rows_cuda.h)
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
  } else if (launch_resident_rows<T>(stream, split.outer, split.extent, op, tensors)) {
    return;
  } else if (rows_are_packed<T>(split.extent, tensors)) {
    detail::launch_rows<cuda::kPackSize<T>>(stream, split.outer, split.extent, op);
  } else {
    detail::launch_rows<1>(stream, split.outer, split.extent, op);
  }
}

}  // namespace sinter::ops
