#include <limits>
#include <type_traits>

#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

template <class T, class Index, class C>
void store(PoolBest<C> best, int64_t count, T* y, Index* indices) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(best.values[i]);
  for (int64_t i = 0; i < count; ++i) indices[i] = static_cast<Index>(best.places[i]);
}

// float and int32 count alike; for double the places waste half of their room.
int64_t slot_of_rows(const PoolGeometry& geometry) {
  return PoolRows<float>::scratch(geometry.y, geometry.x) + 2 * geometry.x.out;
}
int64_t slot_of_pixels(const PoolGeometry& geometry) {
  return 3 * geometry.channels;
}

template <class T, class Index>
void max_pool_rows(const PoolGeometry& geometry, const T* x, T* y, Index* indices, compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t slot_size = slot_of_rows(geometry);
  parallel_slots(
      batch * channels, rows.extent * columns.extent, [&](int64_t slot, int64_t begin, int64_t end) {
        C* values = scratch + slot * slot_size;
        const PoolBest<C> best{values, reinterpret_cast<int32_t*>(values + columns.out)};
        constexpr C kLowest = -std::numeric_limits<C>::infinity();
        PoolRows<C> image(rows, columns, kLowest, values + 2 * columns.out);
        for (int64_t plane = begin; plane < end; ++plane) {
          image.restart();
          for (int64_t oy = 0; oy < rows.out; ++oy) {
            const auto [first, last] = rows.inside(oy);
            image.load(x + plane * rows.extent * columns.extent, first, last);
            const int64_t top = (first - rows.start(oy)) * columns.kernel;
            for (int64_t ox = 0; ox < columns.out;
                 ++ox) {  // should all be -infinity: the first place inside the image
              best.values[ox] = kLowest;
              best.places[ox] = static_cast<int32_t>(top + std::max<int64_t>(-columns.start(ox), 0));
            }
            for (int64_t row = first; row < last; ++row) {
              const int64_t place = (row - rows.start(oy)) * columns.kernel;
              for (int64_t tap = 0; tap < columns.kernel; ++tap) {
                best.take(image.tap(row, tap), static_cast<int32_t>(place + tap), columns.out);
              }
            }
            const int64_t out = (plane * rows.out + oy) * columns.out;
            store(best, columns.out, y + out, indices + out);
          }
        }
      });
}

template <class T, class Index>
void max_pool_pixels(const PoolGeometry& geometry, const T* x, T* y, Index* indices,
                     compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t slot_size = slot_of_pixels(geometry), depth = channels;
  parallel_slots(batch * rows.out, columns.out * inner_kernel(rows) * inner_kernel(columns) * depth,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   C* values = scratch + slot * slot_size;
                   const PoolBest<C> best{values, reinterpret_cast<int32_t*>(values + depth)};
                   C* loaded = values + 2 * depth;
                   for (int64_t line = begin; line < end; ++line) {
                     const int64_t image = line / rows.out * rows.extent, oy = line % rows.out;
                     const auto [top, bottom] = rows.taps(oy);
                     for (int64_t ox = 0; ox < columns.out; ++ox) {
                       const auto [left, right] = columns.taps(ox);
                       std::fill_n(best.values, depth, -std::numeric_limits<C>::infinity());
                       std::fill_n(best.places, depth, static_cast<int32_t>(top * columns.kernel + left));
                       for (int64_t down = top; down < bottom; ++down) {
                         const int64_t row = rows.start(oy) + down * rows.dilation;
                         for (int64_t across = left; across < right; ++across) {
                           const int64_t column = columns.start(ox) + across * columns.dilation;
                           const T* pixel = x + ((image + row) * columns.extent + column) * depth;
                           const auto place = static_cast<int32_t>(down * columns.kernel + across);
                           if constexpr (std::is_same_v<T, C>) {
                             best.take(pixel, place, depth);
                           } else {
                             for (int64_t c = 0; c < depth; ++c) loaded[c] = static_cast<C>(pixel[c]);
                             best.take(loaded, place, depth);
                           }
                         }
                       }
                       const int64_t out = (line * columns.out + ox) * depth;
                       store(best, depth, y + out, indices + out);
                     }
                   }
                 });
}

/// Adds up in `sums`, which is dx itself unless To has 16 bits.
template <class T, class Index, class To>
void max_pool_grad_nchw(const PoolGeometry& geometry, const T* dy, const Index* indices, To* dx,
                        compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t image = rows.extent * columns.extent;
  parallel_slots(batch * channels, image, [&](int64_t slot, int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      C* sums = nullptr;
      if constexpr (std::is_same_v<To, C>) {
        sums = dx + plane * image;
      } else {
        sums = scratch + slot * image;
      }
      std::fill_n(sums, image, C{0});
      for (int64_t oy = 0; oy < rows.out; ++oy) {
        const int64_t out = (plane * rows.out + oy) * columns.out;
        for (int64_t ox = 0; ox < columns.out; ++ox) {
          const auto place = static_cast<uint32_t>(indices[out + ox]);
          const auto width = static_cast<uint32_t>(columns.kernel);
          const int64_t down = place / width, across = place % width;
          const int64_t row = rows.start(oy) + down * rows.dilation,
                        column = columns.start(ox) + across * columns.dilation;
          // An index that names no pixel of its window, which max_pool2d never gives, moves nothing.
          if (down >= rows.kernel || row < 0 || row >= rows.extent || column < 0 ||
              column >= columns.extent) {
            continue;
          }
          sums[row * columns.extent + column] += static_cast<C>(dy[out + ox]);
        }
      }
      if constexpr (!std::is_same_v<To, C>) {
        for (int64_t i = 0; i < image; ++i) dx[plane * image + i] = static_cast<To>(sums[i]);
      }
    }
  });
}

/// Each pixel gathers from the windows that contain it: channels side by side, and no two threads write to
/// one place. Adds up as above.
template <class T, class Index, class To>
void max_pool_grad_nhwc(const PoolGeometry& geometry, const T* dy, const Index* indices, To* dx,
                        compute_type<T>* scratch) {
  using C = compute_type<T>;
  const int64_t batch = geometry.batch, channels = geometry.channels;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = channels;
  parallel_slots(batch * rows.extent, columns.extent * depth * 4,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   C* sums = nullptr;
                   if constexpr (!std::is_same_v<To, C>) sums = scratch + slot * depth;
                   for (int64_t line = begin; line < end; ++line) {
                     const int64_t image = line / rows.extent * rows.out, iy = line % rows.extent;
                     const auto [top, bottom] = rows.windows(iy);
                     for (int64_t ix = 0; ix < columns.extent; ++ix) {
                       const auto [left, right] = columns.windows(ix);
                       To* pixel = dx + (line * columns.extent + ix) * depth;
                       if constexpr (std::is_same_v<To, C>) sums = pixel;
                       std::fill_n(sums, depth, C{0});
                       for (int64_t oy = top; oy < bottom; ++oy) {
                         const int64_t down = rows.tap_at(oy, iy);
                         if (down < 0) continue;
                         for (int64_t ox = left; ox < right; ++ox) {
                           const int64_t across = columns.tap_at(ox, ix);
                           if (across < 0) continue;
                           const int64_t out = ((image + oy) * columns.out + ox) * depth;
                           const auto place = static_cast<Index>(down * columns.kernel + across);
#pragma GCC ivdep
                           for (int64_t c = 0; c < depth; ++c) {
                             const C slope = static_cast<C>(dy[out + c]);
                             sums[c] += indices[out + c] == place ? slope : C{0};
                           }
                         }
                       }
                       if constexpr (!std::is_same_v<To, C>) {
                         for (int64_t c = 0; c < depth; ++c) pixel[c] = static_cast<To>(sums[c]);
                       }
                     }
                   }
                 });
}

/// Calls function.operator()<T, Index>().
template <class F>
void dispatch_pool(DType dtype, DType index, const char* tag, F function) {
  dispatch_float(dtype, tag, [&]<class T> {
    if (index == DType::kUInt8) {
      function.template operator()<T, uint8_t>();
    } else {
      function.template operator()<T, int32_t>();
    }
  });
}

}  // namespace

template <class T>
void max_pool_slopes(const PoolGeometry& geometry, Layout layout, const T* dy, const uint8_t* indices,
                     compute_type<T>* dx) {
  using C = compute_type<T>;
  const auto kernel =
      layout == Layout::kNCHW ? max_pool_grad_nchw<T, uint8_t, C> : max_pool_grad_nhwc<T, uint8_t, C>;
  kernel(geometry, dy, indices, dx, nullptr);
}

template void max_pool_slopes<float>(const PoolGeometry&, Layout, const float*, const uint8_t*, float*);
template void max_pool_slopes<double>(const PoolGeometry&, Layout, const double*, const uint8_t*, double*);
template void max_pool_slopes<float16>(const PoolGeometry&, Layout, const float16*, const uint8_t*, float*);
template void max_pool_slopes<bfloat16>(const PoolGeometry&, Layout, const bfloat16*, const uint8_t*, float*);

size_t max_pool_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolOptions>();
  const PoolGeometry geometry = pool_geometry(query.input(0).shape, options, "max_pool2d");
  const int64_t slot = works_on_rows(geometry, options.layout)
                           ? slot_of_rows(geometry)
                           : slot_of_pixels(pixels_of(geometry, options.layout));
  return static_cast<size_t>(num_threads() * slot) * size_of(accumulate_dtype(query.input(0).dtype));
}

void run_max_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolOptions>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "max_pool2d");
  dispatch_pool(context.input(0).dtype, context.output(1).dtype, "max_pool2d", [&]<class T, class Index> {
    const bool rows = works_on_rows(geometry, options.layout);
    const auto kernel = rows ? max_pool_rows<T, Index> : max_pool_pixels<T, Index>;
    kernel(rows ? geometry : pixels_of(geometry, options.layout), context.input(0).as<const T>(),
           context.output(0).as<T>(), context.output(1).as<Index>(), context.workspace<compute_type<T>>());
  });
}

size_t max_pool_grad_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolGradOptions>();
  const DType dtype = query.input(0).dtype;
  const Shape& image = query.output(0).shape;
  const bool gathers = options.pool.layout == Layout::kNHWC;
  if (!is_half(dtype)) return 0;
  return static_cast<size_t>(num_threads() * (gathers ? image[3] : image[2] * image[3])) *
         size_of(accumulate_dtype(dtype));
}

void run_max_pool_grad(const KernelContext& context) {
  const auto& options = context.attributes<PoolGradOptions>();
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options.pool, "max_pool2d_grad");
  dispatch_pool(context.input(0).dtype, context.input(1).dtype, "max_pool2d_grad", [&]<class T, class Index> {
    const auto kernel = options.pool.layout == Layout::kNCHW ? max_pool_grad_nchw<T, Index, T>
                                                             : max_pool_grad_nhwc<T, Index, T>;
    kernel(geometry, context.input(0).as<const T>(), context.input(1).as<const Index>(),
           context.output(0).as<T>(), context.workspace<compute_type<T>>());
  });
}

}  // namespace sinter::ops
