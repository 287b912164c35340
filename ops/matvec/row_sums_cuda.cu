// Thin products whose sums run along the matrix's rows: y = a x.
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

struct RowSums {
  cuda::FastDivide by_rows;
  uint32_t all_rows;
  uint32_t log_lanes;
  int64_t packs, part_packs;
  int64_t a_stride, x_stride, x_vector;
  int vectors;
};

/// The packs of `vectors` vectors that belong to one pack of the matrix. Interleaved: rows of a dense
/// (in, vectors) matrix, so that vector v's element j is element j * vectors + v of the memory.
template <int pack, int vectors, bool interleaved, class T>
struct VectorPacks {
  cuda::Pack<T, pack> packs[vectors];

  __device__ __forceinline__ void load(const T* x, int64_t i, int64_t x_vector, int used) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const T* from =
          interleaved ? x + (i * vectors + v) * pack : x + (v < used ? v : used - 1) * x_vector + i * pack;
      packs[v] = *reinterpret_cast<const cuda::Pack<T, pack>*>(from);
    }
  }
  __device__ __forceinline__ compute_type<T> at(int v, int j) const {
    if constexpr (interleaved) {
      const int place = j * vectors + v;
      return load_as_compute(packs[place / pack].values[place % pack]);
    } else {
      return load_as_compute(packs[v].values[j]);
    }
  }
};

/// Block (rows, part) of a RowSumPlan.
template <int pack, int unroll, int vectors, bool interleaved, class T>
__global__ void __launch_bounds__(RowSumPlan::kThreads)
    row_sums_kernel(RowSums shape, ThinOutput output, const T* __restrict__ a, const T* __restrict__ x,
                    T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  const uint32_t step = 1U << shape.log_lanes, lane = threadIdx.x & (step - 1);
  const uint32_t row =
      blockIdx.x * (RowSumPlan::kThreads >> shape.log_lanes) + (threadIdx.x >> shape.log_lanes);
  cuda::allow_next_kernel();
  // A warp's threads all take part in its shuffles: those behind the end repeat the last row.
  uint32_t place;
  const uint32_t matrix = shape.by_rows.divide(min(row, shape.all_rows - 1), place);
  const int64_t begin = blockIdx.y * shape.part_packs, end = min(begin + shape.part_packs, shape.packs);
  const auto* from =
      reinterpret_cast<const cuda::Pack<T, pack>*>(a + matrix * shape.a_stride) + place * shape.packs;
  const T* with = x + matrix * shape.x_stride;
  C sums[vectors] = {};
  for (int64_t i = begin + lane; i < end; i += step * unroll) {
    cuda::Pack<T, pack> left[unroll];
    VectorPacks<pack, vectors, interleaved, T> right[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step < end) left[u] = from[i + u * step];
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step < end) right[u].load(with, i + u * step, shape.x_vector, shape.vectors);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        const C element = load_as_compute(left[u].values[j]);
#pragma unroll
        for (int v = 0; v < vectors; ++v) sums[v] += element * right[u].at(v, j);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    for (uint32_t distance = step / 2; distance > 0; distance /= 2) {
      sums[v] += __shfl_xor_sync(kThinLanes, sums[v], distance);
    }
    if (lane == 0 && row < shape.all_rows && v < shape.vectors) {
      output.write(matrix, place, v, shape.vectors, sums[v], y, table);
    }
  }
}

// ---- host

template <class T>
struct RowSumLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const T *a, *x;
  T* y;
  compute_type<T>* table;

  template <int pack, int unroll, int vectors, bool interleaved>
  void run(const RowSumPlan& plan) const {
    const int64_t all_rows = problem.batch * problem.rows;
    const RowSums shape{
        .by_rows = cuda::FastDivide(static_cast<uint32_t>(problem.rows)),
        .all_rows = static_cast<uint32_t>(all_rows),
        .log_lanes = static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(plan.lanes))),
        .packs = plan.packs,
        .part_packs = plan.part_packs,
        .a_stride = problem.a_stride,
        .x_stride = problem.x_stride,
        .x_vector = problem.x_vector,
        .vectors = problem.vectors};
    const ThinOutput output(problem, plan.parts);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(cuda::blocks_for(all_rows, plan.rows_per_block())),
                     static_cast<unsigned>(plan.parts)),
        .block = dim3(RowSumPlan::kThreads)};
    cuda::launch(stream, grid, row_sums_kernel<pack, unroll, vectors, interleaved, T>, shape, output, a, x, y,
                 table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }

  template <int pack>
  void run_one_vector(const RowSumPlan& plan) const {
    if (plan.unroll == 1) return run<pack, 1, 1, false>(plan);
    if (plan.unroll == 2) return run<pack, 2, 1, false>(plan);
    run<pack, 4, 1, false>(plan);
  }

  template <int pack, bool interleaved>
  void run_vectors(const RowSumPlan& plan) const {
    if (problem.vectors <= 2) return run<pack, 2, 2, interleaved>(plan);
    if (problem.vectors <= 4) return run<pack, 2, 4, interleaved>(plan);
    run<pack, 1, 8, interleaved>(plan);
  }
};

}  // namespace

template <class T>
void launch_row_sums(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                     compute_type<T>* table) {
  constexpr int widest = cuda::kPackSize<T>;
  const RowSumLaunch<T> launch{stream, problem, a, x, y, table};
  // Both sides allow it: vectors begin at multiples of `columns` elements.
  const int pack = std::min(pack_of<T>(problem.columns, a), pack_of<T>(problem.columns, x));
  const int64_t all_rows = problem.batch * problem.rows;
  if (problem.vectors > 1) {
    const bool wide = pack == widest, interleaved = problem.x_element != 1;
    const RowSumPlan plan = plan_row_sums(all_rows, problem.columns, wide ? widest : 1);
    if (wide)
      return interleaved ? launch.template run_vectors<widest, true>(plan)
                         : launch.template run_vectors<widest, false>(plan);
    return interleaved ? launch.template run_vectors<1, true>(plan)
                       : launch.template run_vectors<1, false>(plan);
  }
  const RowSumPlan plan = plan_row_sums(all_rows, problem.columns, pack);
  if (pack == widest) return launch.template run_one_vector<widest>(plan);
  if constexpr (widest > 4) {
    if (pack == 4) return launch.template run_one_vector<4>(plan);
  }
  if constexpr (widest > 2) {
    if (pack == 2) return launch.template run_one_vector<2>(plan);
  }
  launch.template run_one_vector<1>(plan);
}

template void launch_row_sums(const Stream&, const ThinProblem&, const float*, const float*, float*, float*);
template void launch_row_sums(const Stream&, const ThinProblem&, const double*, const double*, double*,
                              double*);
template void launch_row_sums(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                              float*);
template void launch_row_sums(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                              float*);

}  // namespace sinter::ops
