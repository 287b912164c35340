// Products with few vectors whose sums run along the matrix's columns: y = a^T x.
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/ops/gemv/gemv_kernels_cuda.h>

namespace sinter::ops {
namespace {

/// `rows` and `packs` as the kernel sees them: of folded rows, `fold` of the matrix's, which have `columns`.
struct ColumnSums {
  cuda::FastDivide by_tiles, by_width, by_elements, by_columns;
  uint32_t width, depth, fold, columns;
  uint32_t lanes, elements;  // a block adds so many rows of so many sums, which lie below each other
  int64_t rows, packs, part_rows;
  int64_t a_stride, x_stride, x_vector, x_element;
  int64_t rest_rows;  // of the matrix, that fill no folded row
  int vectors;
  bool whole_rows;  // a block has whole folded rows
};

/// What a thread's pack of a folded row is multiplied with: elements in front of `split` with that of a row
/// of the matrix, the others with that of the next.
template <bool folded, int pack>
struct PackFactors {
  int64_t second = 0;  // from the first factor to the second
  uint32_t split = pack;

  /// Of the pack at `element` of a folded row; moves x to its first factor.
  template <class Source>
  __device__ __forceinline__ PackFactors(const ColumnSums& shape, uint32_t element, const Source*& x) {
    if constexpr (folded) {
      uint32_t place;
      const uint32_t row = shape.by_columns.divide(element, place);
      split = min(shape.columns - place, uint32_t{pack});
      x += row * shape.x_element;
      if (split < pack) second = shape.x_element;
    }
  }
};

/// Blocks of a processor that the kernel's registers allow.
template <class T>
constexpr int column_sum_blocks(int pack, int vectors) {
  if (vectors > 1) return 1;
  return pack == cuda::kPackSize<T> ? 2 : 3;
}

/// The rows of the matrix that fill no folded row, one pack's columns of them.
template <int pack, class T, class C>
__device__ __forceinline__ void add_rest(const ColumnSums& shape, const T* a, const T* x, int64_t column,
                                         C (&sums)[pack]) {
  const int64_t first = shape.rows * shape.packs * pack, count = shape.rest_rows * shape.columns;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const int64_t element = column * pack + j;
    if (element >= count) continue;
    const int64_t row = shape.rows * shape.fold + shape.by_columns.divide(static_cast<uint32_t>(element));
    sums[j] += cuda::load_as_compute(a[first + element]) * cuda::load_as_compute(x[row * shape.x_element]);
  }
}

/// Of a thread, the pack of the next row and its factors, and the way to those of the row after it.
template <int pack, int factors, class T>
struct RowWalk {
  const typename LoadedPack<T, pack>::Source* from;
  const typename LoadedPack<T, 1>::Source* with;
  int64_t from_step, with_step;
  int64_t next_factor;  // from the first of a row's factors to the second, and so on
  int used;             // of the factors; the others repeat the first

  /// Up to kAtOnce rows, all in flight: `whole` says that they are so many, else those below `rows` of r,
  /// r + depth, and so on. Addresses go on from row to row: instructions are scarce.
  template <bool whole, class C>
  __device__ __forceinline__ void add(uint32_t r, uint32_t rows, uint32_t depth, C (&sums)[factors][pack]) {
    constexpr int at_once = ColumnSumPlan::kAtOnce;
    LoadedPack<T, pack> left[at_once];
    LoadedPack<T, 1> right[at_once][factors];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (whole || r + u * depth < rows) left[u].load_once(from);
      from += from_step;
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
#pragma unroll
      for (int v = 0; v < factors; ++v) {
        const int64_t factor = v < used ? v * next_factor : 0;
        if (whole || r + u * depth < rows) right[u][v].load(with + factor);
      }
      with += with_step;
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (!whole && r + u * depth >= rows) break;
#pragma unroll
      for (int v = 0; v < factors; ++v) {
        const C factor = right[u][v][0];
#pragma unroll
        for (int j = 0; j < pack; ++j) sums[v][j] += left[u][j] * factor;
      }
    }
  }

  /// A thread's rows of a part: `below` and every depth-th after it, of `rows`.
  template <class C>
  __device__ __forceinline__ void add_all(uint32_t below, uint32_t rows, uint32_t depth,
                                          C (&sums)[factors][pack]) {
    const uint32_t last = (ColumnSumPlan::kAtOnce - 1) * depth;
    uint32_t r = below;
#pragma unroll 1
    for (; r + last < rows; r += last + depth) add<true>(r, rows, depth, sums);
    if (r < rows) add<false>(r, rows, depth, sums);
  }
};

/// Adds the sums of a block's threads of folded rows, which are in `shared`, and writes them. With stripes,
/// the rows of a folded row are parts of their own, and a thread may have several sums of few rows.
template <class T, class C>
__device__ __forceinline__ void write_folded(const ColumnSums& shape, const GemvOutput& output, C* shared,
                                             uint32_t tile, uint32_t matrix, T* y, C* table) {
  constexpr uint32_t threads = ColumnSumPlan::kThreads;
  if (shape.whole_rows) {
    const C sum = cuda::add_columns<threads>(shared, shape.lanes, shape.elements, shape.by_elements);
    if (threadIdx.x < shape.elements) output.write(matrix, threadIdx.x, 0, 1, sum, y, table);
    return;
  }
  __syncthreads();
  const uint32_t elements = shape.elements, behind = shape.fold * shape.columns;
#pragma unroll 1
  for (uint32_t element = threadIdx.x; element < elements; element += threads) {
    const uint32_t out = tile * elements + element;
    if (out >= behind) return;
    const C sum = cuda::add_strided<8>(shared, element, shape.lanes * elements, elements);
    uint32_t place;
    const uint32_t part = blockIdx.y * shape.fold + shape.by_columns.divide(out, place);
    output.write_part(part, matrix, place, 0, 1, sum, y, table);
  }
}

/// Block (matrix and tile, part) of a ColumnSumPlan. `folded`: one vector, whose rows are folded ones.
template <int pack, int vectors, bool folded, class T>
__global__ void __launch_bounds__(ColumnSumPlan::kThreads, column_sum_blocks<T>(pack, vectors))
    column_sums_kernel(const __grid_constant__ ColumnSums shape, GemvOutput output, const T* __restrict__ a,
                       const T* __restrict__ x, T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  __shared__ C shared[ColumnSumPlan::kThreads * pack];
  cuda::let_next_begin();
  uint32_t tile, across;
  const uint32_t matrix = shape.by_tiles.divide(blockIdx.x, tile),
                 below = shape.by_width.divide(threadIdx.x, across), depth = shape.depth;
  const int64_t column = int64_t{tile} * shape.width + across;
  const int64_t row = blockIdx.y * shape.part_rows;
  const auto rows = static_cast<uint32_t>(min(shape.part_rows, shape.rows - row));
  // A folded pack is multiplied with the factors of both its rows of the matrix: cheaper than to select one
  // for each element of each row. Each element's sum is selected in the end.
  constexpr int factors = folded ? 2 : vectors;
  C sums[factors][pack] = {};
  if (column < shape.packs && below < depth) {
    const auto* from =
        LoadedPack<T, pack>::source(a + matrix * shape.a_stride) + (row + below) * shape.packs + column;
    const int64_t row_factors = folded ? shape.fold * shape.x_element : shape.x_element;
    const auto* with = LoadedPack<T, 1>::source(x + matrix * shape.x_stride) + (row + below) * row_factors;
    const PackFactors<folded, pack> places(shape, static_cast<uint32_t>(column * pack), with);
    RowWalk<pack, factors, T> walk{.from = from,
                                   .with = with,
                                   .from_step = depth * shape.packs,
                                   .with_step = depth * row_factors,
                                   .next_factor = folded ? places.second : shape.x_vector,
                                   .used = folded ? 2 : shape.vectors};
    walk.add_all(below, rows, depth, sums);
    if constexpr (folded) {
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        if (static_cast<uint32_t>(j) >= places.split) sums[0][j] = sums[1][j];
      }
      if (below == 0 && blockIdx.y + 1 == gridDim.y && shape.rest_rows > 0) {
        add_rest(shape, a + matrix * shape.a_stride, x + matrix * shape.x_stride, column, sums[0]);
      }
    }
  }
  const uint32_t block_elements = shape.width * pack;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (below < depth) {
#pragma unroll
      for (int j = 0; j < pack; ++j) shared[below * block_elements + across * pack + j] = sums[v][j];
    }
    if constexpr (folded) {
      write_folded(shape, output, shared, tile, matrix, y, table);
    } else {
      const C sum =
          cuda::add_columns<ColumnSumPlan::kThreads>(shared, shape.lanes, shape.elements, shape.by_elements);
      const int64_t out = int64_t{tile} * shape.elements + threadIdx.x;
      if (threadIdx.x < shape.elements && out < shape.packs * pack && v < shape.vectors) {
        output.write(matrix, out, v, shape.vectors, sum, y, table);
      }
    }
    if (v + 1 < vectors) __syncthreads();
  }
}

// ---- host

template <class T>
struct ColumnSumLaunch {
  const Stream& stream;
  const GemvProblem& problem;
  const T *a, *x;
  T* y;
  compute_type<T>* table;
  GemvBias bias;

  template <int pack, int vectors, bool folded>
  void run() const {
    const int fold = folded ? rows_of_fold(problem) : 1;
    const int64_t rows = problem.rows / fold, columns = problem.columns * fold;
    const ColumnSumPlan plan = folded
                                   ? folded_plan_of(problem)
                                   : plan_column_sums(problem.processors, problem.batch, rows, columns, pack);
    // Of whole folded rows a column is added once.
    const bool whole_rows = folded && adds_whole_rows(problem, plan);
    const auto lanes = static_cast<uint32_t>(plan.depth() * (whole_rows ? fold : 1));
    const auto elements = static_cast<uint32_t>(whole_rows ? problem.columns : plan.width * pack);
    const ColumnSums shape{
        .by_tiles = cuda::FastDivide(static_cast<uint32_t>(plan.tiles)),
        .by_width = cuda::FastDivide(static_cast<uint32_t>(plan.width)),
        .by_elements = cuda::FastDivide(elements),
        .by_columns = cuda::FastDivide(folded ? static_cast<uint32_t>(problem.columns) : 1),
        .width = static_cast<uint32_t>(plan.width),
        .depth = static_cast<uint32_t>(plan.depth()),
        .fold = static_cast<uint32_t>(fold),
        .columns = static_cast<uint32_t>(problem.columns),
        .lanes = lanes,
        .elements = elements,
        .rows = rows,
        .packs = columns / pack,
        .part_rows = plan.part_rows,
        .a_stride = problem.a_stride,
        .x_stride = problem.x_stride,
        .x_vector = problem.x_vector,
        .x_element = problem.x_element,
        .rest_rows = problem.rows % fold,
        .vectors = problem.vectors,
        .whole_rows = whole_rows};
    const GemvOutput output(problem, folded ? folded_parts(problem, plan) : plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(problem.batch * plan.tiles), static_cast<unsigned>(plan.parts)),
        .block = dim3(ColumnSumPlan::kThreads)};
    cuda::launch(stream, grid, column_sums_kernel<pack, vectors, folded, T>, shape, output, a, x, y, table);
    fold_parts<T>(stream, problem, output, table, y);
  }

  template <int pack>
  void run_vectors() const {
    if (problem.vectors == 1) return run<pack, 1, false>();
    if (problem.vectors == 2) return run<pack, 2, false>();
    if constexpr (sizeof(T) == sizeof(float)) {
      if (problem.vectors > 4) return run<pack, 8, false>();
    }
    run<pack, 4, false>();
  }
};

}  // namespace

template <class T>
void launch_column_sums(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                        compute_type<T>* table, const GemvBias& bias) {
  constexpr int widest = cuda::kPackSize<T>;
  const ColumnSumLaunch<T> launch{stream, problem, a, x, y, table, bias};
  const int pack = pack_of<T>(problem.columns, a);
  if (pack == widest) return launch.template run_vectors<widest>();
  if (takes_folded_rows(problem) && cuda::is_aligned(a, 16)) return launch.template run<widest, 1, true>();
  if constexpr (widest > 2) {
    if (pack >= 2 && problem.vectors == 1) return launch.template run<2, 1, false>();
  }
  launch.template run_vectors<1>();
}

template void launch_column_sums(const Stream&, const GemvProblem&, const float*, const float*, float*,
                                 float*, const GemvBias&);
template void launch_column_sums(const Stream&, const GemvProblem&, const double*, const double*, double*,
                                 double*, const GemvBias&);
template void launch_column_sums(const Stream&, const GemvProblem&, const float16*, const float16*, float16*,
                                 float*, const GemvBias&);
template void launch_column_sums(const Stream&, const GemvProblem&, const bfloat16*, const bfloat16*,
                                 bfloat16*, float*, const GemvBias&);

}  // namespace sinter::ops
