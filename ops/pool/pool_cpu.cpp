// Average pooling on the CPU, and the registration of all pooling kernels.
#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

template <class C>
void add(const C* x, int64_t count, C* sums) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sums[i] += x[i];
}

// ---- forward

template <class T, class Counts>
void avg_pool_rows(const PoolGeometry& geometry, Counts divisors, const T* x, T* y,
                   compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t slot_size = PoolRows<C>::scratch(rows, columns) + 2 * columns.out;
  parallel_slots(batch * channels, rows.extent * columns.extent,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   C* sums = scratch + slot * slot_size;
                   C* counts = sums + columns.out;
                   PoolRows<C> image(rows, columns, C{0}, counts + columns.out);
                   for (int64_t ox = 0; ox < columns.out; ++ox)
                     counts[ox] = static_cast<C>(divisors.columns(columns, ox));
                   for (int64_t plane = begin; plane < end; ++plane) {
                     image.restart();
                     for (int64_t oy = 0; oy < rows.out; ++oy) {
                       const auto [first, last] = rows.inside(oy);
                       image.load(x + plane * rows.extent * columns.extent, first, last);
                       std::fill_n(sums, columns.out, C{0});
                       for (int64_t row = first; row < last; ++row) {
                         for (int64_t tap = 0; tap < columns.kernel; ++tap)
                           add(image.tap(row, tap), columns.out, sums);
                       }
                       const C count = static_cast<C>(divisors.rows(rows, oy));
                       T* out = y + (plane * rows.out + oy) * columns.out;
                       for (int64_t ox = 0; ox < columns.out; ++ox)
                         out[ox] = static_cast<T>(sums[ox] / (count * counts[ox]));
                     }
                   }
                 });
}

template <class T, class Counts>
void avg_pool_pixels(const PoolGeometry& geometry, Counts divisors, const T* x, T* y,
                     compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = channels, work = columns.out * inner_kernel(rows) * inner_kernel(columns) * depth;
  parallel_slots(batch * rows.out, work, [&](int64_t slot, int64_t begin, int64_t end) {
    C* sums = scratch + slot * depth;
    for (int64_t line = begin; line < end; ++line) {
      const int64_t image = line / rows.out * rows.extent, oy = line % rows.out;
      const auto [top, bottom] = rows.inside(oy);
      for (int64_t ox = 0; ox < columns.out; ++ox) {
        const auto [left, right] = columns.inside(ox);
        std::fill_n(sums, depth, C{0});
        for (int64_t row = top; row < bottom; ++row) {
          for (int64_t column = left; column < right; ++column) {
            const T* pixel = x + ((image + row) * columns.extent + column) * depth;
#pragma GCC ivdep
            for (int64_t c = 0; c < depth; ++c) sums[c] += static_cast<C>(pixel[c]);
          }
        }
        const C count = static_cast<C>(divisors.rows(rows, oy) * divisors.columns(columns, ox));
        T* out = y + (line * columns.out + ox) * depth;
        for (int64_t c = 0; c < depth; ++c) out[c] = static_cast<T>(sums[c] / count);
      }
    }
  });
}

size_t avg_pool_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolOptions>();
  const PoolGeometry geometry = pool_geometry(query.input(0).shape, options, "avg_pool2d");
  const int64_t slot = works_on_rows(geometry, options.layout)
                           ? PoolRows<float>::scratch(geometry.y, geometry.x) + 2 * geometry.x.out
                           : pixels_of(geometry, options.layout).channels;
  return static_cast<size_t>(num_threads() * slot) * size_of(accumulate_dtype(query.input(0).dtype));
}

void run_avg_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolOptions>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "avg_pool2d");
  dispatch_float(context.input(0).dtype, "avg_pool2d", [&]<class T> {
    const bool rows = works_on_rows(geometry, options.layout);
    with_counts(options, [&]<class Counts>(Counts counts) {
      const auto kernel = rows ? avg_pool_rows<T, Counts> : avg_pool_pixels<T, Counts>;
      kernel(rows ? geometry : pixels_of(geometry, options.layout), counts, context.input(0).as<const T>(),
             context.output(0).as<T>(), context.workspace<compute_type<T>>());
    });
  });
}

// ---- gradient: every pixel gathers from the windows that contain it

/// Columns of a row that holds all windows side by side, and the image with the padding before it.
int64_t padded_width(const PoolAxis& columns) {
  return std::max((columns.out - 1) * columns.stride + columns.kernel, columns.extent + columns.padding);
}

template <class T, class Counts>
void avg_pool_grad_rows(const PoolGeometry& geometry, Counts divisors, const T* dy, T* dx,
                        compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t padded = padded_width(columns), slot_size = padded + 2 * columns.out;
  const auto run = [&](int64_t slot, int64_t begin, int64_t end) {
    C* row = scratch + slot * slot_size;
    C* shares = row + padded;
    C* sums = shares + columns.out;  // of the windows one above the other that contain the row
    for (int64_t ox = 0; ox < columns.out; ++ox) {
      shares[ox] = C{1} / static_cast<C>(divisors.columns(columns, ox));
    }
    for (int64_t line = begin * rows.extent; line < end * rows.extent; ++line) {
      const auto [top, bottom] = rows.windows(line % rows.extent);
      std::fill_n(sums, columns.out, C{0});
      for (int64_t oy = top; oy < bottom; ++oy) {
        const T* slopes = dy + (line / rows.extent * rows.out + oy) * columns.out;
        const C share = C{1} / static_cast<C>(divisors.rows(rows, oy));
#pragma GCC ivdep
        for (int64_t ox = 0; ox < columns.out; ++ox) {
          sums[ox] += static_cast<C>(slopes[ox]) * (share * shares[ox]);
        }
      }
      std::fill_n(row, padded, C{0});
      for (int64_t tap = 0; tap < columns.kernel; ++tap) {
        C* to = row + tap;
#pragma GCC ivdep
        for (int64_t ox = 0; ox < columns.out; ++ox) to[ox * columns.stride] += sums[ox];
      }
      T* out = dx + line * columns.extent;
      for (int64_t ix = 0; ix < columns.extent; ++ix) out[ix] = static_cast<T>(row[ix + columns.padding]);
    }
  };
  parallel_slots(batch * channels, rows.extent * columns.extent, run);
}

template <class T, class Counts>
void avg_pool_grad_pixels(const PoolGeometry& geometry, Counts divisors, const T* dy, T* dx,
                          compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = channels;
  parallel_slots(batch * rows.extent, columns.extent * depth * 4,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   C* sums = scratch + slot * depth;
                   for (int64_t line = begin; line < end; ++line) {
                     const int64_t image = line / rows.extent * rows.out;
                     const auto [top, bottom] = rows.windows(line % rows.extent);
                     for (int64_t ix = 0; ix < columns.extent; ++ix) {
                       const auto [left, right] = columns.windows(ix);
                       std::fill_n(sums, depth, C{0});
                       for (int64_t oy = top; oy < bottom; ++oy) {
                         for (int64_t ox = left; ox < right; ++ox) {
                           const T* slopes = dy + ((image + oy) * columns.out + ox) * depth;
                           const C share =
                               C{1} / static_cast<C>(divisors.rows(rows, oy) * divisors.columns(columns, ox));
#pragma GCC ivdep
                           for (int64_t c = 0; c < depth; ++c) sums[c] += static_cast<C>(slopes[c]) * share;
                         }
                       }
                       T* pixel = dx + (line * columns.extent + ix) * depth;
                       for (int64_t c = 0; c < depth; ++c) pixel[c] = static_cast<T>(sums[c]);
                     }
                   }
                 });
}

size_t avg_pool_grad_workspace(const KernelQuery& query) {
  const PoolOptions& options = query.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(query.output(0).shape, options, "avg_pool2d_grad");
  const int64_t slot = works_on_rows(geometry, options.layout) ? padded_width(geometry.x) + 2 * geometry.x.out
                                                               : pixels_of(geometry, options.layout).channels;
  return static_cast<size_t>(num_threads() * slot) * size_of(accumulate_dtype(query.input(0).dtype));
}

void run_avg_pool_grad(const KernelContext& context) {
  const PoolOptions& options = context.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options, "avg_pool2d_grad");
  dispatch_float(context.input(0).dtype, "avg_pool2d_grad", [&]<class T> {
    const bool rows = works_on_rows(geometry, options.layout);
    with_counts(options, [&]<class Counts>(Counts counts) {
      const auto kernel = rows ? avg_pool_grad_rows<T, Counts> : avg_pool_grad_pixels<T, Counts>;
      kernel(rows ? geometry : pixels_of(geometry, options.layout), counts, context.input(0).as<const T>(),
             context.output(0).as<T>(), context.workspace<compute_type<T>>());
    });
  });
}

// ---- global

/// Elements summed in the compute type before they go to double precision.
constexpr int64_t kGlobalBlock = 8192;

template <class T>
void global_avg_pool_nchw(int64_t planes, int64_t pixels, const T* x, T* y) {
  using C = compute_type<T>;
  parallel_for(planes, kPoolGrain / pixels + 1, [=](int64_t begin, int64_t end) {
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
  parallel_for(batch, kPoolGrain / std::max<int64_t>(pixels * channels, 1) + 1,
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
    parallel_for(context.input(0).numel(), kPoolGrain / pixels + 1, [=](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        std::fill_n(dx + plane * pixels, pixels, static_cast<T>(static_cast<C>(dy[plane]) * share));
      }
    });
    return;
  }
  const int64_t all = context.input(0).shape[0] * pixels;
  parallel_for(all, kPoolGrain / std::max<int64_t>(channels, 1) + 1, [=](int64_t begin, int64_t end) {
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
