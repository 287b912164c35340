// The gradient of max pooling on the CPU.
#include <algorithm>
#include <type_traits>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

/// Pixels of fewer channels are not worth finding the windows of; but threads then share no image.
bool scatters(const PoolGeometry& geometry, Layout layout, int threads) {
  return layout == Layout::kNCHW || (geometry.channels < kPoolVector && geometry.batch >= threads);
}

/// Every window gives to the pixel that it took. Adds up in `sums`, which is dx itself unless T has 16 bits.
template <class T, class Index>
void max_pool_grad_scatter(const PoolGeometry& geometry, const T* dy, const Index* indices, T* dx,
                           compute_type<T>* scratch, int threads) {
  using C = compute_type<T>;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = geometry.channels, size = rows.extent * columns.extent * depth;
  const auto width = static_cast<uint32_t>(columns.kernel);
  parallel_slots(threads, geometry.batch, size, [&](int64_t slot, int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      C* sums = nullptr;
      if constexpr (std::is_same_v<T, C>) {
        sums = dx + image * size;
      } else {
        sums = scratch + slot * size;
      }
      std::fill_n(sums, size, C{0});
      const auto give = [&](int64_t out, int64_t oy, int64_t ox, int64_t k) {
        const auto place = static_cast<uint32_t>(indices[out]);
        const int64_t down = place / width, across = place % width;
        const int64_t row = rows.start(oy) + down * rows.dilation,
                      column = columns.start(ox) + across * columns.dilation;
        // An index that names no pixel of its window, which max_pool2d never gives, moves nothing.
        if (down >= rows.kernel || row < 0 || row >= rows.extent || column < 0 || column >= columns.extent)
          return;
        sums[(row * columns.extent + column) * depth + k] += static_cast<C>(dy[out]);
      };
      for (int64_t oy = 0; oy < rows.out; ++oy) {
        const int64_t line = (image * rows.out + oy) * columns.out * depth;
        if (depth == 1) {
          for (int64_t ox = 0; ox < columns.out; ++ox) give(line + ox, oy, ox, 0);
        } else {
          for (int64_t ox = 0; ox < columns.out; ++ox) {
            for (int64_t k = 0; k < depth; ++k) give(line + ox * depth + k, oy, ox, k);
          }
        }
      }
      if constexpr (!std::is_same_v<T, C>) {
        for (int64_t i = 0; i < size; ++i) dx[image * size + i] = static_cast<T>(sums[i]);
      }
    }
  });
}

/// sums[i] += slopes[i] where places[i] == place.
template <class Index, class C>
[[gnu::always_inline]] inline void add_equal(const Index* places, Index place, const C* slopes, int64_t count,
                                             C* sums) {
  SINTER_IVDEP
  for (int64_t i = 0; i < count; ++i) {
    const C slope = slopes[i];
    sums[i] += places[i] == place ? slope : C{0};
  }
}

/// A loop over bytes and numbers takes 32 at once, and what is left one by one.
bool fills_vectors(int64_t count) {
  return count % 32 < 8;
}

/// The same; if the loop does not fill vectors, for at most kChannelBlock.
template <class Index, class C>
[[gnu::always_inline]] inline void add_where(const Index* places, Index place, const C* slopes, int64_t count,
                                             C* sums) {
  if (sizeof(Index) == sizeof(int32_t) || fills_vectors(count))
    return add_equal(places, place, slopes, count, sums);
  alignas(64) int32_t numbers[kChannelBlock];
  convert_places(places, numbers, count);
  add_equal(numbers, static_cast<int32_t>(place), slopes, count, sums);
}

/// Each pixel gathers from the windows that contain it: channels side by side, and no two threads write to
/// one place.
template <class T, class Index>
void max_pool_grad_gather(const PoolGeometry& geometry, const T* dy, const Index* indices, T* dx,
                          compute_type<T>*, int threads) {
  using C = compute_type<T>;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = geometry.channels;
  struct Place {
    int64_t image, iy, ix;
    PoolAxis::Range down, across;  // the windows that hold the pixel
  };
  const auto gather = [&](const Place& at, int64_t first, int64_t count, C* sums) {
    BlockBuffer<T> loaded;
    std::fill_n(sums, count, C{0});
    for (int64_t oy = at.down.begin; oy < at.down.end; ++oy) {
      const int64_t down = rows.tap_at(oy, at.iy);
      if (down < 0) continue;
      for (int64_t ox = at.across.begin; ox < at.across.end; ++ox) {
        const int64_t across = columns.tap_at(ox, at.ix);
        if (across < 0) continue;
        const int64_t out = ((at.image + oy) * columns.out + ox) * depth + first;
        const auto place = static_cast<Index>(down * columns.kernel + across);
        add_where(indices + out, place, load_block(dy + out, count, loaded.values), count, sums);
      }
    }
  };
  const bool adds_in_place = std::is_same_v<T, C> && fills_vectors(depth);
  const auto run = [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t iy = line % rows.extent;
      Place at{line / rows.extent * rows.out, iy, 0, rows.windows(iy), {}};
      T* pixel = dx + line * columns.extent * depth;
      for (; at.ix < columns.extent; ++at.ix, pixel += depth) {
        at.across = columns.windows(at.ix);
        if constexpr (std::is_same_v<T, C>) {
          if (adds_in_place) {
            gather(at, 0, depth, pixel);
            continue;
          }
        }
        for_channel_blocks(depth, [&](int64_t first, int64_t count) {
          alignas(64) C sums[kChannelBlock];
          gather(at, first, count, sums);
          for (int64_t c = 0; c < count; ++c) pixel[first + c] = static_cast<T>(sums[c]);
        });
      }
    }
  };
  parallel_slots(threads, geometry.batch * rows.extent, columns.extent * depth * 4, run);
}

template <class T, class Index>
void max_pool_grad(const PoolGeometry& geometry, Layout layout, const T* dy, const Index* indices, T* dx,
                   compute_type<T>* scratch, int threads) {
  const auto kernel =
      scatters(geometry, layout, threads) ? max_pool_grad_scatter<T, Index> : max_pool_grad_gather<T, Index>;
  kernel(pixels_of(geometry, layout), dy, indices, dx, scratch, threads);
}

}  // namespace

size_t max_pool_grad_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<PoolGradOptions>().pool;
  const Shape& image = query.output(0).shape;
  const DType dtype = query.input(0).dtype;
  const PoolGeometry geometry = pool_geometry(image, options, "max_pool2d_grad");
  if (!is_half(dtype) || !scatters(geometry, options.layout, query.threads())) return 0;
  const PoolGeometry pixels = pixels_of(geometry, options.layout);
  return static_cast<size_t>(query.threads() * pixels.y.extent * pixels.x.extent * pixels.channels) *
         size_of(accumulate_dtype(dtype));
}

void run_max_pool_grad(const KernelContext& context) {
  const auto& options = context.attributes<PoolGradOptions>().pool;
  const TensorView &dy = context.input(0), &indices = context.input(1), &dx = context.output(0);
  const PoolGeometry geometry = pool_geometry(dx.shape, options, "max_pool2d_grad");
  dispatch_max_pool(dy.dtype, indices.dtype, "max_pool2d_grad", [&]<class T, class Index> {
    max_pool_grad(geometry, options.layout, dy.as<const T>(), indices.as<const Index>(), dx.as<T>(),
                  context.workspace<compute_type<T>>(), context.threads());
  });
}

}  // namespace sinter::ops
