#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/adaptive_pool/adaptive_pool_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrain = 16384;  // terms below which a second thread costs more than it saves
constexpr int64_t kChannels = 64;  // that are summed side by side

/// A pixel of the result: the weighted sum of source pixels, divided by `divisor`. `weight(row, column)` is
/// that of a source pixel.
template <class T, class Weight>
void gather_pixel(const T* image, int64_t source_columns, int64_t depth, AdaptiveAxis::Range rows,
                  AdaptiveAxis::Range columns, Weight weight, compute_type<T> divisor, T* out) {
  using C = compute_type<T>;
  for (int64_t first = 0; first < depth; first += kChannels) {
    const int64_t count = std::min(kChannels, depth - first);
    C sums[kChannels] = {};
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const T* pixel = image + (row * source_columns + column) * depth + first;
        const C factor = weight(row, column);
#pragma GCC ivdep
        for (int64_t c = 0; c < count; ++c) sums[c] += static_cast<C>(pixel[c]) * factor;
      }
    }
    for (int64_t c = 0; c < count; ++c) out[first + c] = static_cast<T>(sums[c] / divisor);
  }
}

/// Calls body(image, row, column) for every pixel of `images` images of `rows` x `columns`, in parallel;
/// `terms`: elements that one row of them reads.
template <class Body>
void for_each_pixel(int64_t images, int64_t rows, int64_t columns, int64_t terms, Body body) {
  parallel_for(images * rows, kGrain / std::max<int64_t>(terms, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t column = 0; column < columns; ++column) body(line / rows, line % rows, column);
    }
  });
}

template <class T>
void mean_windows(const AdaptivePoolProblem& problem, const T* x, T* y) {
  using C = compute_type<T>;
  const AdaptiveAxis &rows = problem.rows, &columns = problem.columns;
  const int64_t depth = problem.depth, terms = (rows.pixels / rows.windows + 1) * columns.pixels * depth;
  for_each_pixel(problem.images, rows.windows, columns.windows, terms,
                 [&](int64_t image, int64_t oy, int64_t ox) {
                   const auto down = rows.pixels_of(oy), across = columns.pixels_of(ox);
                   gather_pixel(
                       x + image * rows.pixels * columns.pixels * depth, columns.pixels, depth, down, across,
                       [](int64_t, int64_t) { return C{1}; }, static_cast<C>(down.count() * across.count()),
                       y + ((image * rows.windows + oy) * columns.windows + ox) * depth);
                 });
}

template <class T>
void spread_windows(const AdaptivePoolProblem& problem, const T* dy, T* dx) {
  using C = compute_type<T>;
  const AdaptiveAxis &rows = problem.rows, &columns = problem.columns;
  const int64_t depth = problem.depth, terms = (rows.windows / rows.pixels + 2) * columns.pixels * depth;
  const auto share = [&](int64_t oy, int64_t ox) {
    return C{1} / static_cast<C>(rows.pixels_of(oy).count() * columns.pixels_of(ox).count());
  };
  for_each_pixel(problem.images, rows.pixels, columns.pixels, terms,
                 [&](int64_t image, int64_t iy, int64_t ix) {
                   gather_pixel(dy + image * rows.windows * columns.windows * depth, columns.windows, depth,
                                rows.windows_of(iy), columns.windows_of(ix), share, C{1},
                                dx + ((image * rows.pixels + iy) * columns.pixels + ix) * depth);
                 });
}

void run_adaptive_avg_pool(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const AdaptivePoolProblem problem(x.shape, y.shape, context.attributes<AdaptivePoolAttributes>().layout);
  dispatch_float(x.dtype, "adaptive_avg_pool2d",
                 [&]<class T> { mean_windows(problem, x.as<const T>(), y.as<T>()); });
}

void run_adaptive_avg_pool_grad(const KernelContext& context) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const AdaptivePoolProblem problem(dx.shape, dy.shape, context.attributes<AdaptivePoolAttributes>().layout);
  dispatch_float(dy.dtype, "adaptive_avg_pool2d_grad",
                 [&]<class T> { spread_windows(problem, dy.as<const T>(), dx.as<T>()); });
}

}  // namespace

void register_adaptive_pool_cpu(OpRegistry& registry);
void register_adaptive_pool_cpu(OpRegistry& registry) {
  registry.add_kernel("adaptive_avg_pool2d", {.device = DeviceType::kCpu, .run = run_adaptive_avg_pool});
  registry.add_kernel("adaptive_avg_pool2d_grad",
                      {.device = DeviceType::kCpu, .run = run_adaptive_avg_pool_grad});
}

}  // namespace sinter::ops
