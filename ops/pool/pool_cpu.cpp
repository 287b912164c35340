// Average pooling on the CPU, and the registration of all pooling kernels.
#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/common/images/resample_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

// ---- windows

PoolGeometry pooled_geometry(const Shape& image, const PoolOptions& options, const char* tag) {
  return pixels_of(pool_geometry(image, options, tag), options.layout);
}

ResampleExtents extents_of(const PoolGeometry& geometry, bool gradient) {
  const PoolAxis &y = geometry.y, &x = geometry.x;
  return {.images = geometry.batch,
          .inner = geometry.channels,
          .source_rows = gradient ? y.out : y.extent,
          .source_columns = gradient ? x.out : x.extent,
          .rows = gradient ? y.extent : y.out,
          .columns = gradient ? x.extent : x.out,
          .most_source_rows = gradient ? std::min((y.kernel - 1) / y.stride + 1, y.out) : inner_kernel(y)};
}

/// Calls function(rows divisor, columns divisor): what the windows of an axis are divided by.
template <class F>
void with_divisors(const PoolGeometry& geometry, const PoolOptions& options, F function) {
  with_counts(options, [&](auto counts) {
    function([&geometry, counts](int64_t o) { return counts.rows(geometry.y, o); },
             [&geometry, counts](int64_t o) { return counts.columns(geometry.x, o); });
  });
}

size_t avg_pool_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolOptions>();
  const PoolGeometry geometry = pooled_geometry(query.input(0).shape, options, "avg_pool2d");
  return resample_workspace(extents_of(geometry, false), query.input(0).dtype);
}

void run_avg_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolOptions>();
  const TensorView &x = context.input(0), &y = context.output(0);
  const PoolGeometry geometry = pooled_geometry(x.shape, options, "avg_pool2d");
  const ResampleExtents extents = extents_of(geometry, false);
  dispatch_float(x.dtype, "avg_pool2d", [&]<class T> {
    ResampleTables<compute_type<T>> tables(extents, context.workspace());
    const auto axis_of = [&](const PoolAxis& axis, int64_t inner, auto divisor) {
      return tables.means(
          axis.extent, axis.out, inner, [&axis](int64_t o) { return axis.inside(o); },
          [divisor](int64_t o) { return static_cast<compute_type<T>>(divisor(o)); });
    };
    with_divisors(geometry, options, [&](auto of_rows, auto of_columns) {
      const auto rows = axis_of(geometry.y, 1, of_rows);
      const auto columns = axis_of(geometry.x, geometry.channels, of_columns);
      resample(extents, rows, columns, x.as<const T>(), y.as<T>(), context.workspace());
    });
  });
}

size_t avg_pool_grad_workspace(const KernelQuery& query) {
  const PoolOptions& options = query.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pooled_geometry(query.output(0).shape, options, "avg_pool2d_grad");
  return resample_workspace(extents_of(geometry, true), query.input(0).dtype);
}

void run_avg_pool_grad(const KernelContext& context) {
  const PoolOptions& options = context.attributes<PoolGradOptions>().pool;
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const PoolGeometry geometry = pooled_geometry(dx.shape, options, "avg_pool2d_grad");
  const ResampleExtents extents = extents_of(geometry, true);
  dispatch_float(dy.dtype, "avg_pool2d_grad", [&]<class T> {
    using C = compute_type<T>;
    ResampleTables<C> tables(extents, context.workspace());
    const auto axis_of = [&](const PoolAxis& axis, auto divisor) {
      return tables.shares(
          axis.out, axis.extent, [&axis](int64_t i) { return axis.windows(i); },
          [divisor](int64_t o) { return C{1} / static_cast<C>(divisor(o)); });
    };
    with_divisors(geometry, options, [&](auto of_rows, auto of_columns) {
      const auto rows = axis_of(geometry.y, of_rows);
      const auto columns = axis_of(geometry.x, of_columns);
      resample(extents, rows, columns, dy.as<const T>(), dx.as<T>(), context.workspace());
    });
  });
}

// ---- global

/// Elements summed in the compute type before they go to double precision.
constexpr int64_t kGlobalBlock = 8192;

template <class T>
void global_avg_pool_nchw(int64_t planes, int64_t pixels, const T* x, T* y) {
  using C = compute_type<T>;
  parallel_for(planes, kImageGrain / pixels + 1, [=](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      double total = 0.0;
      for (int64_t first = plane * pixels; first < (plane + 1) * pixels; first += kGlobalBlock) {
        LaneSums<C, 1> sums;
        sums.add(first, std::min(first + kGlobalBlock, (plane + 1) * pixels),
                 [x](int64_t i) { return std::array<C, 1>{static_cast<C>(x[i])}; });
        total += sums.total(0);
      }
      y[plane] = static_cast<T>(total / static_cast<double>(pixels));
    }
  });
}

template <class T>
void global_avg_pool_nhwc(int64_t batch, int64_t pixels, int64_t channels, const T* x, T* y,
                          double* scratch) {
  using C = compute_type<T>;
  parallel_for(batch, kImageGrain / std::max<int64_t>(pixels * channels, 1) + 1,
               [=](int64_t begin, int64_t end) {
                 for (int64_t image = begin; image < end; ++image) {
                   double* totals = scratch + image * 2 * channels;
                   C* sums = reinterpret_cast<C*>(totals + channels);
                   std::fill_n(totals, channels, 0.0);
                   const int64_t block = std::max<int64_t>(kGlobalBlock / std::max<int64_t>(channels, 1), 8);
                   for (int64_t first = 0; first < pixels; first += block) {
                     std::fill_n(sums, channels, C{0});
                     for (int64_t pixel = first; pixel < std::min(first + block, pixels); ++pixel) {
                       const T* values = x + (image * pixels + pixel) * channels;
#pragma GCC ivdep
                       for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<C>(values[c]);
                     }
#pragma GCC ivdep
                     for (int64_t c = 0; c < channels; ++c) totals[c] += double{sums[c]};
                   }
                   for (int64_t c = 0; c < channels; ++c) {
                     y[image * channels + c] = static_cast<T>(totals[c] / static_cast<double>(pixels));
                   }
                 }
               });
}

size_t global_avg_pool_workspace(const KernelQuery& query) {
  if (query.attributes<GlobalPoolOptions>().layout == Layout::kNCHW) return 0;
  return static_cast<size_t>(query.output(0).shape.numel()) * 2 * sizeof(double);
}

void run_global_avg_pool(const KernelContext& context) {
  const Shape& x = context.input(0).shape;
  dispatch_float(context.input(0).dtype, "global_avg_pool2d", [&]<class T> {
    const T* in = context.input(0).as<const T>();
    T* out = context.output(0).as<T>();
    if (context.attributes<GlobalPoolOptions>().layout == Layout::kNCHW) {
      global_avg_pool_nchw(x[0] * x[1], x[2] * x[3], in, out);
    } else {
      global_avg_pool_nhwc(x[0], x[1] * x[2], x[3], in, out, context.workspace<double>());
    }
  });
}

template <class T>
void global_avg_pool_grad(const KernelContext& context) {
  using C = compute_type<T>;
  const auto& [layout, height, width] = context.attributes<GlobalPoolOptions>();
  const T* dy = context.input(0).as<const T>();
  T* dx = context.output(0).as<T>();
  const int64_t pixels = height * width, channels = context.input(0).shape[1];
  const C share = C{1} / static_cast<C>(pixels);
  if (layout == Layout::kNCHW) {
    parallel_for(context.input(0).numel(), kImageGrain / pixels + 1, [=](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        std::fill_n(dx + plane * pixels, pixels, static_cast<T>(static_cast<C>(dy[plane]) * share));
      }
    });
    return;
  }
  const int64_t all = context.input(0).shape[0] * pixels;
  parallel_for(all, kImageGrain / std::max<int64_t>(channels, 1) + 1, [=](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const T* slopes = dy + pixel / pixels * channels;
      T* to = dx + pixel * channels;
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) to[c] = static_cast<T>(static_cast<C>(slopes[c]) * share);
    }
  });
}

void run_global_avg_pool_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "global_avg_pool2d_grad",
                 [&]<class T> { global_avg_pool_grad<T>(context); });
}

}  // namespace

void register_pool_cpu(OpRegistry& registry);
void register_pool_cpu(OpRegistry& registry) {
  const auto add_kernel = [&registry](const char* op, auto workspace, auto run) {
    registry.add_kernel(op, {.device = DeviceType::kCpu, .workspace_bytes = workspace, .run = run});
  };
  add_kernel("max_pool2d", max_pool_workspace, run_max_pool);
  add_kernel("max_pool2d_grad", max_pool_grad_workspace, run_max_pool_grad);
  add_kernel("avg_pool2d", avg_pool_workspace, run_avg_pool);
  add_kernel("avg_pool2d_grad", avg_pool_grad_workspace, run_avg_pool_grad);
  add_kernel("global_avg_pool2d", global_avg_pool_workspace, run_global_avg_pool);
  add_kernel("global_avg_pool2d_grad", nullptr, run_global_avg_pool_grad);
}

}  // namespace sinter::ops
