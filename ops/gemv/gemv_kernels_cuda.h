// What the kernels of products with few vectors share: where sums go, and adding those of several parts. For
// .cu files.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/ops/common/channels/split_reduce_cuda.h>
#include <sinter/ops/gemv/gemv_cuda.h>
#include <sinter/ops/gemv/plan/row_plan.h>

namespace sinter::ops {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;  // all of a warp

/// A pack as it is loaded: in one piece and in registers of its own, so that nothing waits for its elements
/// before they are used.
template <class T, int pack>
struct LoadedPack {
  static constexpr size_t kBytes = sizeof(T) * pack;
  static constexpr bool kIsDouble = std::is_same_v<T, double>;
  /// Of float64 as such: the compiler makes it from words by moves, which wait for each load.
  using Wide = std::conditional_t<kIsDouble, double2, uint4>;
  using Half = std::conditional_t<kIsDouble, double, uint2>;
  using Word = std::conditional_t<kBytes == 16, Wide, std::conditional_t<kBytes == 8, Half, uint32_t>>;
  /// What lies in memory: as wide as a pack.
  using Source = std::conditional_t<kBytes == 2, T, Word>;

  Word word;

  static __device__ __forceinline__ const Source* source(const T* from) {
    return reinterpret_cast<const Source*>(from);
  }
  /// What no one will read again: it is the first to leave L2.
  __device__ __forceinline__ void load_once(const Source* from) {
    if constexpr (kBytes == 2) {
      asm volatile("ld.global.cs.u16 %0, [%1];" : "=r"(word) : "l"(from));
    } else {
      word = __ldcs(from);
    }
  }
  /// The same, past L1.
  __device__ __forceinline__ void load_past_l1(const Source* from) {
    if constexpr (kBytes == 16 && kIsDouble) {
      asm volatile("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];"
                   : "=d"(word.x), "=d"(word.y)
                   : "l"(from));
    } else if constexpr (kBytes == 16) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                   : "l"(from));
    } else {
      load(from);
    }
  }
  /// What is read often.
  __device__ __forceinline__ void load(const Source* from) {
    if constexpr (kBytes == 2) {
      asm volatile("ld.global.nc.u16 %0, [%1];" : "=r"(word) : "l"(from));
    } else {
      word = __ldg(from);
    }
  }
  __device__ __forceinline__ compute_type<T> operator[](int i) const {
    return cuda::load_as_compute(reinterpret_cast<const T*>(&word)[i]);
  }
};

/// sum + the bias of element `place` of vector v.
template <class T, class C>
__device__ __forceinline__ C with_bias(const GemvBias& bias, C sum, int64_t place, int64_t v) {
  if (bias.data == nullptr) return sum;
  return sum +
         cuda::load_as_compute(static_cast<const T*>(bias.data)[v * bias.vector + place * bias.element]);
}

/// Where sums go: those of a matrix's element `place` (of `out` in the outputs of all matrices), vector v.
struct GemvOutput {
  int64_t matrix, vector, element;  ///< strides of y
  int64_t matrix_outs, all_outs;    ///< elements of an output vector, of one matrix and of all
  int64_t parts;
  GemvBias bias;

  GemvOutput(const GemvProblem& problem, int64_t part_count, const GemvBias& added)
      : matrix(problem.out() * problem.vectors),
        vector(problem.y_vector),
        element(problem.y_element),
        matrix_outs(problem.out()),
        all_outs(problem.batch * problem.out()),
        parts(part_count),
        bias(added) {}

  /// To y; or, if there are several parts, to the table [part, vector, out], where this is part blockIdx.y.
  template <class T, class C>
  __device__ __forceinline__ void write(int64_t in_matrix, int64_t place, int v, int vectors, C sum, T* y,
                                        C* table) const {
    write_part(blockIdx.y, in_matrix, place, v, vectors, sum, y, table);
  }
  /// The same for any part.
  template <class T, class C>
  __device__ __forceinline__ void write_part(int64_t part, int64_t in_matrix, int64_t place, int v,
                                             int vectors, C sum, T* y, C* table) const {
    if (parts > 1) {
      table[(part * vectors + v) * all_outs + in_matrix * matrix_outs + place] = sum;
    } else {
      y[in_matrix * matrix + v * vector + place * element] =
          cuda::round_to<T>(with_bias<T>(bias, sum, place, v));
    }
  }
};

/// A finish of split_reduce: out `i` of the table is [vector, out].
template <class T>
struct StoreOutputs {
  GemvOutput output;
  int64_t sums;
  T* y;

  __device__ void operator()(int64_t i, compute_type<T> sum) const {
    if (sums == output.matrix_outs) {  // one vector, one matrix: without divisions
      y[i * output.element] = cuda::round_to<T>(with_bias<T>(output.bias, sum, i, 0));
      return;
    }
    const int64_t v = i / output.all_outs, out = i - v * output.all_outs;
    const int64_t matrix = out / output.matrix_outs, in_matrix = out - matrix * output.matrix_outs;
    y[matrix * output.matrix + v * output.vector + in_matrix * output.element] =
        cuda::round_to<T>(with_bias<T>(output.bias, sum, in_matrix, v));
  }
};

/// The second kernel, if there are several parts.
template <class T>
void fold_parts(const Stream& stream, const GemvProblem& problem, const GemvOutput& output,
                const compute_type<T>* table, T* y) {
  if (output.parts == 1) return;
  const int64_t sums = output.all_outs * problem.vectors;
  split_reduce(stream, output.parts, sums, table, StoreOutputs<T>{output, sums, y});
}

/// The widest access, in elements, up to `most`, that a dense matrix of `columns` at `data` allows.
template <class T>
int pack_of(int64_t columns, const void* data, int most = cuda::kPackSize<T>) {
  int pack = most;
  while (pack > 1 &&
         (columns % pack != 0 || !cuda::is_aligned(data, static_cast<size_t>(pack) * sizeof(T)))) {
    pack /= 2;
  }
  return pack;
}

/// Both kernels for one dtype; T is instantiated in row_sums_cuda.cu and column_sums_cuda.cu.
template <class T>
void launch_row_sums(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                     compute_type<T>* table, const GemvBias& bias);
template <class T>
void launch_column_sums(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                        compute_type<T>* table, const GemvBias& bias);

/// One vector: sums along rows, along few long rows, and along the columns of few rows, in units of 16 bytes
/// that need not begin where rows do.
template <class T>
void launch_unit_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const GemvBias& bias);
template <class T>
void launch_long_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const GemvBias& bias);
template <class T>
void launch_few_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                     const GemvBias& bias);

}  // namespace sinter::ops
