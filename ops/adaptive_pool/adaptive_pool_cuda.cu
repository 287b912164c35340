// A thread per element of the result. The gradient goes in strips of rows (axis_taps_cuda.h), if images are
// not too large for those and have no more windows than pixels.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/adaptive_pool/adaptive_pool_math.h>
#include <sinter/ops/adaptive_pool/adaptive_pool_taps.h>
#include <sinter/ops/common/cuda/axis_taps_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// The mean of window (oy, ox) in channel c of an image; load(i) is its element i as C.
template <class C, class Load>
__device__ C adaptive_mean(const Load& load, const AdaptivePoolProblem& problem, int64_t oy, int64_t ox,
                           int64_t c) {
  const auto rows = problem.rows.pixels_of(oy), columns = problem.columns.pixels_of(ox);
  C sum{0};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      sum += load((row * problem.columns.pixels + column) * problem.depth + c);
    }
  }
  return sum / static_cast<C>(rows.count() * columns.count());
}

/// What pixel (iy, ix) of channel c has of the gradients of its windows; load(i) is element i of an image of
/// dy.
template <class C, class Load>
__device__ C adaptive_mean_gradient(const Load& load, const AdaptivePoolProblem& problem, int64_t iy,
                                    int64_t ix, int64_t c) {
  const auto rows = problem.rows.windows_of(iy), columns = problem.columns.windows_of(ix);
  C sum{0};
  for (int64_t oy = rows.begin; oy < rows.end; ++oy) {
    const int64_t height = problem.rows.pixels_of(oy).count();
    for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
      const int64_t count = height * problem.columns.pixels_of(ox).count();
      sum += load((oy * problem.columns.windows + ox) * problem.depth + c) / static_cast<C>(count);
    }
  }
  return sum;
}

template <class T>
struct Loader {
  __device__ compute_type<T> operator()(int64_t i) const { return cuda::load_as_compute(image[i]); }
  const T* image;
};

/// `count` elements of images of by_rows x by_columns pixels, from images of `source_elements` each.
template <bool gradient, class Index, class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_avg_pool_kernel(Index count, __grid_constant__ const AdaptivePoolProblem problem,
                             IndexDivide<Index> by_depth, IndexDivide<Index> by_columns,
                             IndexDivide<Index> by_rows, int64_t source_elements, const T* source,
                             T* result) {
  using C = compute_type<T>;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    Index channel, column, row;
    const Index pixel = by_depth.divide(i, channel);
    const Index image = by_rows.divide(by_columns.divide(pixel, column), row);
    const Loader<T> load{source + static_cast<int64_t>(image) * source_elements};
    const auto y = static_cast<int64_t>(row), x = static_cast<int64_t>(column),
               c = static_cast<int64_t>(channel);
    if constexpr (gradient) {
      result[i] = cuda::round_to<T>(adaptive_mean_gradient<C>(load, problem, y, x, c));
    } else {
      result[i] = cuda::round_to<T>(adaptive_mean<C>(load, problem, y, x, c));
    }
  }
}

/// The gradient in strips of rows; false if they cannot take the call. The averages themselves are too few
/// threads for that.
bool run_gradient_strips(const KernelContext& context, const AdaptivePoolProblem& problem) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const AdaptiveAxis &rows = problem.rows, &columns = problem.columns;
  if (!AdaptiveTaps::can_describe(rows) || !AdaptiveTaps::can_describe(columns)) return false;
  const TapExtents extents{.outer = problem.images,
                           .inner = problem.depth,
                           .source_rows = rows.windows,
                           .source_columns = columns.windows,
                           .rows = rows.pixels,
                           .columns = columns.pixels};
  bool runs = false;
  dispatch_float(dy.dtype, "adaptive_avg_pool2d_grad", [&]<class T> {
    runs = launch_taps<false>(context.stream(), extents, AdaptiveTaps(rows), AdaptiveTaps(columns),
                              dy.as<const T>(), dx.as<T>());
  });
  return runs;
}

/// `source` to `result`: x to y, or dy to dx.
template <bool gradient>
void run(const KernelContext& context) {
  const TensorView &source = context.input(0), &result = context.output(0);
  if (result.numel() == 0) return;
  const Layout layout = context.attributes<AdaptivePoolAttributes>().layout;
  const AdaptivePoolProblem problem = gradient ? AdaptivePoolProblem(result.shape, source.shape, layout)
                                               : AdaptivePoolProblem(source.shape, result.shape, layout);
  if (gradient && run_gradient_strips(context, problem)) return;
  const int64_t rows = gradient ? problem.rows.pixels : problem.rows.windows;
  const int64_t columns = gradient ? problem.columns.pixels : problem.columns.windows;
  const auto shape = cuda::grid_stride_shape(result.numel(), kThreads, kThreads);
  dispatch_float(source.dtype, gradient ? "adaptive_avg_pool2d_grad" : "adaptive_avg_pool2d", [&]<class T> {
    dispatch_index(result.numel(), [&]<class Index> {
      cuda::launch(context.stream(), shape, adaptive_avg_pool_kernel<gradient, Index, T>,
                   static_cast<Index>(result.numel()), problem, IndexDivide<Index>(problem.depth),
                   IndexDivide<Index>(columns), IndexDivide<Index>(rows), source.numel() / problem.images,
                   source.as<const T>(), result.as<T>());
    });
  });
}

/// The largest elements of windows and their pixels. NaN is larger than all before it.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_max_pool_kernel(Index count, __grid_constant__ const AdaptivePoolProblem problem,
                             IndexDivide<Index> by_depth, IndexDivide<Index> by_columns,
                             IndexDivide<Index> by_rows, int64_t source_elements, const T* x, T* y,
                             int64_t* indices) {
  using C = compute_type<T>;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    Index channel, column, row;
    const Index pixel = by_depth.divide(i, channel);
    const Index image = by_rows.divide(by_columns.divide(pixel, column), row);
    const T* const from = x + static_cast<int64_t>(image) * source_elements + static_cast<int64_t>(channel);
    const auto rows = problem.rows.pixels_of(static_cast<int64_t>(row));
    const auto columns = problem.columns.pixels_of(static_cast<int64_t>(column));
    int64_t best = rows.begin * problem.columns.pixels + columns.begin;
    C largest = cuda::load_as_compute(from[best * problem.depth]);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t c = columns.begin; c < columns.end; ++c) {
        const int64_t at = r * problem.columns.pixels + c;
        const C value = cuda::load_as_compute(from[at * problem.depth]);
        if (value > largest || value != value) {
          largest = value;
          best = at;
        }
      }
    }
    y[i] = from[best * problem.depth];
    indices[i] = best;
  }
}

void run_max(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const int64_t count = y.numel();
  if (count == 0) return;
  const AdaptivePoolProblem problem(x.shape, y.shape, context.attributes<AdaptivePoolAttributes>().layout);
  dispatch_float(x.dtype, "adaptive_max_pool2d", [&]<class T> {
    dispatch_index(count, [&]<class Index> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                   adaptive_max_pool_kernel<Index, T>, static_cast<Index>(count), problem,
                   IndexDivide<Index>(problem.depth), IndexDivide<Index>(problem.columns.windows),
                   IndexDivide<Index>(problem.rows.windows), x.numel() / problem.images, x.as<const T>(),
                   y.as<T>(), context.output(1).as<int64_t>());
    });
  });
}

}  // namespace

void register_adaptive_pool_cuda(OpRegistry& registry);
void register_adaptive_pool_cuda(OpRegistry& registry) {
  registry.add_kernel("adaptive_avg_pool2d", {.device = DeviceType::kCuda, .run = run<false>});
  registry.add_kernel("adaptive_avg_pool2d_grad", {.device = DeviceType::kCuda, .run = run<true>});
  registry.add_kernel("adaptive_max_pool2d", {.device = DeviceType::kCuda, .run = run_max});
}

}  // namespace sinter::ops
