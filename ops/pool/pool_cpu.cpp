// Average pooling on the CPU, and the registration of all pooling kernels.
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/common/images/resample_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

// ---- windows

PoolGeometry pooled_geometry(const Shape& image, const PoolAttributes& options, const char* tag) {
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

size_t avg_pool_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolAttributes>();
  const PoolGeometry geometry = pooled_geometry(query.input(0).shape, options, "avg_pool2d");
  return resample_workspace(extents_of(geometry, false), query.input(0).dtype, query.threads());
}

void run_avg_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const TensorView &x = context.input(0), &y = context.output(0);
  const PoolGeometry geometry = pooled_geometry(x.shape, options, "avg_pool2d");
  const ResampleExtents extents = extents_of(geometry, false);
  const PoolCounts counts = counts_of(options);
  dispatch_float(x.dtype, "avg_pool2d", [&]<class T> {
    ResampleTables<compute_type<T>> tables(extents, context.workspace());
    const auto axis_of = [&](const PoolAxis& axis, int64_t inner, auto divisor) {
      return tables.means(
          axis.extent, axis.out, inner, [&axis](int64_t o) { return axis.inside(o); },
          [divisor](int64_t o) { return static_cast<compute_type<T>>(divisor(o)); });
    };
    const auto rows = axis_of(geometry.y, 1, [&](int64_t o) { return counts.rows(geometry.y, o); });
    const auto columns =
        axis_of(geometry.x, geometry.channels, [&](int64_t o) { return counts.columns(geometry.x, o); });
    resample(extents, rows, columns, x.as<const T>(), y.as<T>(), context.workspace(), context.threads());
  });
}

size_t avg_pool_grad_workspace(const KernelQuery& query) {
  const PoolAttributes& options = query.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pooled_geometry(query.output(0).shape, options, "avg_pool2d_grad");
  return resample_workspace(extents_of(geometry, true), query.input(0).dtype, query.threads());
}

void run_avg_pool_grad(const KernelContext& context) {
  const PoolAttributes& options = context.attributes<PoolGradOptions>().pool;
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const PoolGeometry geometry = pooled_geometry(dx.shape, options, "avg_pool2d_grad");
  const ResampleExtents extents = extents_of(geometry, true);
  const PoolCounts counts = counts_of(options);
  dispatch_float(dy.dtype, "avg_pool2d_grad", [&]<class T> {
    using C = compute_type<T>;
    ResampleTables<C> tables(extents, context.workspace());
    const auto axis_of = [&](const PoolAxis& axis, auto divisor) {
      return tables.shares(
          axis.out, axis.extent, [&axis](int64_t i) { return axis.windows(i); },
          [divisor](int64_t o) { return C{1} / static_cast<C>(divisor(o)); });
    };
    const auto rows = axis_of(geometry.y, [&](int64_t o) { return counts.rows(geometry.y, o); });
    const auto columns = axis_of(geometry.x, [&](int64_t o) { return counts.columns(geometry.x, o); });
    resample(extents, rows, columns, dy.as<const T>(), dx.as<T>(), context.workspace(), context.threads());
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

/// Channels lie side by side, and as many pixels of few channels as make a row of some length.
template <class T>
void global_avg_pool_nhwc(int64_t batch, int64_t pixels, int64_t channels, const T* x, T* y) {
  using C = compute_type<T>;
  if (channels == 0) return;
  const int64_t repeats = std::clamp<int64_t>(kBlock / 2 / channels, 1, pixels), width = repeats * channels;
  const int64_t rows = pixels / repeats, size = pixels * channels;
  const int64_t together = std::max<int64_t>(kGlobalBlock / width, 8);
  const auto mean = [=](const T* image, int64_t begin, int64_t count, T* means) {
    BlockBuffer<T> loaded;
    double totals[kBlock] = {};
    const auto add = [&](auto* sums, int64_t row, int64_t elements) {
      const C* values = load_block(image + row * width + begin, elements, loaded.values);
      SINTER_IVDEP
      for (int64_t i = 0; i < elements; ++i) sums[i] += values[i];
    };
    for (int64_t first = 0; first < rows; first += together) {
      C sums[kBlock];
      std::fill_n(sums, count, C{0});
      for (int64_t row = first; row < std::min(first + together, rows); ++row) add(sums, row, count);
      for (int64_t i = 0; i < count; ++i) totals[i] += double{sums[i]};
    }
    // A row that is not whole has no block of channels of its own: they are few.
    if (rows * width < size) add(totals, rows, size - rows * width);
    const int64_t own = std::min(channels, count);
    for (int64_t i = own; i < count; ++i) totals[i % own] += totals[i];
    for (int64_t c = 0; c < own; ++c) means[c] = static_cast<T>(totals[c] / static_cast<double>(pixels));
  };
  parallel_for(batch, kImageGrain / size + 1, [=](int64_t first, int64_t last) {
    for (int64_t image = first; image < last; ++image) {
      for (int64_t begin = 0; begin < width; begin += kBlock) {
        mean(x + image * size, begin, std::min(kBlock, width - begin), y + image * channels + begin);
      }
    }
  });
}

void run_global_avg_pool(const KernelContext& context) {
  const Shape& x = context.input(0).shape;
  dispatch_float(context.input(0).dtype, "global_avg_pool2d", [&]<class T> {
    const T* in = context.input(0).as<const T>();
    T* out = context.output(0).as<T>();
    if (context.attributes<GlobalPoolOptions>().layout == Layout::kNCHW) {
      global_avg_pool_nchw(x[0] * x[1], x[2] * x[3], in, out);
    } else {
      global_avg_pool_nhwc(x[0], x[1] * x[2], x[3], in, out);
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
  if (channels == 0) return;
  const int64_t all = context.input(0).shape[0] * pixels;
  parallel_for(all, kImageGrain / channels + 1, [=](int64_t begin, int64_t end) {
    while (begin < end) {
      const T* slopes = dy + begin / pixels * channels;
      const int64_t last = std::min((begin / pixels + 1) * pixels, end);
      T* to = dx + begin * channels;
      // Few channels, or some beside whole vectors, take longer than copies of pixels that are made.
      const int64_t made = channels % 16 == 0 ? last - begin : 1;
      for (int64_t pixel = 0; pixel < made; ++pixel) {
        SINTER_IVDEP
        for (int64_t c = 0; c < channels; ++c)
          to[pixel * channels + c] = static_cast<T>(static_cast<C>(slopes[c]) * share);
      }
      // Of ever more of them at once while they stay in the first-level cache.
      const int64_t count = (last - begin) * channels;
      for (int64_t done = made * channels, step = done; done < count; done += step) {
        if (done <= kGlobalBlock / 4) step = done;
        std::copy_n(to, std::min(step, count - done), to + done);
      }
      begin = last;
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
  add_kernel("global_avg_pool2d", nullptr, run_global_avg_pool);
  add_kernel("global_avg_pool2d_grad", nullptr, run_global_avg_pool_grad);
}

}  // namespace sinter::ops
