// Strips of rows (axis_taps_cuda.h). Images too large for those: a thread per element of the result, and the
// taps of rows and columns, the same for all images, are worked out by a small kernel before.
#include <algorithm>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/axis_taps_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/upsample/upsample_math.h>
#include <sinter/ops/upsample/upsample_taps.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

__device__ void fill_axis(const UpsampleAxis& axis, int64_t at, UpsampleTap* taps, int64_t* begins) {
  if (at < axis.output) taps[at] = axis.tap(at);
  if (at <= axis.input) begins[at] = axis.begin_of(at);
}

__global__ void tables_kernel(__grid_constant__ const UpsampleProblem problem, void* memory) {
  const UpsampleTables tables(problem, memory);
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  fill_axis(problem.rows, at, tables.row_taps, tables.row_begins);
  fill_axis(problem.columns, at, tables.column_taps, tables.column_begins);
}

/// Finds image, row, column and channel of an element.
template <class Index>
struct Places {
  Places(int64_t rows, int64_t columns, int64_t inner)
      : by_inner(inner), by_columns(columns), by_rows(rows) {}

  IndexDivide<Index> by_inner, by_columns, by_rows;
};

template <class Index>
struct Place {
  __device__ Place(const Places<Index>& places, Index element) {
    Index k_, column_, row_;
    const Index pixel = places.by_inner.divide(element, k_);
    const Index line = places.by_columns.divide(pixel, column_);
    image = static_cast<int64_t>(places.by_rows.divide(line, row_));
    row = static_cast<int64_t>(row_);
    column = static_cast<int64_t>(column_);
    k = static_cast<int64_t>(k_);
  }
  int64_t image, row, column, k;
};

template <class T>
struct Loader {
  __device__ compute_type<T> operator()(int64_t i) const { return cuda::load_as_compute(image[i]); }
  const T* image;
};

template <class Index, class T>
__global__ void upsample_kernel(Index count, __grid_constant__ const UpsampleProblem problem,
                                __grid_constant__ const Places<Index> places, void* memory, const T* x,
                                T* y) {
  const UpsampleTables tables(problem, memory);
  const int64_t image_elements = problem.rows.input * problem.columns.input * problem.inner;
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const Place<Index> place(places, i);
    const Loader<T> load{x + place.image * image_elements};
    y[i] = cuda::round_to<T>(upsample_value<compute_type<T>>(load, problem, tables.row_taps[place.row],
                                                             tables.column_taps[place.column], place.k));
  }
}

template <class Index, class T>
__global__ void upsample_grad_kernel(Index count, __grid_constant__ const UpsampleProblem problem,
                                     __grid_constant__ const Places<Index> places, void* memory, const T* dy,
                                     T* dx) {
  const UpsampleTables tables(problem, memory);
  const int64_t image_elements = problem.rows.output * problem.columns.output * problem.inner;
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const Place<Index> place(places, i);
    const Loader<T> load{dy + place.image * image_elements};
    dx[i] = cuda::round_to<T>(
        upsample_gradient<compute_type<T>>(load, problem, tables, place.row, place.column, place.k));
  }
}

void fill_tables(const KernelContext& context, const UpsampleProblem& problem) {
  const int64_t longest = std::max(
      {problem.rows.output, problem.columns.output, problem.rows.input + 1, problem.columns.input + 1});
  cuda::launch(context.stream(), cuda::grid_stride_shape(longest, kThreads, kThreads), tables_kernel, problem,
               context.workspace());
}

size_t upsample_workspace(const KernelQuery& query) {
  return UpsampleProblem(query.input(0).shape, query.output(0).shape, query.attributes<UpsampleAttributes>())
      .table_bytes();
}
size_t upsample_grad_workspace(const KernelQuery& query) {
  return UpsampleProblem(query.output(0).shape, query.input(0).shape, query.attributes<UpsampleAttributes>())
      .table_bytes();
}

/// In strips of rows; `to_small`: the gradient. False if the images are too large for that.
template <bool to_small>
bool run_strips(const KernelContext& context, const UpsampleProblem& problem) {
  const TensorView &source = context.input(0), &result = context.output(0);
  const UpsampleAxis &rows = problem.rows, &columns = problem.columns;
  if (std::max({rows.input, rows.output, columns.input, columns.output}) > kLongestTapSide) return false;
  TapExtents extents{.outer = problem.outer,
                     .inner = problem.inner,
                     .source_rows = rows.input,
                     .source_columns = columns.input,
                     .rows = rows.output,
                     .columns = columns.output};
  if (to_small) {
    std::swap(extents.source_rows, extents.rows);
    std::swap(extents.source_columns, extents.columns);
  }
  bool runs = false;
  dispatch_float(source.dtype, "upsample", [&]<class T> {
    const auto launch = [&]<bool nearest>() {
      runs = launch_taps<to_small>(context.stream(), extents, UpsampleTaps<nearest>(rows),
                                   UpsampleTaps<nearest>(columns), source.as<const T>(), result.as<T>());
    };
    if (rows.mode == UpsampleMode::kNearest) {
      launch.template operator()<true>();
    } else {
      launch.template operator()<false>();
    }
  });
  return runs;
}

void run_upsample(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  if (y.numel() == 0) return;
  const UpsampleProblem problem(x.shape, y.shape, context.attributes<UpsampleAttributes>());
  if (run_strips<false>(context, problem)) return;
  fill_tables(context, problem);
  const auto shape = cuda::grid_stride_shape(y.numel(), kThreads, kThreads);
  dispatch_float(x.dtype, "upsample", [&]<class T> {
    dispatch_index(y.numel(), [&]<class Index> {
      const Places<Index> places(problem.rows.output, problem.columns.output, problem.inner);
      cuda::launch(context.stream(), shape, upsample_kernel<Index, T>, static_cast<Index>(y.numel()), problem,
                   places, context.workspace(), x.as<const T>(), y.as<T>());
    });
  });
}

void run_upsample_grad(const KernelContext& context) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  if (dx.numel() == 0) return;
  const UpsampleProblem problem(dx.shape, dy.shape, context.attributes<UpsampleAttributes>());
  if (run_strips<true>(context, problem)) return;
  fill_tables(context, problem);
  const auto shape = cuda::grid_stride_shape(dx.numel(), kThreads, kThreads);
  dispatch_float(dy.dtype, "upsample_grad", [&]<class T> {
    dispatch_index(dx.numel(), [&]<class Index> {
      const Places<Index> places(problem.rows.input, problem.columns.input, problem.inner);
      cuda::launch(context.stream(), shape, upsample_grad_kernel<Index, T>, static_cast<Index>(dx.numel()),
                   problem, places, context.workspace(), dy.as<const T>(), dx.as<T>());
    });
  });
}

}  // namespace

void register_upsample_cuda(OpRegistry& registry);
void register_upsample_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "upsample", {.device = DeviceType::kCuda, .workspace_bytes = upsample_workspace, .run = run_upsample});
  registry.add_kernel(
      "upsample_grad",
      {.device = DeviceType::kCuda, .workspace_bytes = upsample_grad_workspace, .run = run_upsample_grad});
}

}  // namespace sinter::ops
