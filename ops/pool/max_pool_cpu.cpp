#include <limits>
#include <type_traits>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

/// Pixels of fewer channels do not fill vectors; planes of NCHW have one.
constexpr int64_t kFewChannels = 16;

bool pools_rows(const PoolGeometry& geometry, Layout layout) {
  const bool has_few = layout == Layout::kNCHW || geometry.channels < kFewChannels;
  return has_few && works_on_rows(geometry, Layout::kNCHW);
}

template <class T, class Index, class C>
void store(PoolBest<C> best, int64_t count, T* y, Index* indices) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(best.values[i]);
  convert_places(best.places, indices, count);
}

int64_t padded_width(const PoolGeometry& geometry) {
  return whole_vectors(geometry.x.out * geometry.channels);
}

// float and int32 count alike; for double the places waste half of their room.
int64_t slot_of_rows(const PoolGeometry& geometry) {
  return PoolRows<float>::scratch(geometry.y, geometry.x, geometry.channels) + kPoolVector +
         3 * padded_width(geometry);
}

template <class T, class Index>
void max_pool_rows(const PoolGeometry& geometry, const T* x, T* y, Index* indices, compute_type<T>* scratch,
                   int threads) {
  using C = compute_type<T>;
  constexpr C kLowest = -std::numeric_limits<C>::infinity();
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = geometry.channels, width = columns.out * depth, padded = padded_width(geometry);
  const int64_t image = rows.extent * columns.extent * depth, slot_size = slot_of_rows(geometry);
  const auto run = [&](int64_t slot, int64_t begin, int64_t end) {
    C* values = scratch + slot * slot_size;
    const PoolBest<C> best{values, reinterpret_cast<int32_t*>(values + padded)};
    int32_t* lefts = reinterpret_cast<int32_t*>(values + 2 * padded);  // the first columns inside the image
    for (int64_t i = 0; i < width; ++i) {
      lefts[i] = static_cast<int32_t>(std::max<int64_t>(-columns.start(i / depth), 0));
    }
    std::fill(lefts + width, lefts + padded, 0);
    PoolRows<C> loaded(rows, columns, kLowest, values + 3 * padded, depth);
    for (int64_t line = begin; line < end; ++line) {
      const int64_t oy = line % rows.out;
      if (oy == 0) loaded.restart();
      const auto [first, last] = rows.inside(oy);
      loaded.load(x + line / rows.out * image, first, last);
      // Should all be -infinity: the first place inside the image.
      const auto top = static_cast<int32_t>((first - rows.start(oy)) * columns.kernel);
      std::fill_n(best.values, padded, kLowest);
      for (int64_t i = 0; i < padded; ++i) best.places[i] = top + lefts[i];
      for (int64_t row = first; row < last; ++row) {
        const int64_t place = (row - rows.start(oy)) * columns.kernel;
        for (int64_t tap = 0; tap < columns.kernel; ++tap) {
          best.take(loaded.tap(row, tap), static_cast<int32_t>(place + tap), padded);
        }
      }
      store(best, width, y + line * width, indices + line * width);
    }
  };
  parallel_slots(threads, geometry.batch * rows.out, rows.extent * columns.extent * depth / rows.out + width,
                 run);
}

template <class T, class Index>
void max_pool_pixels(const PoolGeometry& geometry, const T* x, T* y, Index* indices, compute_type<T>*,
                     int threads) {
  using C = compute_type<T>;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = geometry.channels;
  const auto line_of = [&](int64_t line) {
    const int64_t image = line / rows.out * rows.extent, oy = line % rows.out;
    const auto [top, bottom] = rows.taps(oy);
    for (int64_t ox = 0; ox < columns.out; ++ox) {
      const auto [left, right] = columns.taps(ox);
      for_channel_blocks(
          depth, [&, top = top, bottom = bottom, left = left, right =
                  right ](int64_t first, int64_t count) __attribute__((always_inline)) {
            alignas(64) C values[kChannelBlock];
            alignas(64) int32_t places[kChannelBlock];
            std::fill_n(values, count, -std::numeric_limits<C>::infinity());
            std::fill_n(places, count, static_cast<int32_t>(top * columns.kernel + left));
            BlockBuffer<T> loaded;
            for (int64_t down = top; down < bottom; ++down) {
              const int64_t row = image + rows.start(oy) + down * rows.dilation;
              for (int64_t across = left; across < right; ++across) {
                const int64_t column = columns.start(ox) + across * columns.dilation;
                const T* pixel = x + (row * columns.extent + column) * depth + first;
                PoolBest<C>{values, places}.take(load_block(pixel, count, loaded.values),
                                                 static_cast<int32_t>(down * columns.kernel + across), count);
              }
            }
            const int64_t out = (line * columns.out + ox) * depth + first;
            store(PoolBest<C>{values, places}, count, y + out, indices + out);
          });
    }
  };
  const int64_t work = columns.out * inner_kernel(rows) * inner_kernel(columns) * depth;
  parallel_slots(threads, geometry.batch * rows.out, work, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) line_of(line);
  });
}

}  // namespace

size_t max_pool_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolAttributes>();
  const PoolGeometry geometry = pool_geometry(query.input(0).shape, options, "max_pool2d");
  if (!pools_rows(geometry, options.layout)) return 0;
  return static_cast<size_t>(query.threads() * slot_of_rows(pixels_of(geometry, options.layout))) *
         size_of(accumulate_dtype(query.input(0).dtype));
}

void run_max_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "max_pool2d");
  dispatch_max_pool(context.input(0).dtype, context.output(1).dtype, "max_pool2d", [&]<class T, class Index> {
    const bool rows = pools_rows(geometry, options.layout);
    const auto kernel = rows ? max_pool_rows<T, Index> : max_pool_pixels<T, Index>;
    kernel(pixels_of(geometry, options.layout), context.input(0).as<const T>(), context.output(0).as<T>(),
           context.output(1).as<Index>(), context.workspace<compute_type<T>>(), context.threads());
  });
}

}  // namespace sinter::ops
