// Direct gradient of the filters: dW[o, c, tap] = sum over images and pixels of dy[pixel, o] * x[pixel at
// tap, c].
//
// The innermost kernel holds a tile of input channels (of one tap, or of several for images of few channels)
// x one or two vectors of output channels in registers, and walks the output pixels: it loads dy's channels
// once per pixel and multiplies them by one value of x per input channel, broadcast from memory. Around it,
// from the outside in:
//   chunk    of the batch, with a partial sum of its own; threads share the chunks, which depend on the
//   geometry alone
//            and are added up in order at the end, so that the result does not depend on the threads;
//   band     of output rows of an image: x is packed as for the forward pass (conv2d_direct_cpu.cpp), and dy
//   too unless
//            its channels lie adjacent and fill vectors already;
//   rows     as many as stay in the first-level cache while all tiles walk them.
#include <array>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/conv2d/direct/conv2d_direct_weight_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_pack_cpu.h>

namespace sinter::ops {
namespace {

constexpr int kStripVectors = 2;  // most vectors of output channels in a tile
constexpr int64_t kMostChunks = 16;
constexpr int64_t kChunkPixels = 1024;                 // fewer would not repay another partial sum
constexpr int64_t kPartialsBytes = int64_t{64} << 20;  // all partial sums together
constexpr int64_t kBandBytes = int64_t{512} << 10;     // x and dy of a band: a part of the second-level cache
constexpr int64_t kRowsBytes = 28 << 10;  // x and dy of neighbouring rows: over half the first-level cache

// Tiles hold taps x input channels x vectors of output channels. Several taps keep enough sums in flight
// where one vector or few channels would not; with two vectors each value of x is used twice.
constexpr int kThinTaps = kVectorRegisters == 32 ? 9 : 3;
constexpr int kTaps = 3;
template <class C>
constexpr int kTileChannels = std::min(kLanes<C>, kVectorRegisters == 32 ? 8 : 4);

// ---- the tile

template <class C>
struct Tile {
  const C* x[kThinTaps];  // per tap: first pixel's first channel
  int64_t x_row;          // elements from row to row
  const C* dy;
  int64_t dy_vector, dy_pixel;  // elements from vector to vector and from pixel to pixel, rows following on
  int64_t rows, columns;
  C* sums;
  int64_t sums_tap, sums_channel;  // elements from tap to tap and from channel to channel
  bool first;                      // store instead of add
};

template <class C, int taps, int channels, int vectors>
void run_tile(const Tile<C>& tile) {
  constexpr int lanes = kLanes<C>;
  Vector<C> sums[size_t{taps}][size_t{channels}][size_t{vectors}] = {};
  const C* dy = tile.dy;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const C* x[size_t{taps}];
    for (int t = 0; t < taps; ++t) x[t] = tile.x[t] + row * tile.x_row;
    for (int64_t column = 0; column < tile.columns; ++column, dy += tile.dy_pixel) {
      Vector<C> gradient[size_t{vectors}];
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) gradient[v] = load_vector(dy + v * tile.dy_vector);
#pragma GCC unroll 32
      for (int t = 0; t < taps; ++t) {
#pragma GCC unroll 32
        for (int c = 0; c < channels; ++c) {
#pragma GCC unroll 32
          for (int v = 0; v < vectors; ++v) sums[t][c][v] += gradient[v] * x[t][column * lanes + c];
        }
      }
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < taps; ++t) {
#pragma GCC unroll 32
    for (int c = 0; c < channels; ++c) {
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) {
        C* to = tile.sums + t * tile.sums_tap + c * tile.sums_channel + v * lanes;
        store_vector(to, tile.first ? sums[t][c][v] : load_vector(to) + sums[t][c][v]);
      }
    }
  }
}

// ---- the plan

template <class C>
struct Plan {
  const Conv2dGeometry& g;
  DirectAxis x_rows, x_columns, dy_rows, dy_columns;
  int64_t in_padded, out_padded;  // channels of a group in whole vectors
  int64_t chunks, slots, band_rows, tile_rows;
  int64_t partial_bytes, x_bytes, dy_bytes;

  Plan(const Conv2dGeometry& geometry, int threads)
      : g(geometry),
        x_rows(forward_axis(g.height)),
        x_columns(forward_axis(g.width)),
        dy_rows(identity_axis(g.height.output)),
        dy_columns(identity_axis(g.width.output)) {
    const int64_t lanes = kLanes<C>;
    in_padded = (g.group_in() + lanes - 1) / lanes * lanes;
    out_padded = (g.group_out() + lanes - 1) / lanes * lanes;
    partial_bytes = bytes_of(partial_count());
    const int64_t by_work = g.batch * g.out_pixels() / kChunkPixels;
    chunks =
        std::clamp<int64_t>(std::min({g.batch, by_work, kPartialsBytes / partial_bytes}), 1, kMostChunks);
    slots = std::min<int64_t>(threads, chunks);
    const PackedBand x(x_rows, x_columns, g.group_in(), lanes);
    const int64_t x_row_bytes = bytes_of(x.row_elements()) * g.height.stride;
    const int64_t dy_row_bytes = bytes_of(g.width.output * lanes);
    const int64_t band_row_bytes = x_row_bytes * x.blocks() + dy_row_bytes * (out_padded / lanes);
    band_rows = std::clamp<int64_t>(kBandBytes / band_row_bytes, 1, g.height.output);
    tile_rows = std::clamp<int64_t>(kRowsBytes / (x_row_bytes + kStripVectors * dy_row_bytes), 1, band_rows);
    x_bytes = bytes_of(x.capacity(band_rows));
    dy_bytes = bytes_of(out_padded * band_rows * g.width.output);
  }

  static int64_t bytes_of(int64_t elements) {
    constexpr int64_t alignment = 64;
    return (elements * static_cast<int64_t>(sizeof(C)) + alignment - 1) / alignment * alignment;
  }
  /// Partial sums are laid out as [group][strip][input block][tap][input lane][output channels of the strip].
  int64_t partial_count() const { return g.groups * out_padded * in_padded * g.taps(); }
  size_t workspace_bytes() const {
    return static_cast<size_t>(chunks * partial_bytes + slots * (x_bytes + dy_bytes));
  }
};

/// dy of one group of a band as vectors of channels, wherever they lie.
template <class C>
struct GradientVectors {
  const C* first;
  int64_t vector, pixel;  // elements between vectors and between pixels
};

/// All tiles of one block of input channels and one strip of output channels over some rows.
template <class C>
struct Block {
  Tile<C> tile;  // x and sums are set here
  C* sums;       // [tap][lane][vectors * lanes]
  int64_t channels, vectors;
  std::vector<const C*> taps;  // where each tap reads its first pixel
  size_t next_tap = 0;

  /// Tiles for as many of the remaining taps as `count` divides.
  template <int count, int tile_channels, int tile_vectors>
  void run() {
    for (; taps.size() - next_tap >= size_t{count}; next_tap += size_t{count}) {
      for (int64_t c = 0; c < channels; c += tile_channels) {
        for (int64_t v = 0; v < vectors; v += tile_vectors) {
          Tile<C> one = tile;
          for (int t = 0; t < count; ++t) one.x[t] = taps[next_tap + static_cast<size_t>(t)] + c;
          one.dy += v * tile.dy_vector;
          one.sums =
              sums + static_cast<int64_t>(next_tap) * tile.sums_tap + c * tile.sums_channel + v * kLanes<C>;
          run_tile<C, count, tile_channels, tile_vectors>(one);
        }
      }
    }
  }
  template <int thin_channels>
  void run_thin() {
    run<kThinTaps, thin_channels, 1>();
    run<1, thin_channels, 1>();
  }
  void run_all() {
    if constexpr (kLanes<C> >= 3) {
      if (channels == 3) return run_thin<3>();
    }
    if (channels == 2) return run_thin<2>();
    if (channels == 1) return run_thin<1>();
    if (vectors == 1) {
      run<kTaps, kTileChannels<C>, 1>();
      run<1, kTileChannels<C>, 1>();
    } else {
      run<1, kTileChannels<C>, 2>();
    }
  }
};

/// Adds one group of one band to a partial sum.
template <class C>
void add_band(const Plan<C>& plan, const PackedBand& x, const C* packed, const GradientVectors<C>& dy,
              int64_t rows, C* partial, bool first) {
  const Conv2dGeometry& g = plan.g;
  const int64_t lanes = kLanes<C>;
  for (int64_t row = 0; row < rows; row += plan.tile_rows) {
    C* sums = partial;
    for (int64_t out = 0; out < plan.out_padded; out += kStripVectors * lanes) {
      const int64_t vectors = std::min<int64_t>(kStripVectors, (plan.out_padded - out) / lanes);
      const int64_t width = vectors * lanes;
      for (int64_t block = 0; block < x.blocks(); ++block, sums += g.taps() * lanes * width) {
        Block<C> work{.tile = {.x = {},
                               .x_row = g.height.stride * x.row_elements(),
                               .dy = dy.first + out / lanes * dy.vector + row * g.width.output * dy.pixel,
                               .dy_vector = dy.vector,
                               .dy_pixel = dy.pixel,
                               .rows = std::min(plan.tile_rows, rows - row),
                               .columns = g.width.output,
                               .sums = nullptr,
                               .sums_tap = lanes * width,
                               .sums_channel = width,
                               .first = first && row == 0},
                      .sums = sums,
                      .channels = std::min(lanes, g.group_in() - block * lanes),
                      .vectors = vectors,
                      .taps = {}};
        for (int64_t u = 0; u < g.height.kernel; ++u) {
          const C* from = packed + block * x.block_elements() +
                          (row * g.height.stride + u * g.height.dilation) * x.row_elements();
          for (const DirectTap& v : plan.x_columns.phases[0].taps)
            work.taps.push_back(from + x.tap_element(v.offset));
        }
        work.run_all();
      }
    }
  }
}

/// Adds the images [begin, end) to a partial sum.
template <class T, class C = compute_type<T>>
void add_images(const Plan<C>& plan, const T* x, const T* dy, int64_t begin, int64_t end, C* partial,
                C* packed_x, C* packed_dy) {
  const Conv2dGeometry& g = plan.g;
  const int64_t lanes = kLanes<C>;
  const ImageStrides x_strides(g.layout, g.in_channels, g.in_pixels());
  const ImageStrides dy_strides(g.layout, g.out_channels, g.out_pixels());
  PackedBand x_band(plan.x_rows, plan.x_columns, g.group_in(), lanes);
  PackedBand dy_band(plan.dy_rows, plan.dy_columns, g.group_out(), lanes);
  const bool dy_in_place = std::is_same_v<T, C> && dy_strides.channel == 1 && g.group_out() % lanes == 0;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t row = 0; row < g.height.output; row += plan.band_rows) {
      const int64_t rows = std::min(plan.band_rows, g.height.output - row);
      x_band.set_targets(row, row + rows);
      dy_band.set_targets(row, row + rows);
      for (int64_t group = 0; group < g.groups; ++group) {
        pack_band(x_band, x + image * x_strides.image, group * g.group_in(), x_strides, packed_x);
        const T* image_dy = dy + image * dy_strides.image;
        GradientVectors<C> gradient{packed_dy, dy_band.block_elements(), lanes};
        if constexpr (std::is_same_v<T, C>) {
          if (dy_in_place) {
            gradient = {image_dy + group * g.group_out() + row * g.width.output * dy_strides.pixel, lanes,
                        dy_strides.pixel};
          }
        }
        if (!dy_in_place) pack_band(dy_band, image_dy, group * g.group_out(), dy_strides, packed_dy);
        add_band(plan, x_band, packed_x, gradient, rows,
                 partial + group * plan.out_padded * plan.in_padded * g.taps(), image == begin && row == 0);
      }
    }
  }
}

/// Adds the partial sums up and moves them to their places in the filters.
template <class T, class C = compute_type<T>>
void add_partials(const Plan<C>& plan, const std::byte* partials, T* dweight) {
  const Conv2dGeometry& g = plan.g;
  const int64_t lanes = kLanes<C>, taps = g.taps();
  const int64_t out_stride = g.group_in() * taps;
  const int64_t in_stride = g.layout == Layout::kNCHW ? taps : 1;
  const int64_t tap_stride = g.layout == Layout::kNCHW ? 1 : g.group_in();
  const int64_t strips = (plan.out_padded + kStripVectors * lanes - 1) / (kStripVectors * lanes);
  parallel_for(g.groups * strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t group = index / strips, out = index % strips * kStripVectors * lanes;
      const int64_t width = std::min(kStripVectors * lanes, plan.out_padded - out);
      const int64_t count = std::min(width, g.group_out() - out);
      int64_t element = (group * plan.out_padded + out) * plan.in_padded * taps;
      T* to = dweight + (group * g.group_out() + out) * out_stride;
      for (int64_t block = 0; block < plan.in_padded; block += lanes) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          for (int64_t c = block; c < block + lanes; ++c, element += width) {
            if (c >= g.group_in()) continue;
            alignas(kVectorBytes) C sums[kStripVectors * kLanes<C>];
            for (int64_t v = 0; v < width; v += lanes) {
              Vector<C> sum{};
              for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
                sum += load_vector(reinterpret_cast<const C*>(partials + chunk * plan.partial_bytes) +
                                   element + v);
              }
              store_vector(sums + v, sum);
            }
            for (int64_t o = 0; o < count; ++o) {
              to[o * out_stride + c * in_stride + tap * tap_stride] = static_cast<T>(sums[o]);
            }
          }
        }
      }
    }
  });
}

}  // namespace

template <class C>
size_t conv2d_direct_weight_workspace(const Conv2dGeometry& geometry, int threads) {
  return Plan<C>(geometry, threads).workspace_bytes();
}
template size_t conv2d_direct_weight_workspace<float>(const Conv2dGeometry&, int);
template size_t conv2d_direct_weight_workspace<double>(const Conv2dGeometry&, int);

template <class T>
void run_conv2d_direct_weight(const KernelContext& context, const Conv2dGeometry& geometry) {
  using C = compute_type<T>;
  T* dweight = context.output(0).as<T>();
  if (geometry.batch == 0) {
    std::fill_n(dweight, geometry.weight_count(), T(0));
    return;
  }
  const Plan<C> plan(geometry, context.threads());
  auto* partials = context.workspace<std::byte>();
  std::byte* scratch = partials + plan.chunks * plan.partial_bytes;
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      std::byte* own = scratch + slot * (plan.x_bytes + plan.dy_bytes);
      for (int64_t chunk = plan.chunks * slot / plan.slots; chunk < plan.chunks * (slot + 1) / plan.slots;
           ++chunk) {
        add_images(plan, context.input(0).as<const T>(), context.input(1).as<const T>(),
                   geometry.batch * chunk / plan.chunks, geometry.batch * (chunk + 1) / plan.chunks,
                   reinterpret_cast<C*>(partials + chunk * plan.partial_bytes), reinterpret_cast<C*>(own),
                   reinterpret_cast<C*>(own + plan.x_bytes));
      }
    }
  });
  add_partials(plan, partials, dweight);
}
template void run_conv2d_direct_weight<float>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_direct_weight<double>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_direct_weight<float16>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_direct_weight<bfloat16>(const KernelContext&, const Conv2dGeometry&);

}  // namespace sinter::ops
