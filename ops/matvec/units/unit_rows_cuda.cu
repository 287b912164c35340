// Thin products with one vector whose sums run along rows that fill no packs of
// 16 bytes.
#include <sinter/ops/matvec/unit_plan.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct UnitRows {
  cuda::FastDivide by_parts, by_groups;
  int64_t rows, columns, group_rows;
  int64_t part_units;  // of a row
  int64_t a_stride, x_stride;
  uint32_t last_part;
  bool one_span;
};

/// Where a row's whole units begin and end, and the elements of its ends, which fill no units, that a lane
/// has: of the places of a unit in front, and then of one behind, every lanes-th. The same for all rows of a
/// group of lanes.
template <int lanes, class T>
struct UnitRow {
  static constexpr uint32_t kPack = cuda::kPackSize<T>;
  static constexpr int kEnds = lanes >= 2 * static_cast<int>(kPack) ? 1 : 2 * static_cast<int>(kPack) / lanes;

  uint32_t front;  // elements
  int64_t units;
  int64_t end_elements[kEnds];
  bool has_end[kEnds];

  __device__ __forceinline__ UnitRow(const T* row, const UnitRows& shape, uint32_t part, uint32_t lane) {
    const uint32_t rest = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)) & 15;
    front = ((16 - rest) & 15) / static_cast<uint32_t>(sizeof(T));
    units = (shape.columns - front) / kPack;
    const int64_t behind = front + units * kPack;
#pragma unroll
    for (int e = 0; e < kEnds; ++e) {
      const uint32_t place = lane + e * lanes;
      if (place < kPack) {
        end_elements[e] = place;
        has_end[e] = part == 0 && place < front;
      } else {
        end_elements[e] = behind + place - kPack;
        has_end[e] = part == shape.last_part && end_elements[e] < shape.columns;
      }
    }
  }
};

/// What a lane has of a span: unit `unit` and every lanes-th after it, below
/// `behind`, of the rows that a group takes together.
template <int lanes, int units, class T>
struct UnitSpan {
  static constexpr int kAtOnce = UnitRowPlan::rows_at_once(units), kPack = cuda::kPackSize<T>;
  using C = compute_type<T>;
  using Loaded = LoadedPack<T, kPack>;
  using Rows = Loaded[kAtOnce][units];
  using Factors = C[units][kPack];

  int64_t unit, behind;

  __device__ __forceinline__ bool has(int k) const { return unit + k * lanes < behind; }
  /// `first_units`: where the whole units of the first row begin.
  __device__ __forceinline__ void load(const T* first_units, int64_t row_step, const bool (&used)[kAtOnce],
                                       Rows& rows) const {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int k = 0; k < units; ++k) {
        if (used[u] && has(k)) {
          rows[u][k].load_once(Loaded::source(first_units + u * row_step) + unit + k * lanes);
        }
      }
    }
  }
  /// The vector's elements, from that of the first whole unit on.
  __device__ __forceinline__ void load_factors(const T* x, const T* end, Factors& factors) const {
    ShiftedPack<T> shifted[units];
#pragma unroll
    for (int k = 0; k < units; ++k) {
      if (has(k)) shifted[k].template load<false>(x + (unit + k * lanes) * kPack, end);
    }
#pragma unroll
    for (int k = 0; k < units; ++k) {
      const Loaded elements = shifted[k].get();
#pragma unroll
      for (int j = 0; j < kPack; ++j) factors[k][j] = elements[j];
    }
  }
  __device__ __forceinline__ void add(const Rows& rows, const Factors& factors, const bool (&used)[kAtOnce],
                                      C (&sums)[kAtOnce]) const {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int k = 0; k < units; ++k) {
        if (!used[u] || !has(k)) continue;
#pragma unroll
        for (int j = 0; j < kPack; ++j) sums[u] += rows[u][k][j] * factors[k][j];
      }
    }
  }
};

/// The sum over the lanes of a group of `count` values, 2 or 4: of the first for the first lanes, and so on.
template <int lanes, int count, class C>
__device__ __forceinline__ C fold_rows(const C (&values)[count], uint32_t lane) {
  constexpr int half = count / 2;
  const bool upper = (lane & (lanes / 2)) != 0;
  C halves[half];
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const C own = upper ? values[half + i] : values[i], given = upper ? values[i] : values[half + i];
    halves[i] = own + __shfl_xor_sync(kThinLanes, given, lanes / 2);
  }
  C sum = halves[0];
  if constexpr (half == 2) {
    const bool odd = (lane & (lanes / 4)) != 0;
    const C given = odd ? halves[0] : halves[1];
    sum = (odd ? halves[1] : halves[0]) + __shfl_xor_sync(kThinLanes, given, lanes / 4);
  }
#pragma unroll
  for (int distance = lanes / count / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kThinLanes, sum, distance);
  }
  return sum;
}

/// Block (matrix, rows, part) of a UnitRowPlan; parts are neighbours.
template <int lanes, int units, class T>
__global__ void __launch_bounds__(UnitRowPlan::kThreads, units == 1 ? 3 : 2)
    unit_rows_kernel(const __grid_constant__ UnitRows shape, const __grid_constant__ ThinOutput output,
                     const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                     compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  using Span = UnitSpan<lanes, units, T>;
  using Row = UnitRow<lanes, T>;
  constexpr int at_once = Span::kAtOnce;
  constexpr int32_t slots = UnitRowPlan::kThreads / lanes;
  cuda::let_next_begin();
  const uint32_t lane = threadIdx.x % lanes, slot = threadIdx.x / lanes;
  uint32_t part, group;
  const uint32_t matrix = shape.by_groups.divide(shape.by_parts.divide(blockIdx.x, part), group);
  // The rows of a group of lanes lie `slots` apart: whole units.
  const int64_t begin = group * shape.group_rows;
  const auto rows = static_cast<int32_t>(min(shape.group_rows, shape.rows - begin));
  const T* from = a + matrix * shape.a_stride + (begin + slot) * shape.columns;
  const T *with = x + matrix * shape.x_stride, *const with_end = with + shape.columns;
  const Row row(from, shape, part, lane);
  const int64_t row_step = slots * shape.columns;
  C end_factors[Row::kEnds] = {};
#pragma unroll
  for (int e = 0; e < Row::kEnds; ++e) {
    if (row.has_end[e]) end_factors[e] = cuda::load_as_compute(with[row.end_elements[e]]);
  }
  with += row.front;
  const int64_t first_unit = part * shape.part_units,
                behind_units = min(first_unit + shape.part_units, row.units);
  typename Span::Factors factors;
#pragma unroll 1
  for (int32_t place = 0; place < rows; place += at_once * slots, from += at_once * row_step) {
    const int32_t left = rows - place - static_cast<int32_t>(slot);
    bool used[at_once];
    C sums[at_once] = {};
    LoadedPack<T, 1> ends[at_once][Row::kEnds];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      used[u] = u * slots < left;
#pragma unroll
      for (int e = 0; e < Row::kEnds; ++e) {
        if (used[u] && row.has_end[e]) {
          ends[u][e].load_once(LoadedPack<T, 1>::source(from + u * row_step + row.end_elements[e]));
        }
      }
    }
#pragma unroll 1
    for (Span span{first_unit + lane, behind_units}; span.has(0); span.unit += lanes * units) {
      typename Span::Rows loaded;
      span.load(from + row.front, row_step, used, loaded);
      if (!shape.one_span || place == 0) span.load_factors(with, with_end, factors);
      span.add(loaded, factors, used, sums);
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int e = 0; e < Row::kEnds; ++e) {
        if (used[u] && row.has_end[e]) sums[u] += ends[u][e][0] * end_factors[e];
      }
    }
    constexpr int quarter = lanes / at_once;
    const C sum = fold_rows<lanes>(sums, lane);
    const auto written = static_cast<int32_t>(slot + lane / quarter * slots);
    if (lane % quarter == 0 && written < rows - place) {
      output.write_part(part, matrix, begin + place + written, 0, 1, sum, y, table);
    }
  }
}

// ---- host

template <int lanes, int units, class T>
void launch_plan(const Stream& stream, const ThinProblem& problem, const UnitRowPlan& plan, const T* a,
                 const T* x, T* y, compute_type<T>* table, const ThinBias& bias) {
  const UnitRows shape{.by_parts = cuda::FastDivide(static_cast<uint32_t>(plan.parts)),
                       .by_groups = cuda::FastDivide(static_cast<uint32_t>(plan.groups)),
                       .rows = problem.rows,
                       .columns = problem.columns,
                       .group_rows = plan.group_rows,
                       .part_units = plan.part_spans * plan.span(),
                       .a_stride = problem.a_stride,
                       .x_stride = problem.x_stride,
                       .last_part = static_cast<uint32_t>(plan.parts - 1),
                       .one_span = plan.part_spans == 1};
  const ThinOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.groups * plan.parts)),
                               .block = dim3(UnitRowPlan::kThreads)};
  cuda::launch(stream, grid, unit_rows_kernel<lanes, units, T>, shape, output, a, x, y, table);
  fold_thin_parts<T>(stream, problem, output, table, y);
}

}  // namespace

template <class T>
void launch_unit_rows(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const ThinBias& bias) {
  const UnitRowPlan plan = plan_unit_rows(problem.batch, problem.rows, problem.columns, cuda::kPackSize<T>);
  const auto launch = [&]<int lanes, int units>() {
    launch_plan<lanes, units>(stream, problem, plan, a, x, y, table, bias);
  };
  if (plan.lanes == 8) {
    if (plan.units == 2) return launch.template operator()<8, 2>();
    if (plan.units == 3) return launch.template operator()<8, 3>();
    return launch.template operator()<8, 4>();
  }
  if (plan.lanes == 16) {
    return plan.units == 3 ? launch.template operator()<16, 3>() : launch.template operator()<16, 4>();
  }
  return plan.units == 1 ? launch.template operator()<32, 1>() : launch.template operator()<32, 2>();
}

template void launch_unit_rows(const Stream&, const ThinProblem&, const float*, const float*, float*, float*,
                               const ThinBias&);
template void launch_unit_rows(const Stream&, const ThinProblem&, const double*, const double*, double*,
                               double*, const ThinBias&);
template void launch_unit_rows(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                               float*, const ThinBias&);
template void launch_unit_rows(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                               float*, const ThinBias&);

}  // namespace sinter::ops
