// Products with one vector whose sums run along rows that fill no packs of 16 bytes.
#include <sinter/ops/gemv/plan/row_plan.h>
#include <sinter/ops/gemv/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct UnitRows {
  cuda::FastDivide by_parts, by_groups;
  int64_t rows, columns, group_rows;
  int64_t spans, part_spans;  // of a row
  int64_t a_stride, x_stride;
  uint32_t last_part;
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

/// What a lane has in flight: of each of the rows that a group takes together, `units` units, `lanes` apart.
template <int lanes, int units, class T>
struct UnitLoads {
  static constexpr int kAtOnce = UnitRowPlan::rows_at_once(units), kPack = cuda::kPackSize<T>;
  static constexpr int32_t kSlots = UnitRowPlan::kThreads / lanes;
  using C = compute_type<T>;
  using Loaded = LoadedPack<T, kPack>;
  using Source = typename Loaded::Source;

  /// Where they are: of the first row, the lane's first unit, and how many the lane's part of the row has
  /// from there on, and the block's rows from there on.
  struct Place {
    const Source* from;
    int64_t units_left;
    int32_t rows_left;

    __device__ __forceinline__ bool has(int u, int k) const {
      return u * kSlots < rows_left && k * lanes < units_left;
    }
  };

  Loaded loaded[kAtOnce][units];
  int64_t row_step;  // units from a row to the next

  __device__ __forceinline__ void load(const Place& place, int u, int k) {
    if (place.has(u, k)) loaded[u][k].load_once(place.from + u * row_step + k * lanes);
  }
  /// The vector's elements for a place's units, as they lie: as float32 they would need more registers.
  __device__ __forceinline__ void load_factors(const Place& place, const T* x, const T* end,
                                               Loaded (&factors)[units]) const {
    ShiftedPack<T> shifted[units];
#pragma unroll
    for (int k = 0; k < units; ++k) {
      if (k * lanes < place.units_left) shifted[k].template load<false>(x + k * lanes * kPack, end);
    }
#pragma unroll
    for (int k = 0; k < units; ++k) factors[k] = shifted[k].get();
  }
  /// Multiplies the units of a place; in place of each comes that of the next one. The branches keep the
  /// compiler from multiplying all units before it loads any.
  __device__ __forceinline__ void add(const Place& place, const Place& next, const Loaded (&factors)[units],
                                      C (&sums)[kAtOnce]) {
#pragma unroll
    for (int k = 0; k < units; ++k) {
      C with[kPack];
#pragma unroll
      for (int j = 0; j < kPack; ++j) with[j] = factors[k][j];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (place.has(u, k)) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) sums[u] += loaded[u][k][j] * with[j];
        }
        load(next, u, k);
      }
    }
  }
};

/// The ends of the rows that a group takes together, those of a lane.
template <int lanes, int at_once, class T>
struct UnitEnds {
  static constexpr int kEnds = UnitRow<lanes, T>::kEnds;
  static constexpr int32_t kSlots = UnitRowPlan::kThreads / lanes;
  using C = compute_type<T>;
  using Loaded = LoadedPack<T, 1>;

  Loaded ends[at_once][kEnds];
  C factors[kEnds];
  const T* from;          // the first row's first end
  int32_t behind[kEnds];  // from there to its others: a lane has several only of short rows
  bool has[kEnds];

  __device__ __forceinline__ UnitEnds(const UnitRow<lanes, T>& row, const T* first_row, const T* x)
      : from(first_row + row.end_elements[0]) {
#pragma unroll
    for (int e = 0; e < kEnds; ++e) {
      behind[e] = static_cast<int32_t>(row.end_elements[e] - row.end_elements[0]);
      has[e] = row.has_end[e];
      factors[e] = has[e] ? cuda::load_as_compute(x[row.end_elements[e]]) : C{0};
    }
  }
  /// Of the next rows, `row_step` elements apart, of which the block has `rows_left`.
  __device__ __forceinline__ void load(int64_t row_step, int32_t rows_left) {
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int e = 0; e < kEnds; ++e) {
        if (u * kSlots < rows_left && has[e]) ends[u][e].load_once(Loaded::source(from + behind[e]));
      }
      from += row_step;
    }
  }
  __device__ __forceinline__ void add(C (&sums)[at_once]) const {
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int e = 0; e < kEnds; ++e) {
        if (has[e]) sums[u] += ends[u][e][0] * factors[e];
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
    halves[i] = own + __shfl_xor_sync(kAllLanes, given, lanes / 2);
  }
  C sum = halves[0];
  if constexpr (half == 2) {
    const bool odd = (lane & (lanes / 4)) != 0;
    const C given = odd ? halves[0] : halves[1];
    sum = (odd ? halves[1] : halves[0]) + __shfl_xor_sync(kAllLanes, given, lanes / 4);
  }
#pragma unroll
  for (int distance = lanes / count / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum;
}

/// Block (matrix, rows, part) of a UnitRowPlan; parts are neighbours. What a group takes next is loaded while
/// it multiplies: spans of the same rows, or the first span of its next rows.
template <int lanes, int units, class T>
__global__ void __launch_bounds__(UnitRowPlan::kThreads, units == 1 ? 3 : 2)
    unit_rows_kernel(const __grid_constant__ UnitRows shape, const __grid_constant__ GemvOutput output,
                     const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y,
                     compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  using Loads = UnitLoads<lanes, units, T>;
  using Row = UnitRow<lanes, T>;
  constexpr int at_once = Loads::kAtOnce, kPack = Loads::kPack;
  constexpr int32_t slots = Loads::kSlots;
  cuda::let_next_begin();
  const uint32_t lane = threadIdx.x % lanes, slot = threadIdx.x / lanes;
  uint32_t part, group;
  const uint32_t matrix = shape.by_groups.divide(shape.by_parts.divide(blockIdx.x, part), group);
  // The rows of a group of lanes lie `slots` apart: whole units.
  const int64_t begin = group * shape.group_rows;
  const auto rows = static_cast<int32_t>(min(shape.group_rows, shape.rows - begin));
  const T* const from = a + matrix * shape.a_stride + (begin + slot) * shape.columns;
  const T *with = x + matrix * shape.x_stride, *const with_end = with + shape.columns;
  const Row row(from, shape, part, lane);
  const int64_t row_step = slots * shape.columns;
  const int64_t first_unit = part * shape.part_spans * (lanes * units),
                behind_unit = min(first_unit + shape.part_spans * (lanes * units), row.units);
  const auto spans = static_cast<int32_t>(min(shape.part_spans, shape.spans - part * shape.part_spans));
  typename Loads::Place first{.from = Loads::Loaded::source(from + row.front) + first_unit + lane,
                              .units_left = static_cast<int32_t>(behind_unit - first_unit - lane),
                              .rows_left = rows - static_cast<int32_t>(slot)};
  Loads loads;
  loads.row_step = row_step / kPack;
#pragma unroll
  for (int u = 0; u < at_once; ++u) {
#pragma unroll
    for (int k = 0; k < units; ++k) loads.load(first, u, k);
  }
  UnitEnds<lanes, at_once, T> ends(row, from, with);
  ends.load(row_step, first.rows_left);
  with += row.front + (first_unit + lane) * kPack;
  typename Loads::Loaded factors[units];
#pragma unroll 1
  for (int32_t place = 0; place < rows; place += at_once * slots) {
    C sums[at_once] = {};
    typename Loads::Place here = first;
    first.from += at_once * loads.row_step;
    first.rows_left -= at_once * slots;
#pragma unroll 1
    for (int32_t span = 0; span < spans; ++span) {
      constexpr int step = lanes * units;
      const bool is_last = span + 1 == spans;
      const typename Loads::Place next =
          is_last ? first : typename Loads::Place{here.from + step, here.units_left - step, here.rows_left};
      if (spans > 1 || place == 0)
        loads.load_factors(here, with + int64_t{span} * (step * kPack), with_end, factors);
      loads.add(here, next, factors, sums);
      here = next;
    }
    ends.add(sums);
    ends.load(row_step, first.rows_left);
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
void launch_plan(const Stream& stream, const GemvProblem& problem, const UnitRowPlan& plan, const T* a,
                 const T* x, T* y, compute_type<T>* table, const GemvBias& bias) {
  const UnitRows shape{.by_parts = cuda::FastDivide(static_cast<uint32_t>(plan.parts)),
                       .by_groups = cuda::FastDivide(static_cast<uint32_t>(plan.groups)),
                       .rows = problem.rows,
                       .columns = problem.columns,
                       .group_rows = plan.group_rows,
                       .spans = plan.spans,
                       .part_spans = plan.part_spans,
                       .a_stride = problem.a_stride,
                       .x_stride = problem.x_stride,
                       .last_part = static_cast<uint32_t>(plan.parts - 1)};
  const GemvOutput output(problem, plan.parts, bias);
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.groups * plan.parts)),
                               .block = dim3(UnitRowPlan::kThreads)};
  cuda::launch(stream, grid, unit_rows_kernel<lanes, units, T>, shape, output, a, x, y, table);
  fold_parts<T>(stream, problem, output, table, y);
}

}  // namespace

template <class T>
void launch_unit_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                      compute_type<T>* table, const GemvBias& bias) {
  const UnitRowPlan plan =
      plan_unit_rows(problem.processors, problem.batch, problem.rows, problem.columns, cuda::kPackSize<T>);
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

template void launch_unit_rows(const Stream&, const GemvProblem&, const float*, const float*, float*, float*,
                               const GemvBias&);
template void launch_unit_rows(const Stream&, const GemvProblem&, const double*, const double*, double*,
                               double*, const GemvBias&);
template void launch_unit_rows(const Stream&, const GemvProblem&, const float16*, const float16*, float16*,
                               float*, const GemvBias&);
template void launch_unit_rows(const Stream&, const GemvProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                               float*, const GemvBias&);

}  // namespace sinter::ops
