// Thin products with one vector whose sums run along the columns of few long rows.
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/ops/matvec/plan/few_row_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

/// The sums of columns `column`, column + 1, ...; of which those behind `columns` are not written.
template <class T, class C, int pack>
__device__ __forceinline__ void write_columns(const ThinOutput& output, int64_t matrix, int64_t column,
                                              int64_t columns, const C (&sums)[pack], T* y) {
  T* const to = y + matrix * output.matrix + column * output.element;
  cuda::Pack<T, pack> rounded;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const C bias = column + j < columns ? with_bias<T>(output.bias, sums[j], column + j, 0) : sums[j];
    rounded.values[j] = cuda::round_to<T>(bias);
  }
  if (column + pack <= columns && output.element == 1 && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    *reinterpret_cast<cuda::Pack<T, pack>*>(to) = rounded;
    return;
  }
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    if (column + j < columns) to[j * output.element] = rounded.values[j];
  }
}

// ---- a thread walks down its columns

struct FewRows {
  cuda::FastDivide by_tiles;
  int64_t rows, columns;
  int64_t a_stride, x_stride, x_element;
};

/// A pack of a row: where all rows begin at whole units, one of these, else `shifted` from two.
template <bool shifted, class T>
struct RowPack {
  LoadedPack<T, cuda::kPackSize<T>> pack;

  __device__ __forceinline__ void load(const T* from, const T*) { pack.load_once(pack.source(from)); }
  __device__ __forceinline__ auto get() const { return pack; }
};
template <class T>
struct RowPack<true, T> {
  ShiftedPack<T> pack;

  __device__ __forceinline__ void load(const T* from, const T* end) { pack.template load<true>(from, end); }
  __device__ __forceinline__ auto get() const { return pack.get(); }
};

/// Block (matrix and tile) of a FewRowPlan. What a shifted pack holds behind its row is the next row: it gets
/// into sums that are not written. Of rows that begin with units only a single one may end within a unit.
template <bool shifted, int packs, class T>
__global__ void __launch_bounds__(FewRowPlan::kThreads, shifted ? 2 : 3)
    few_rows_kernel(const __grid_constant__ FewRows shape, const __grid_constant__ ThinOutput output,
                    const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y) {
  using C = compute_type<T>;
  constexpr int pack = cuda::kPackSize<T>, at_once = FewRowPlan::kLoads / packs;
  constexpr int64_t step = FewRowPlan::kThreads * pack;
  uint32_t tile;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile);
  const int64_t column = tile * packs * step + int64_t{threadIdx.x} * pack;
  if (column >= shape.columns) return;
  const T* from = a + matrix * shape.a_stride;
  const T* const end = from + shape.rows * shape.columns;
  from += column;
  const auto* with = LoadedPack<T, 1>::source(x + matrix * shape.x_stride);
  const auto has = [&](int64_t row, int i) {
    return row < shape.rows && column + i * step + (shifted ? 0 : pack - 1) < shape.columns;
  };
  C sums[packs][pack] = {};
#pragma unroll 1
  for (int64_t row = 0; row < shape.rows; row += at_once) {
    RowPack<shifted, T> left[at_once][packs];
    LoadedPack<T, 1> factors[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (has(row + u, i)) left[u][i].load(from + u * shape.columns + i * step, end);
      }
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (row + u < shape.rows) factors[u].load(with + u * shape.x_element);
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (!has(row + u, i)) continue;
        const auto elements = left[u][i].get();
#pragma unroll
        for (int j = 0; j < pack; ++j) sums[i][j] += elements[j] * factors[u][0];
      }
    }
    from += at_once * shape.columns;
    with += at_once * shape.x_element;
  }
#pragma unroll
  for (int i = 0; i < packs; ++i) {
    const int64_t first = column + i * step;
    if (!shifted && first + pack > shape.columns && first < shape.columns) {  // the end of a single row
      const C factor = cuda::load_as_compute(x[matrix * shape.x_stride]);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        if (first + j < shape.columns) {
          sums[i][j] = cuda::load_as_compute(a[matrix * shape.a_stride + first + j]) * factor;
        }
      }
    }
    if (first < shape.columns) write_columns(output, matrix, first, shape.columns, sums[i], y);
  }
}

// ---- a warp has a ring of its own for rows that begin anywhere

struct ShiftedRows {
  cuda::FastDivide by_tiles;
  uint32_t items;         // tiles of all matrices
  int32_t rows, at_once;  // of a matrix, and those that are copied together
  int64_t columns, a_stride, x_stride, x_element;
};

/// Of an item, the columns of a warp: units of y, which begin in any place of a row's units.
template <int packs, class T>
struct ShiftedTile {
  static constexpr int64_t kPack = cuda::kPackSize<T>, kColumns = 32 * packs * kPack;

  uintptr_t from;   // its first column's element of the first row
  int64_t column;   // of the matrix
  int64_t whole;    // columns of the matrix that lie in its tiles
  uint32_t matrix;  // of all
  int32_t units;    // of y, that it has
  int32_t front;    // columns in front of the first tile

  /// Of the columns behind the last tile, there are as many as a unit has, at least: what is read behind a
  /// tile lies in the row.
  __device__ __forceinline__ ShiftedTile(const ShiftedRows& shape, const ThinOutput& output, const T* a,
                                         const T* y, uint32_t item) {
    uint32_t tile;
    matrix = shape.by_tiles.divide(item, tile);
    const auto out = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(y + matrix * output.matrix));
    front = output.element == 1 ? static_cast<int32_t>((0U - out) % 16 / sizeof(T)) : 0;
    const int64_t packs_of_row = (shape.columns - front) / kPack - 1;
    whole = max(packs_of_row, int64_t{0}) * kPack;
    column = front + tile * kColumns;
    units = static_cast<int32_t>(min(max(front + whole - column, int64_t{0}), kColumns) / kPack);
    from = reinterpret_cast<uintptr_t>(a + matrix * shape.a_stride + column);
  }
  __device__ __forceinline__ bool is_first() const { return column == front; }
};

/// The columns of a matrix that lie in front of its first tile and behind its last one, a lane each.
template <int packs, class T>
__device__ __forceinline__ void add_edges(const ShiftedRows& shape, const ThinOutput& output,
                                          const ShiftedTile<packs, T>& tile, const T* a, const T* x, T* y) {
  constexpr int kPack = cuda::kPackSize<T>, kAtOnce = 8;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int64_t place = lane < kPack ? lane : tile.front + tile.whole + lane - kPack;
  if (place >= (lane < kPack ? min(int64_t{tile.front}, shape.columns) : shape.columns)) return;
  const T *from = a + tile.matrix * shape.a_stride + place, *with = x + tile.matrix * shape.x_stride;
  compute_type<T> sum = 0;
#pragma unroll 1
  for (int32_t row = 0; row < shape.rows; row += kAtOnce) {
    T elements[kAtOnce], factors[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (row + u < shape.rows) elements[u] = from[(row + u) * shape.columns];
      if (row + u < shape.rows) factors[u] = with[(row + u) * shape.x_element];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (row + u < shape.rows) sum += cuda::load_as_compute(elements[u]) * cuda::load_as_compute(factors[u]);
    }
  }
  y[tile.matrix * output.matrix + place * output.element] =
      cuda::round_to<T>(with_bias<T>(output.bias, sum, place, 0));
}

/// Copies of a warp's next rows, in the order in which it takes its tiles and walks down them.
template <int packs, class T>
struct ShiftedCopies {
  using Plan = ShiftedRowPlan;
  static constexpr int kAtOnce = Plan::at_once(packs), kLine = 16 * Plan::line_units(packs);

  const ShiftedRows& shape;
  uint64_t policy;
  int64_t row_bytes;

  /// Rows `row` and up to at_once - 1 after it of a tile to shared address `to`: with each, a unit more than
  /// the tile has.
  __device__ __forceinline__ void copy(const ShiftedTile<packs, T>& tile, int32_t row, uint32_t to) const {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t count = min(shape.at_once, shape.rows - row);
    if (tile.units == 0) return;
    uintptr_t from = tile.from + static_cast<uintptr_t>(row * row_bytes);
    const uintptr_t more = from + static_cast<uintptr_t>(lane * row_bytes);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u, from += static_cast<uintptr_t>(row_bytes)) {
      if (u >= count) break;
      const uintptr_t units = from / 16 * 16 + static_cast<uintptr_t>(16 * lane);
#pragma unroll
      for (int i = 0; i < packs; ++i) {
        if (lane + 32 * i < tile.units) {
          copy_unit<true>(to + static_cast<uint32_t>(u * kLine + 16 * (lane + 32 * i)), units + 512 * i,
                          policy);
        }
      }
    }
    if (lane < count) {
      const int32_t behind = 16 * tile.units;
      copy_unit<true>(to + static_cast<uint32_t>(lane * kLine + behind),
                      more / 16 * 16 + static_cast<uintptr_t>(behind), policy);
    }
  }
};

/// Blocks of a ShiftedRowPlan: a warp takes every so-manieth tile, its rows at_once together, and copies
/// two steps ahead.
template <int packs, class T>
__global__ void __launch_bounds__(ShiftedRowPlan::kMostThreads, ShiftedRowPlan::kBlocks)
    shifted_rows_kernel(const __grid_constant__ ShiftedRows shape, const __grid_constant__ ThinOutput output,
                        const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y) {
  using C = compute_type<T>;
  using Copies = ShiftedCopies<packs, T>;
  constexpr int kPack = cuda::kPackSize<T>, kAtOnce = Copies::kAtOnce, kStages = ShiftedRowPlan::kStages;
  constexpr uint32_t kStageBytes = ShiftedRowPlan::stage_bytes(packs);
  extern __shared__ __align__(16) char shifted_memory[];
  const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  char* const ring = shifted_memory + warp * kStages * kStageBytes;
  const auto ring_at = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const Copies copies{shape, leaves_first(), shape.columns * static_cast<int64_t>(sizeof(T))};
  const uint32_t step = gridDim.x * warps;
  uint32_t item = blockIdx.x * warps + warp, next_item = item, stage = 0, next_stage = 0;
  int32_t next_row = 0;
  if (item >= shape.items) return;
  ShiftedTile<packs, T> next(shape, output, a, y, item);
  const auto copy_next = [&] {
    if (next_item < shape.items) {
      copies.copy(next, next_row, ring_at + next_stage * kStageBytes);
      next_row += shape.at_once;
      if (next_row >= shape.rows) {
        next_row = 0;
        next_item += step;
        if (next_item < shape.items) next = ShiftedTile<packs, T>(shape, output, a, y, next_item);
      }
    }
    next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    end_copy_group();
  };
#pragma unroll 1
  for (int s = 1; s < kStages; ++s) copy_next();
#pragma unroll 1
  for (; item < shape.items; item += step) {
    const ShiftedTile<packs, T> tile(shape, output, a, y, item);
    const auto* with = LoadedPack<T, 1>::source(x + tile.matrix * shape.x_stride);
    auto shift = static_cast<uint32_t>(tile.from);
    C sums[packs][kPack] = {};
#pragma unroll 1
    for (int32_t row = 0; row < shape.rows; row += shape.at_once) {
      const int32_t count = min(shape.at_once, shape.rows - row);
      LoadedPack<T, 1> factors[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (u < count) factors[u].load(with + u * shape.x_element);
      }
      with += count * shape.x_element;
      copy_next();
      wait_for_copies<kStages - 1>();
      __syncwarp();
      const char* line = ring + stage * kStageBytes + 16 * lane;
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u, line += Copies::kLine) {
        if (u >= count) break;
#pragma unroll
        for (int i = 0; i < packs; ++i) {
          const auto* const units =
              reinterpret_cast<const typename ShiftedPack<T>::Loaded::Word*>(line + 512 * i);
          const auto elements = ShiftedPack<T>{{units[0]}, {units[1]}, shift % 16}.get();
#pragma unroll
          for (int j = 0; j < kPack; ++j) sums[i][j] += elements[j] * factors[u][0];
        }
        shift += static_cast<uint32_t>(copies.row_bytes);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
      __syncwarp();  // all are done with the rows before their place is copied to
    }
    if (tile.is_first()) add_edges(shape, output, tile, a, x, y);
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      const auto unit = static_cast<int32_t>(lane) + 32 * i;
      if (unit < tile.units) {
        write_columns(output, tile.matrix, tile.column + unit * kPack, shape.columns, sums[i], y);
      }
    }
  }
}

// ---- host

template <bool shifted, int packs, class T>
void launch_few(const Stream& stream, const ThinProblem& problem, const FewRowPlan& plan, const T* a,
                const T* x, T* y, const ThinBias& bias) {
  const FewRows shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                      .rows = problem.rows,
                      .columns = problem.columns,
                      .a_stride = problem.a_stride,
                      .x_stride = problem.x_stride,
                      .x_element = problem.x_element};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles)),
                               .block = dim3(FewRowPlan::kThreads)};
  cuda::launch(stream, grid, few_rows_kernel<shifted, packs, T>, shape, ThinOutput(problem, 1, bias), a, x,
               y);
}

template <int packs, class T>
void launch_shifted(const Stream& stream, const ThinProblem& problem, const ShiftedRowPlan& plan, const T* a,
                    const T* x, T* y, const ThinBias& bias) {
  const auto kernel = shifted_rows_kernel<packs, T>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const ShiftedRows shape{.by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
                          .items = static_cast<uint32_t>(problem.batch * plan.tiles),
                          .rows = static_cast<int32_t>(problem.rows),
                          .at_once = plan.rows,
                          .columns = problem.columns,
                          .a_stride = problem.a_stride,
                          .x_stride = problem.x_stride,
                          .x_element = problem.x_element};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(plan.blocks)),
                               .block = dim3(static_cast<unsigned>(32 * plan.warps)),
                               .shared_bytes = static_cast<size_t>(plan.shared_bytes())};
  cuda::launch(stream, grid, kernel, shape, ThinOutput(problem, 1, bias), a, x, y);
}

}  // namespace

template <class T>
void launch_few_rows(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                     const ThinBias& bias) {
  constexpr int pack = cuda::kPackSize<T>;
  const bool is_single = problem.rows == 1 && problem.batch == 1;
  const FewRowPlan walk = plan_few_rows(problem.batch, problem.rows, problem.columns, pack);
  if (is_single ? cuda::is_aligned(a, 16) : pack_of<T>(problem.columns, a) == pack) {
    if (walk.packs == 4) return launch_few<false, 4>(stream, problem, walk, a, x, y, bias);
    if (walk.packs == 2) return launch_few<false, 2>(stream, problem, walk, a, x, y, bias);
    return launch_few<false, 1>(stream, problem, walk, a, x, y, bias);
  }
  const ShiftedRowPlan ring = plan_shifted_rows(problem.batch, problem.rows, problem.columns, pack);
  if (ring.packs == 4) return launch_shifted<4>(stream, problem, ring, a, x, y, bias);
  if constexpr (sizeof(T) == 2) {  // whose packs are shifted in registers while others are loaded: measured
    if (walk.packs == 2) return launch_few<true, 2>(stream, problem, walk, a, x, y, bias);
    if (walk.packs == 1) return launch_few<true, 1>(stream, problem, walk, a, x, y, bias);
  }
  if (ring.packs == 2) return launch_shifted<2>(stream, problem, ring, a, x, y, bias);
  launch_shifted<1>(stream, problem, ring, a, x, y, bias);
}

template void launch_few_rows(const Stream&, const ThinProblem&, const float*, const float*, float*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const double*, const double*, double*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const float16*, const float16*, float16*,
                              const ThinBias&);
template void launch_few_rows(const Stream&, const ThinProblem&, const bfloat16*, const bfloat16*, bfloat16*,
                              const ThinBias&);

}  // namespace sinter::ops
