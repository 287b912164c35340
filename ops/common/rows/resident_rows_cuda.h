// Kernels that hold each row of a matrix in registers: a warp or a block of threads loads a row at once,
// reduces and maps it, and stores it, so that memory is read once. Rows may begin anywhere. The order of
// reductions depends on shapes and on where rows begin within 16 bytes. For .cu files.
#pragma once

#include <initializer_list>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/common/rows/row_cut.h>

namespace sinter::ops {

/// Of a row of elements of type T, what one of its kThreads threads holds.
template <int kThreads, class T>
class ResidentRow {
 public:
  using C = compute_type<T>;
  static constexpr int kPack = cuda::kPackSize<T>;
  static constexpr int kPacks = kResidentBytes / static_cast<int>(sizeof(C)) / kPack;
  struct Values {
    C at[kPacks][kPack];
  };

  /// `place`: the row's address in elements.
  __device__ __forceinline__ ResidentRow(int64_t place, int columns)
      : cut_(place, columns), thread_(static_cast<int>(threadIdx.x) % kThreads), chunks_(cut_.chunks()) {}

  /// This thread's elements of the row at `from`; `fill` stands for those outside of it.
  __device__ __forceinline__ void load(const T* from, C fill, Values& values) const {
    cuda::Pack<T, kPack> packs[kPacks];
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) packs[c].values[j] = cuda::round_to<T>(fill);
      const int first = first_of(c);
      if (cut_.is_whole(first)) packs[c] = *reinterpret_cast<const cuda::Pack<T, kPack>*>(from + first);
    }
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
      const int first = first_of(c);
      if (first >= cut_.columns || cut_.is_whole(first)) continue;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        if (cut_.is_inside(first + j)) packs[c].values[j] = from[first + j];
      }
    }
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
#pragma unroll
      for (int j = 0; j < kPack; ++j) values.at[c][j] = cuda::load_as_compute(packs[c].values[j]);
    }
  }

  __device__ __forceinline__ void store(T* to, const Values& values) const {
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
      const int first = first_of(c);
      if (cut_.is_whole(first)) {
        store_pack(to + first, values.at[c]);
      } else if (first < cut_.columns) {
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          if (cut_.is_inside(first + j)) to[first + j] = cuda::round_to<T>(values.at[c][j]);
        }
      }
    }
  }

  /// Calls function(column, element of each of `values`...) for rising columns. A column may lie outside the
  /// row.
  template <class F, class... V>
  __device__ __forceinline__ void each(F&& function, V&... values) const {
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
      if (c * kThreads >= chunks_) continue;  // the threads of a row agree
#pragma unroll
      for (int j = 0; j < kPack; ++j) function(first_of(c) + j, values.at[c][j]...);
    }
  }

  __device__ __forceinline__ bool is_inside(int column) const {
    return cut_.is_inside(column);
  }
  __device__ __forceinline__ bool leads() const {
    return thread_ == 0;
  }

 private:
  __device__ __forceinline__ int first_of(int c) const {
    return cut_.first(thread_ + c * kThreads);
  }

  RowCut<kPack, int> cut_;
  int thread_, chunks_;
};

namespace detail {

constexpr int resident_block(int threads) {
  return threads == 32 ? kRowBlock : threads;
}

/// Blocks that a multiprocessor has room for at least: 768 threads with one array, 80 registers each, of
/// which 32 hold a row; 512 threads with two. Two large blocks rather than one, whose barriers nothing hides.
constexpr int resident_blocks(int block, int arrays) {
  if (arrays == 2) return 512 / block;
  return block == 512 ? 2 : 768 / block;
}

template <int kThreads, class T, class Op>
__global__ void __launch_bounds__(resident_block(kThreads),
                                  resident_blocks(resident_block(kThreads), Op::kArrays))
    resident_rows_kernel(Op op, int64_t rows, int columns, int64_t place) {
  constexpr int kRows = resident_block(kThreads) / kThreads;
  for (int64_t number = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads; number < rows;
       number += static_cast<int64_t>(gridDim.x) * kRows) {
    const int64_t first = number * columns;
    op.run(ResidentRow<kThreads, T>(place + first, columns), number, first, RowReduce<kThreads>{});
  }
}

}  // namespace detail

/// Calls op.run(row, number, first, reduce) for every row of a dense matrix: `row` is its ResidentRow,
/// `first` its first element, and every thread of the row makes the calls of reduce(value, combine) that
/// there are. Op::kArrays tells how many Values it holds at a time, 1 or 2. `tensors`: all arrays of T and of
/// the matrix's shape that are loaded and stored, or null. Returns false, and does nothing, if rows are too
/// long or the tensors do not begin alike within 16 bytes.
template <class T, class Op>
bool launch_resident_rows(const Stream& stream, int64_t rows, int64_t columns, const Op& op,
                          std::initializer_list<const void*> tensors) {
  constexpr int pack = cuda::kPackSize<T>;
  int64_t shift = -1, place = 0;
  for (const void* tensor : tensors) {
    if (tensor == nullptr) continue;
    const int64_t own = elements_behind_aligned(tensor, 16, sizeof(T));
    if (shift >= 0 && own != shift) return false;
    place = shift = own;
  }
  const int threads = resident_row_threads(columns, pack, place == 0, sizeof(compute_type<T>));
  const auto run = [&]<int kThreads>() {
    constexpr int block = detail::resident_block(kThreads);
    cuda::launch(stream, cuda::grid_stride_shape(rows, block / kThreads, block),
                 detail::resident_rows_kernel<kThreads, T, Op>, op, rows, static_cast<int>(columns), place);
    return true;
  };
  if (rows == 0) return true;
  if (threads == 32) return run.template operator()<32>();
  if (threads == 128) return run.template operator()<128>();
  if (threads == 512) return run.template operator()<512>();
  return false;
}

}  // namespace sinter::ops
