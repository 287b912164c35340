// Max pooling with the usual windows, whose extents the compiler knows. A thread has the same columns from
// row to row and walks down a strip of the image: what two rows of windows share is read once and kept in
// registers. For .cu files.
#pragma once

#include <limits>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {
namespace detail {

constexpr unsigned kStripThreads = 256;

/// How images are cut into threads: `vectors` packs of channels beside each other, then `columns`, then
/// `strips` of `steps` rows, then images. NCHW is NHWC with every plane an image of one channel.
struct PoolStrips {
  int height, width, out_height, out_width, depth;
  int padding_y, padding_x;
  int steps, rows;  ///< rows of a strip, and of all, in what a thread makes in one step
  int64_t threads;
  cuda::FastDivide by_vectors, by_columns, by_strips;
};

/// Where a thread works; columns count in what a thread makes in one step.
struct StripPlace {
  int64_t image;
  int column, first_row, last_row, channel;

  __device__ StripPlace(const PoolStrips& strips, int64_t thread, int pack) {
    uint32_t vector, at_column, strip;
    const uint32_t pixel = strips.by_vectors.divide(static_cast<uint32_t>(thread), vector);
    image = strips.by_strips.divide(strips.by_columns.divide(pixel, at_column), strip);
    column = static_cast<int>(at_column);
    first_row = static_cast<int>(strip) * strips.steps;
    last_row = min(first_row + strips.steps, strips.rows);
    channel = static_cast<int>(vector) * pack;
  }
};

/// Bit i is set if first + i lies in [0, extent).
template <int count>
__device__ __forceinline__ unsigned inside_mask(int first, int extent) {
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) mask |= first + i >= 0 && first + i < extent ? 1u << i : 0u;
  return mask;
}

// ---- forward, of planes

/// The largest in one row of a window, and its column there.
template <class C>
struct RowBest {
  C value;
  int column;
};

/// Makes `wide` neighbouring results in one step.
template <int kernel, int stride, int wide, class T>
__global__ void __launch_bounds__(kStripThreads)
    max_pool_strips_kernel(PoolStrips strips, bool together, const T* x, T* y, uint8_t* places) {
  using C = compute_type<T>;
  constexpr C nothing = -std::numeric_limits<C>::infinity();
  constexpr int columns = (wide - 1) * stride + kernel;          // that are read
  constexpr int shared = kernel > stride ? kernel - stride : 0;  // rows of a window that the next one has too
  const int64_t thread = int64_t{blockIdx.x} * kStripThreads + threadIdx.x;
  if (thread >= strips.threads) return;
  const StripPlace place(strips, thread, 1);
  const int out_column = place.column * wide, column = out_column * stride - strips.padding_x;
  const unsigned inside = inside_mask<columns>(column, strips.width);
  int row = place.first_row * stride - strips.padding_y;  // the next to be read
  const T* from = x + (place.image * strips.height + row) * strips.width + column;
  const int64_t out = (place.image * strips.out_height + place.first_row) * strips.out_width + out_column;
  y += out;
  places += out;

  RowBest<C> rows[kernel][wide];
  const auto read_row = [&](RowBest<C>(&to)[wide]) {
    // No branches, so that the loads of several rows are on their way together.
    const unsigned mask = row >= 0 && row < strips.height ? inside : 0u;
    C values[columns];
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      T element = cuda::round_to<T>(nothing);
      if ((mask >> j & 1u) != 0) element = from[j];
      values[j] = cuda::load_as_compute(element);
    }
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      to[w] = {nothing, 0};
#pragma unroll
      for (int j = 0; j < kernel; ++j) {
        const C value = values[w * stride + j];
        const bool takes = pool_takes(value, to[w].value);
        to[w].value = takes ? value : to[w].value;
        to[w].column = takes ? j : to[w].column;
      }
    }
    ++row;
    from += strips.width;
  };
#pragma unroll
  for (int i = 0; i < shared; ++i) read_row(rows[stride + i]);
#pragma unroll 2
  for (int step = place.first_row; step < place.last_row; ++step) {
    const int rows_before = max(0, strips.padding_y - step * stride);
#pragma unroll
    for (int i = 0; i < shared; ++i) {
#pragma unroll
      for (int w = 0; w < wide; ++w) rows[i][w] = rows[stride + i][w];
    }
#pragma unroll
    for (int i = shared; i < kernel; ++i) read_row(rows[i]);
    cuda::Pack<T, wide> result;
    cuda::Pack<uint8_t, wide> result_places;
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      // Should all be -infinity: the first place inside the image.
      RowBest<C> best{nothing, rows_before * kernel + max(0, -(column + w * stride))};
#pragma unroll
      for (int i = 0; i < kernel; ++i) {
        const bool takes = pool_takes(rows[i][w].value, best.value);
        best.value = takes ? rows[i][w].value : best.value;
        best.column = takes ? i * kernel + rows[i][w].column : best.column;
      }
      result.values[w] = cuda::round_to<T>(best.value);
      result_places.values[w] = static_cast<uint8_t>(best.column);
    }
    if (together) {
      *reinterpret_cast<cuda::Pack<T, wide>*>(y) = result;
      *reinterpret_cast<cuda::Pack<uint8_t, wide>*>(places) = result_places;
    } else {
#pragma unroll
      for (int w = 0; w < wide; ++w) {
        if (out_column + w >= strips.out_width) break;
        y[w] = result.values[w];
        places[w] = result_places.values[w];
      }
    }
    y += strips.out_width;
    places += strips.out_width;
  }
}

// ---- backward
//
// In one step a thread makes `blocks` blocks of stride x stride pixels side by side from the windows that lie
// over them. Which those are does not depend on where a block is: pixel j of block b lies in the windows
// b + d with 0 <= j + padding - d * stride < kernel, and that is its place there.

template <int kernel, int stride, int padding>
struct BlockWindows {
  static constexpr int kFirst = -((kernel - 1 - padding) / stride), kLast = (stride - 1 + padding) / stride;
  static constexpr int kCount = kLast - kFirst + 1;

  /// The place of pixel j of a block in the block's i-th window; below 0 or from `kernel` on: it is not
  /// there.
  static constexpr int place(int j, int i) { return j + padding - (kFirst + i) * stride; }
};

/// A window's gradient and where it goes.
template <class V, int pack>
struct Slopes {
  V values[pack];
  cuda::Pack<uint8_t, pack> places;
};

/// Blocks of threads to a processor: as many as leave a thread registers for its windows.
constexpr int strip_blocks(int pack, int stride) {
  if (pack == 1) return 4;
  return stride == 1 ? 2 : 3;
}

/// Stores the pixels of a row of a plane in one access.
template <class T, class C, int width, int pack>
__device__ __forceinline__ void store_together(T* to, const C (&sums)[width][pack]) {
  cuda::Pack<T, width> result;
#pragma unroll
  for (int x = 0; x < width; ++x) result.values[x] = cuda::round_to<T>(sums[x][0]);
  *reinterpret_cast<cuda::Pack<T, width>*>(to) = result;
}

/// `pack` or `blocks` is 1. `planes`: the images are planes, else of strips.depth channels. `together`: rows
/// of what a thread makes are one access; so they must be with several blocks; only with planes.
template <int kernel, int stride, int padding, int pack, int blocks, bool planes, class T>
__global__ void __launch_bounds__(kStripThreads, strip_blocks(pack, stride))
    max_pool_grad_strips_kernel(PoolStrips strips, bool together, const T* dy, const uint8_t* places, T* dx) {
  using C = compute_type<T>;
  using V = std::conditional_t<pack == 1, C, T>;  // packs stay small until they are added up
  using Windows = BlockWindows<kernel, stride, padding>;
  constexpr int count = Windows::kCount, beside = count + blocks - 1, width = stride * blocks;
  const int64_t thread = int64_t{blockIdx.x} * kStripThreads + threadIdx.x;
  if (thread >= strips.threads) return;
  const StripPlace place(strips, thread, pack);
  const int depth = planes ? 1 : strips.depth;
  const int first = place.column * blocks + Windows::kFirst, column = place.column * width;
  const unsigned inside = inside_mask<beside>(first, strips.out_width);
  int out_row = place.first_row + Windows::kFirst;  // the next to be read
  const int64_t pooled =
      ((place.image * strips.out_height + out_row) * strips.out_width + first) * depth + place.channel;
  dy += pooled;
  places += pooled;
  const int row_size = strips.width * depth;
  T* to = dx + ((place.image * strips.height + place.first_row * stride) * strips.width + column) * depth +
          place.channel;

  Slopes<V, pack> windows[count][beside];
  const auto read_row = [&](Slopes<V, pack>(&row)[beside]) {
    const unsigned mask = out_row >= 0 && out_row < strips.out_height ? inside : 0u;
#pragma unroll
    for (int i = 0; i < beside; ++i) {
      cuda::Pack<T, pack> values{};
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) row[i].places.values[lane] = 255;  // nowhere
      if ((mask >> i & 1u) != 0) {
        values = *reinterpret_cast<const cuda::Pack<T, pack>*>(dy + i * depth);
        row[i].places = *reinterpret_cast<const cuda::Pack<uint8_t, pack>*>(places + i * depth);
      }
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        if constexpr (pack == 1) {
          row[i].values[lane] = cuda::load_as_compute(values.values[lane]);
        } else {
          row[i].values[lane] = values.values[lane];
        }
      }
    }
    ++out_row;
    dy += strips.out_width * depth;
    places += strips.out_width * depth;
  };
#pragma unroll
  for (int i = 1; i < count; ++i) read_row(windows[i]);
#pragma unroll(pack == 1 ? 2 : 1)
  for (int step = place.first_row; step < place.last_row; ++step) {
#pragma unroll
    for (int i = 1; i < count; ++i) {
#pragma unroll
      for (int k = 0; k < beside; ++k) windows[i - 1][k] = windows[i][k];
    }
    read_row(windows[count - 1]);
#pragma unroll
    for (int y = 0; y < stride; ++y) {
      C sums[width][pack] = {};
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int row_place = Windows::place(y, i);
        if (row_place < 0 || row_place >= kernel) continue;
#pragma unroll
        for (int x = 0; x < width; ++x) {
#pragma unroll
          for (int k = 0; k < count; ++k) {
            const int column_place = Windows::place(x % stride, k);
            if (column_place < 0 || column_place >= kernel) continue;
            const Slopes<V, pack>& window = windows[i][x / stride + k];
#pragma unroll
            for (int lane = 0; lane < pack; ++lane) {
              if (window.places.values[lane] == row_place * kernel + column_place) {
                sums[x][lane] += cuda::load_as_compute(window.values[lane]);
              }
            }
          }
        }
      }
      if (step * stride + y >= strips.height) break;
      T* const row = to + y * row_size;
      if constexpr (blocks > 1) {
        store_together(row, sums);
      } else if (pack == 1 && together) {
        store_together(row, sums);
      } else {
#pragma unroll
        for (int x = 0; x < width; ++x) {
          if (column + x >= strips.width) break;
          cuda::Pack<T, pack> result;
#pragma unroll
          for (int lane = 0; lane < pack; ++lane) result.values[lane] = cuda::round_to<T>(sums[x][lane]);
          *reinterpret_cast<cuda::Pack<T, pack>*>(row + x * depth) = result;
        }
      }
    }
    to += int64_t{stride} * row_size;
  }
}

// ---- launches

/// Strips over `rows` x `columns` of every image. They are long where there are many images and short where
/// the GPU would not be full. threads is 0 if indices are too large for these kernels.
inline PoolStrips plan_strips(const PoolGeometry& geometry, Layout layout, int64_t rows, int64_t columns,
                              int pack) {
  constexpr int64_t kLongest = 16, kEnoughThreads = int64_t{1} << 19;
  const bool planes = layout == Layout::kNCHW;
  const int64_t images = planes ? geometry.batch * geometry.channels : geometry.batch;
  const int64_t depth = planes ? 1 : geometry.channels, vectors = depth / pack;
  const auto fits = [](const PoolAxis& axis) { return axis.extent < INT32_MAX / 4; };
  PoolStrips strips{};
  if (!fits(geometry.y) || !fits(geometry.x)) return strips;
  if (images * vectors * rows * columns == 0) return strips;  // nothing to do, and nothing to divide by
  const int64_t largest =
      std::max(geometry.y.extent * geometry.x.extent, geometry.y.out * geometry.x.out) * depth;
  if (geometry.y.extent * geometry.x.extent >= INT32_MAX || largest >= INT32_MAX) return strips;
  int64_t steps = std::min(kLongest, rows);
  const auto threads_at = [&](int64_t length) {
    return images * ((rows + length - 1) / length) * columns * vectors;
  };
  while (steps > 1 && threads_at(steps) < kEnoughThreads) steps = (steps + 1) / 2;
  const int64_t threads = threads_at(steps);
  if (threads >= INT32_MAX) return strips;
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  strips = {.height = narrow(geometry.y.extent),
            .width = narrow(geometry.x.extent),
            .out_height = narrow(geometry.y.out),
            .out_width = narrow(geometry.x.out),
            .depth = narrow(depth),
            .padding_y = narrow(geometry.y.padding),
            .padding_x = narrow(geometry.x.padding),
            .steps = narrow(steps),
            .rows = narrow(rows),
            .threads = threads,
            .by_vectors = cuda::FastDivide(static_cast<uint32_t>(vectors)),
            .by_columns = cuda::FastDivide(static_cast<uint32_t>(columns)),
            .by_strips = cuda::FastDivide(static_cast<uint32_t>((rows + steps - 1) / steps))};
  return strips;
}

inline cuda::LaunchShape strips_shape(const PoolStrips& strips) {
  return {dim3(static_cast<unsigned>(cuda::blocks_for(strips.threads, kStripThreads))), dim3(kStripThreads)};
}

inline bool has_windows(const PoolGeometry& geometry, int64_t kernel, int64_t stride) {
  const auto fits = [=](const PoolAxis& axis) { return axis.kernel == kernel && axis.stride == stride; };
  return fits(geometry.y) && fits(geometry.x);
}

inline bool has_padding(const PoolGeometry& geometry, int64_t padding) {
  return geometry.y.padding == padding && geometry.x.padding == padding;
}

template <int kernel, int stride, class T>
bool launch_max_pool_strips(const Stream& stream, const PoolGeometry& geometry, const T* x, T* y,
                            uint8_t* places) {
  constexpr int wide = 2;
  if (!has_windows(geometry, kernel, stride)) return false;
  const PoolStrips strips =
      plan_strips(geometry, Layout::kNCHW, geometry.y.out, cuda::blocks_for(geometry.x.out, wide), 1);
  if (strips.threads == 0) return false;
  const bool together =
      geometry.x.out % wide == 0 && cuda::is_aligned(y, sizeof(T) * wide) && cuda::is_aligned(places, wide);
  cuda::launch(stream, strips_shape(strips), max_pool_strips_kernel<kernel, stride, wide, T>, strips,
               together, x, y, places);
  return true;
}

template <int kernel, int stride, int padding, int pack, class T>
bool launch_max_pool_grad_strips(const Stream& stream, const PoolGeometry& geometry, Layout layout,
                                 const T* dy, const uint8_t* places, T* dx) {
  if (!has_windows(geometry, kernel, stride) || !has_padding(geometry, padding)) return false;
  const auto run = [&]<int blocks, bool planes>() {
    constexpr int width = stride * blocks;
    const int64_t rows = cuda::blocks_for(geometry.y.extent, stride);
    const PoolStrips strips =
        plan_strips(geometry, layout, rows, cuda::blocks_for(geometry.x.extent, width), pack);
    if (strips.threads == 0) return false;
    const bool together = planes && geometry.x.extent % width == 0 && cuda::is_aligned(dx, sizeof(T) * width);
    cuda::launch(stream, strips_shape(strips),
                 max_pool_grad_strips_kernel<kernel, stride, padding, pack, blocks, planes, T>, strips,
                 together, dy, places, dx);
    return true;
  };
  if constexpr (pack > 1) {
    return run.template operator()<1, false>();
  } else {
    if (layout == Layout::kNHWC) return run.template operator()<1, false>();
    // Rows of planes in accesses of 4 pixels, if they divide by that: a pixel at a time, threads with fewer
    // are better.
    constexpr int pixels = sizeof(T) == 8 ? 2 : 4;
    if constexpr (pixels > stride) {
      if (geometry.x.extent % pixels == 0 && cuda::is_aligned(dx, sizeof(T) * pixels)) {
        return run.template operator()<pixels / stride, true>();
      }
    }
    return run.template operator()<1, true>();
  }
}

}  // namespace detail

/// max_pool2d of images in NCHW. False if there is no kernel for this geometry: nothing was launched.
template <class T>
bool try_max_pool_strips(const Stream& stream, const PoolGeometry& geometry, const T* x, T* y,
                         uint8_t* places) {
  return detail::launch_max_pool_strips<3, 2>(stream, geometry, x, y, places) ||
         detail::launch_max_pool_strips<2, 2>(stream, geometry, x, y, places) ||
         detail::launch_max_pool_strips<3, 1>(stream, geometry, x, y, places);
}

/// max_pool2d_grad; `pack` is 1, or under NHWC divides the channels and all pointers allow
/// accesses of pack elements. False as above.
template <int pack, class T>
bool try_max_pool_grad_strips(const Stream& stream, const PoolGeometry& geometry, Layout layout, const T* dy,
                              const uint8_t* places, T* dx) {
  return detail::launch_max_pool_grad_strips<3, 2, 1, pack>(stream, geometry, layout, dy, places, dx) ||
         detail::launch_max_pool_grad_strips<3, 2, 0, pack>(stream, geometry, layout, dy, places, dx) ||
         detail::launch_max_pool_grad_strips<2, 2, 0, pack>(stream, geometry, layout, dy, places, dx) ||
         detail::launch_max_pool_grad_strips<3, 1, 1, pack>(stream, geometry, layout, dy, places, dx);
}

}  // namespace sinter::ops
