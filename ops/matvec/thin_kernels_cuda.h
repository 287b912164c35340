// What the kernels of thin products share: where sums go, and adding those of several parts. For .cu files.
#pragma once

#include <algorithm>
#include <bit>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/block_reduce.h>
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/launch_early.h>
#include <sinter/ops/matvec/thin_plan.h>
#include <sinter/ops/matvec/thin_product_cuda.h>

namespace sinter::ops {

inline constexpr unsigned kThinWarp = 32;
inline constexpr unsigned kThinLanes = 0xFFFFFFFFu;  // all of a warp
inline constexpr unsigned kThinFoldThreads = 256;

/// Loads what no one will read again: it is the first to leave the caches.
template <class P>
__device__ __forceinline__ P load_once(const P* from) {
  const auto load = [&](auto word) {
    word = __ldcs(reinterpret_cast<const decltype(word)*>(from));
    return *reinterpret_cast<P*>(&word);
  };
  if constexpr (sizeof(P) == 16) return load(uint4{});
  if constexpr (sizeof(P) == 8) return load(uint2{});
  if constexpr (sizeof(P) == 4) return load(uint32_t{});
  if constexpr (sizeof(P) == 2) return load(static_cast<unsigned short>(0));
}

/// sum + the bias of element `place` of vector v.
template <class T, class C>
__device__ __forceinline__ C with_bias(const ThinBias& bias, C sum, int64_t place, int64_t v) {
  if (bias.data == nullptr) return sum;
  return sum +
         cuda::load_as_compute(static_cast<const T*>(bias.data)[v * bias.vector + place * bias.element]);
}

/// Where sums go: those of a matrix's element `place` (of `out` in the outputs of all matrices), vector v.
struct ThinOutput {
  int64_t matrix, vector, element;  ///< strides of y
  int64_t matrix_outs, all_outs;    ///< elements of an output vector, of one matrix and of all
  int64_t parts;
  ThinBias bias;

  ThinOutput(const ThinProblem& problem, int64_t part_count, const ThinBias& added)
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
    if (parts > 1) {
      table[(int64_t{blockIdx.y} * vectors + v) * all_outs + in_matrix * matrix_outs + place] = sum;
    } else {
      y[in_matrix * matrix + v * vector + place * element] =
          cuda::round_to<T>(with_bias<T>(bias, sum, place, v));
    }
  }
};

/// y from the table [part, vector, out], `lanes` (a power of two) threads to a sum.
template <class T>
__global__ void __launch_bounds__(kThinFoldThreads)
    fold_thin_parts_kernel(ThinOutput output, int64_t sums, unsigned lanes, const compute_type<T>* table,
                           T* y) {
  using C = compute_type<T>;
  __shared__ C shared[kThinFoldThreads];
  cuda::wait_for_previous();
  const unsigned lane = threadIdx.x & (lanes - 1);
  const int64_t i = (int64_t{blockIdx.x} * kThinFoldThreads + threadIdx.x) / lanes;
  C sum = 0;
  if (i < sums) {
#pragma unroll 4
    for (int64_t part = lane; part < output.parts; part += lanes) sum += table[part * sums + i];
  }
  shared[threadIdx.x] = sum;
  cuda::fold_lanes(shared, threadIdx.x, lane, lanes, 1U, [](C a, C b) { return a + b; });
  if (lane != 0 || i >= sums) return;
  const int64_t v = i / output.all_outs, out = i - v * output.all_outs;
  const int64_t matrix = out / output.matrix_outs, place = out - matrix * output.matrix_outs;
  y[matrix * output.matrix + v * output.vector + place * output.element] =
      cuda::round_to<T>(with_bias<T>(output.bias, shared[threadIdx.x], place, v));
}

/// The second kernel, if there are several parts.
template <class T>
void fold_thin_parts(const Stream& stream, const ThinProblem& problem, const ThinOutput& output,
                     const compute_type<T>* table, T* y) {
  if (output.parts == 1) return;
  const int64_t sums = output.all_outs * problem.vectors;
  // Enough threads to a sum that none adds many parts, but not more than the sums need to fill the GPU.
  const int64_t most = std::max<int64_t>(detail::kThinBlocks * kThinFoldThreads / sums, 1);
  const auto lanes = static_cast<unsigned>(
      std::bit_floor(static_cast<uint64_t>(std::min({output.parts, most, int64_t{kThinFoldThreads}}))));
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(cuda::blocks_for(sums * lanes, kThinFoldThreads))),
      .block = dim3(kThinFoldThreads)};
  cuda::launch_early(stream, shape, fold_thin_parts_kernel<T>, output, sums, lanes, table, y);
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
void launch_row_sums(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                     compute_type<T>* table, const ThinBias& bias);
template <class T>
void launch_column_sums(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                        compute_type<T>* table, const ThinBias& bias);

}  // namespace sinter::ops
