#include <cmath>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/adaptive_pool/adaptive_pool_math.h>
#include <sinter/ops/common/images/resample_cpu.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

ResampleExtents extents_of(const AdaptivePoolProblem& problem, bool gradient) {
  const AdaptiveAxis &rows = problem.rows, &columns = problem.columns;
  return {.images = problem.images,
          .inner = problem.depth,
          .source_rows = gradient ? rows.windows : rows.pixels,
          .source_columns = gradient ? columns.windows : columns.pixels,
          .rows = gradient ? rows.pixels : rows.windows,
          .columns = gradient ? columns.pixels : columns.windows,
          .most_source_rows = 2};
}

template <class C>
ResampleAxis<C> windows_of(const AdaptiveAxis& axis, int64_t inner, ResampleTables<C>& tables) {
  return tables.means(
      axis.pixels, axis.windows, inner, [&](int64_t o) { return axis.pixels_of(o); },
      [&](int64_t o) { return static_cast<C>(axis.pixels_of(o).count()); });
}

template <class C>
ResampleAxis<C> holders_of(const AdaptiveAxis& axis, ResampleTables<C>& tables) {
  return tables.shares(
      axis.windows, axis.pixels, [&](int64_t i) { return axis.windows_of(i); },
      [&](int64_t o) { return C{1} / static_cast<C>(axis.pixels_of(o).count()); });
}

size_t pool_workspace(const KernelQuery& query) {
  const Layout layout = query.attributes<AdaptivePoolAttributes>().layout;
  const AdaptivePoolProblem problem(query.input(0).shape, query.output(0).shape, layout);
  return resample_workspace(extents_of(problem, false), query.input(0).dtype, query.threads());
}

size_t grad_workspace(const KernelQuery& query) {
  const Layout layout = query.attributes<AdaptivePoolAttributes>().layout;
  const AdaptivePoolProblem problem(query.output(0).shape, query.input(0).shape, layout);
  return resample_workspace(extents_of(problem, true), query.input(0).dtype, query.threads());
}

void run_pool(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const AdaptivePoolProblem problem(x.shape, y.shape, context.attributes<AdaptivePoolAttributes>().layout);
  const ResampleExtents extents = extents_of(problem, false);
  dispatch_float(x.dtype, "adaptive_avg_pool2d", [&]<class T> {
    ResampleTables<compute_type<T>> tables(extents, context.workspace());
    const auto rows = windows_of(problem.rows, 1, tables);
    const auto columns = windows_of(problem.columns, problem.depth, tables);
    resample(extents, rows, columns, x.as<const T>(), y.as<T>(), context.workspace(), context.threads());
  });
}

void run_grad(const KernelContext& context) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const AdaptivePoolProblem problem(dx.shape, dy.shape, context.attributes<AdaptivePoolAttributes>().layout);
  const ResampleExtents extents = extents_of(problem, true);
  dispatch_float(dy.dtype, "adaptive_avg_pool2d_grad", [&]<class T> {
    ResampleTables<compute_type<T>> tables(extents, context.workspace());
    const auto rows = holders_of(problem.rows, tables);
    const auto columns = holders_of(problem.columns, tables);
    resample(extents, rows, columns, dy.as<const T>(), dx.as<T>(), context.workspace(), context.threads());
  });
}

/// The largest elements of window (oy, ox) of an image in all of its channels, and their pixels.
template <class T>
void max_of_window(const T* image, const AdaptivePoolProblem& problem, int64_t oy, int64_t ox, T* y,
                   int64_t* indices) {
  const auto rows = problem.rows.pixels_of(oy), columns = problem.columns.pixels_of(ox);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      const int64_t pixel = row * problem.columns.pixels + column;
      const bool is_first = row == rows.begin && column == columns.begin;
      for (int64_t c = 0; c < problem.depth; ++c) {
        const auto value = static_cast<compute_type<T>>(image[pixel * problem.depth + c]);
        const bool is_larger = value > static_cast<compute_type<T>>(y[c]) || std::isnan(value);
        if (!is_first && !is_larger) continue;
        y[c] = image[pixel * problem.depth + c];
        indices[c] = pixel;
      }
    }
  }
}

void run_max_pool(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  if (y.numel() == 0) return;
  const AdaptivePoolProblem problem(x.shape, y.shape, context.attributes<AdaptivePoolAttributes>().layout);
  const int64_t image = problem.rows.pixels * problem.columns.pixels * problem.depth;
  const int64_t windows = problem.rows.windows * problem.columns.windows;
  dispatch_float(x.dtype, "adaptive_max_pool2d", [&]<class T> {
    parallel_for(
        problem.images, std::max<int64_t>(1, kGrainElements / image), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin * windows; i < end * windows; ++i) {
            const int64_t window = i % windows, columns = problem.columns.windows;
            max_of_window(x.as<const T>() + i / windows * image, problem, window / columns, window % columns,
                          y.as<T>() + i * problem.depth, context.output(1).as<int64_t>() + i * problem.depth);
          }
        });
  });
}

}  // namespace

void register_adaptive_pool_cpu(OpRegistry& registry);
void register_adaptive_pool_cpu(OpRegistry& registry) {
  registry.add_kernel("adaptive_avg_pool2d",
                      {.device = DeviceType::kCpu, .workspace_bytes = pool_workspace, .run = run_pool});
  registry.add_kernel("adaptive_avg_pool2d_grad",
                      {.device = DeviceType::kCpu, .workspace_bytes = grad_workspace, .run = run_grad});
  registry.add_kernel("adaptive_max_pool2d", {.device = DeviceType::kCpu, .run = run_max_pool});
}

}  // namespace sinter::ops
