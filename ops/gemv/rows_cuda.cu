// Products with few vectors whose sums run along the matrix's rows: y = a x.
#include <sinter/ops/gemv/gemv_kernels_cuda.h>

namespace sinter::ops {
namespace {

// ---- short rows

/// Of a row of all matrices: its matrix, and where it and its vector begin.
struct RowPlaces {
  cuda::FastDivide by_rows;
  uint32_t all_rows;
  int64_t packs;  // of a row
  int64_t a_stride, x_stride;

  RowPlaces(const GemvProblem& problem, int64_t row_packs)
      : by_rows(static_cast<uint32_t>(problem.rows)),
        all_rows(static_cast<uint32_t>(problem.batch * problem.rows)),
        packs(row_packs),
        a_stride(problem.a_stride),
        x_stride(problem.x_stride) {}
};

/// Takes rows of at most `lanes` * `unroll` packs (exactly so many if `exact`), without a loop: its few
/// instructions are what a small product waits for. The matrices follow each other without gaps, so that the
/// first loads need no division; with `one_vector` all use the same.
template <int pack, int unroll, int lanes, bool exact, bool one_vector, class T>
__global__ void __launch_bounds__(RowSumPlan::kThreads)
    short_rows_kernel(const __grid_constant__ RowPlaces places, GemvBias bias, const T* __restrict__ a,
                      const T* __restrict__ x, T* __restrict__ y) {
  using Loaded = LoadedPack<T, pack>;
  const uint32_t lane = threadIdx.x % lanes;
  const uint32_t row = blockIdx.x * (RowSumPlan::kThreads / lanes) + threadIdx.x / lanes;
  // A warp's threads all take part in its shuffles: those behind the end repeat the last row.
  const uint32_t used = min(row, places.all_rows - 1);
  const uint32_t packs = exact ? lanes * unroll : static_cast<uint32_t>(places.packs);
  const auto* from = Loaded::source(a) + uint64_t{used} * packs + lane;
  Loaded left[unroll] = {}, right[unroll] = {};
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    if (exact || lane + u * lanes < packs) left[u].load_past_l1(from + u * lanes);
  }
  const auto* with =
      Loaded::source(one_vector ? x : x + places.by_rows.divide(used) * places.x_stride) + lane;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    if (exact || lane + u * lanes < packs) right[u].load(with + u * lanes);
  }
  compute_type<T> sum = 0;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
#pragma unroll
    for (int j = 0; j < pack; ++j) sum += left[u][j] * right[u][j];
  }
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (lane == 0 && row < places.all_rows) y[row] = cuda::round_to<T>(with_bias<T>(bias, sum, row, 0));
}

// ---- rows of any length

struct RowSums {
  RowPlaces places;
  uint32_t log_lanes;
  int64_t part_packs;
  int64_t x_vector;
  int vectors;
};

/// The packs of `vectors` vectors that belong to one pack of the matrix. Interleaved: rows of a dense
/// (in, vectors) matrix, so that vector v's element j is element j * vectors + v of the memory.
template <int pack, int vectors, bool interleaved, class T>
struct VectorPacks {
  using Loaded = LoadedPack<T, pack>;

  Loaded packs[vectors];

  __device__ __forceinline__ void load(const T* x, int64_t i, int64_t x_vector, int used) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const T* from =
          interleaved ? x + (i * vectors + v) * pack : x + (v < used ? v : used - 1) * x_vector + i * pack;
      packs[v].load(Loaded::source(from));
    }
  }
  __device__ __forceinline__ compute_type<T> at(int v, int j) const {
    if constexpr (interleaved) {
      const int place = j * vectors + v;
      return packs[place / pack][place % pack];
    } else {
      return packs[v][j];
    }
  }
};

/// Adds up each of `count` sums (a power of two) over 2^log_lanes lanes of a warp, in a tree: as soon as a
/// lane has several sums it gives the half of them away. Of the lanes lane * count / lanes is then the first
/// that it has, in sums[0].
template <int count, class C>
__device__ __forceinline__ void add_lanes(C (&sums)[count], uint32_t lane, uint32_t log_lanes) {
#pragma unroll
  for (uint32_t level = 0; level < 5; ++level) {
    if (level >= log_lanes) break;
    const uint32_t distance = 1U << (log_lanes - 1 - level);
    const int half = count >> (level + 1);
    if (half == 0) sums[0] += __shfl_xor_sync(kAllLanes, sums[0], distance);
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const C given = upper ? sums[k] : sums[k + half], kept = upper ? sums[k + half] : sums[k];
      sums[k] = kept + __shfl_xor_sync(kAllLanes, given, distance);
    }
  }
}

/// Block (rows, part) of a RowSumPlan, with `rows` to a group.
template <int pack, int unroll, int rows, int vectors, bool interleaved, class T>
__global__ void __launch_bounds__(RowSumPlan::kThreads, rows > 1 ? 2 : 1)
    row_sums_kernel(RowSums shape, GemvOutput output, const T* __restrict__ a, const T* __restrict__ x,
                    T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  const uint32_t step = 1U << shape.log_lanes, lane = threadIdx.x & (step - 1);
  const uint32_t row =
      (blockIdx.x * (RowSumPlan::kThreads >> shape.log_lanes) + (threadIdx.x >> shape.log_lanes)) * rows;
  cuda::let_next_begin();
  // A warp's threads all take part in its shuffles: those behind the end repeat the last row.
  uint32_t place;
  const uint32_t last = shape.places.all_rows - 1,
                 matrix = shape.places.by_rows.divide(min(row, last), place);
  const int64_t begin = blockIdx.y * shape.part_packs,
                end = min(begin + shape.part_packs, shape.places.packs);
  const typename LoadedPack<T, pack>::Source* from[rows];
#pragma unroll
  for (uint32_t r = 0; r < rows; ++r) {
    from[r] = LoadedPack<T, pack>::source(a + matrix * shape.places.a_stride) +
              (place + (row + r <= last ? r : 0)) * shape.places.packs;
  }
  const T* with = x + matrix * shape.places.x_stride;
  C sums[rows * vectors] = {};
  for (int64_t i = begin + lane; i < end; i += step * unroll) {
    LoadedPack<T, pack> left[unroll][rows];
    VectorPacks<pack, vectors, interleaved, T> right[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
#pragma unroll
      for (int r = 0; r < rows; ++r) left[u][r].load_once(from[r] + i + u * step);
    }
    if constexpr (rows == 1) {  // else registers are short
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (i + u * step < end) right[u].load(with, i + u * step, shape.x_vector, shape.vectors);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      if constexpr (rows > 1) right[u].load(with, i + u * step, shape.x_vector, shape.vectors);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const C element = left[u][r][j];
#pragma unroll
          for (int v = 0; v < vectors; ++v) sums[r * vectors + v] += element * right[u].at(v, j);
        }
      }
    }
  }
  constexpr int count = rows * vectors, most = count < 4 ? count : 4;  // plans have lanes enough
  add_lanes(sums, lane, shape.log_lanes);
  if (((lane * count) & (step - 1)) != 0) return;  // another lane has the same sum
  const uint32_t first = lane * count >> shape.log_lanes;
#pragma unroll
  for (uint32_t k = 0; k < most; ++k) {
    const uint32_t r = (first + k) / vectors, v = (first + k) % vectors;
    if (k << shape.log_lanes < count && row + r <= last && v < static_cast<uint32_t>(shape.vectors)) {
      output.write(matrix, place + r, static_cast<int>(v), shape.vectors, sums[k], y, table);
    }
  }
}

// ---- host

template <class T>
struct RowSumLaunch {
  const Stream& stream;
  const GemvProblem& problem;
  const T *a, *x;
  T* y;
  compute_type<T>* table;
  GemvBias bias;

  cuda::LaunchShape grid(const RowSumPlan& plan) const {
    return {.grid = dim3(
                static_cast<unsigned>(cuda::blocks_for(problem.batch * problem.rows, plan.rows_per_block())),
                static_cast<unsigned>(plan.parts)),
            .block = dim3(RowSumPlan::kThreads)};
  }

  template <int pack, int unroll, int rows, int vectors, bool interleaved>
  void walk(const RowSumPlan& plan) const {
    const RowSums shape{
        .places = RowPlaces(problem, plan.packs),
        .log_lanes = static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(plan.lanes))),
        .part_packs = plan.part_packs,
        .x_vector = problem.x_vector,
        .vectors = problem.vectors};
    const GemvOutput output(problem, plan.parts, bias);
    cuda::launch(stream, grid(plan), row_sums_kernel<pack, unroll, rows, vectors, interleaved, T>, shape,
                 output, a, x, y, table);
    fold_parts<T>(stream, problem, output, table, y);
  }

  template <int pack, int lanes>
  void run_short(const RowSumPlan& plan) const {
    constexpr bool wide = pack == cuda::kPackSize<T>;
    constexpr int unroll = wide ? RowSumPlan::kWideAtOnce : RowSumPlan::kNarrowAtOnce;
    if (plan.lanes < lanes) {
      if constexpr (lanes > 1) run_short<pack, lanes / 2>(plan);
      return;
    }
    const auto launch = [&]<bool exact, bool one_vector>() {
      cuda::launch(stream, grid(plan), short_rows_kernel<pack, unroll, lanes, exact, one_vector, T>,
                   RowPlaces(problem, plan.packs), bias, a, x, y);
    };
    if constexpr (wide && sizeof(T) < sizeof(double)) {  // no network computes in float64
      const bool one_vector = problem.batch == 1 || problem.x_stride == 0;
      if (one_vector && plan.packs == lanes * unroll) return launch.template operator()<true, true>();
      if (one_vector) return launch.template operator()<false, true>();
    }
    launch.template operator()<false, false>();
  }

  /// One vector.
  template <int pack>
  void run() const {
    const RowSumPlan plan = row_plan_of(problem, pack);
    const bool gapless = problem.batch == 1 || problem.a_stride == problem.rows * problem.columns;
    if (plan.at_once && gapless) return run_short<pack, 32>(plan);
    walk<pack, RowSumPlan::kWalking, 1, 1, false>(plan);
  }

  template <int pack, bool interleaved>
  void run_vectors() const {
    constexpr int at_once = RowSumPlan::kVectorsAtOnce, group = RowSumPlan::kGroupRows;
    const RowSumPlan plan = row_plan_of(problem, pack);
    if (problem.vectors <= 2) return walk<pack, at_once, 1, 2, interleaved>(plan);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (problem.vectors > 4) return walk<pack, at_once, group, 8, interleaved>(plan);
      if (plan.group_rows > 1) return walk<pack, at_once, group, 4, interleaved>(plan);
    }
    walk<pack, at_once, 1, 4, interleaved>(plan);
  }
};

}  // namespace

template <class T>
void launch_row_sums(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                     compute_type<T>* table, const GemvBias& bias) {
  constexpr int widest = cuda::kPackSize<T>;
  const RowSumLaunch<T> launch{stream, problem, a, x, y, table, bias};
  // Both sides allow it: vectors begin at multiples of `columns` elements.
  const int pack = std::min(pack_of<T>(problem.columns, a), pack_of<T>(problem.columns, x));
  if (problem.vectors > 1) {
    const bool interleaved = problem.x_element != 1;
    if (pack == widest) {
      return interleaved ? launch.template run_vectors<widest, true>()
                         : launch.template run_vectors<widest, false>();
    }
    return interleaved ? launch.template run_vectors<1, true>() : launch.template run_vectors<1, false>();
  }
  if (pack == widest) return launch.template run<widest>();
  if (takes_unit_rows(problem, pack)) return launch_unit_rows(stream, problem, a, x, y, table, bias);
  if constexpr (widest > 4) {
    if (pack == 4) return launch.template run<4>();
  }
  if constexpr (widest > 2) {
    if (pack == 2) return launch.template run<2>();
  }
  launch.template run<1>();
}

template void launch_row_sums(const Stream&, const GemvProblem&, const float*, const float*, float*, float*,
                              const GemvBias&);
template void launch_row_sums(const Stream&, const GemvProblem&, const double*, const double*, double*,
                              double*, const GemvBias&);
template void launch_row_sums(const Stream&, const GemvProblem&, const float16*, const float16*, float16*,
                              float*, const GemvBias&);
template void launch_row_sums(const Stream&, const GemvProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                              float*, const GemvBias&);

}  // namespace sinter::ops
