// The innermost kernel of direct convolution: a tile of neighbouring target pixels x one or two vectors of
// target channels, in registers. Per filter tap and source channel it loads the channels' weights once, and
// for each pixel multiplies them by one source value, broadcast from memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <sinter/ops/common/cpu/vector_cpu.h>

namespace sinter::ops {

/// Most pixels in a tile, by vectors; leaves registers for the weights.
inline constexpr std::array<int, 2> kMostTilePixels =
    kVectorRegisters == 32 ? std::array{16, 12} : std::array{12, 6};

/// Tiles of several images read and write at distances source_image and target_image; all distances are in
/// elements.
template <class C>
struct DirectTile {
  const C* source;  // first pixel's first channel
  int64_t source_image;
  const int64_t* steps;  // to each tap of each channel block
  int64_t step_count;
  int64_t channels;  // of a block
  const C* weight;   // [step][channel][vectors * lanes]
  const C* initial;  // [vectors * lanes]; null: go on from the target
  C* target;
  int64_t target_pixel, target_image;
};

namespace detail {

/// Tiles of so many pixels or fewer take several images at once.
inline constexpr int kShortTilePixels = 4;

template <class C, int vectors, int pixels, int images>
void run_direct_tile(const DirectTile<C>& tile) {
  constexpr int lanes = kLanes<C>;
  Vector<C> sums[size_t{vectors}][size_t{images}][size_t{pixels}];
#pragma GCC unroll 32
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 32
    for (int i = 0; i < images; ++i) {
#pragma GCC unroll 32
      for (int p = 0; p < pixels; ++p) {
        const C* from = tile.initial != nullptr ? tile.initial
                                                : tile.target + i * tile.target_image + p * tile.target_pixel;
        sums[v][i][p] = load_vector(from + v * lanes);
      }
    }
  }
  const C* weight = tile.weight;
  for (int64_t step = 0; step < tile.step_count; ++step) {
    const C* source = tile.source + tile.steps[step];
    for (int64_t c = 0; c < tile.channels; ++c, ++source, weight += vectors * lanes) {
      Vector<C> factors[size_t{vectors}];
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) factors[v] = load_vector(weight + v * lanes);
#pragma GCC unroll 32
      for (int i = 0; i < images; ++i) {
#pragma GCC unroll 32
        for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 32
          for (int v = 0; v < vectors; ++v) {
            sums[v][i][p] =
                multiply_add(source[i * tile.source_image + p * lanes], factors[v], sums[v][i][p]);
          }
        }
      }
    }
  }
#pragma GCC unroll 32
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 32
    for (int i = 0; i < images; ++i) {
#pragma GCC unroll 32
      for (int p = 0; p < pixels; ++p) {
        store_vector(tile.target + i * tile.target_image + p * tile.target_pixel + v * lanes, sums[v][i][p]);
      }
    }
  }
}

template <class C>
using DirectTileFunction = void (*)(const DirectTile<C>&);

/// Images in a short tile: as many as keep about as many sums in registers as a long tile has.
constexpr int short_images(int pixels) {
  return (kVectorRegisters == 32 ? 8 : 4) / (pixels <= 2 ? 2 : 4);
}

/// Kernels for tiles of 1, 2, ... pixels of one image, and for short ones of short_images(pixels) images.
template <class C, int vectors, int... pixel>
constexpr auto long_tiles(std::integer_sequence<int, pixel...>) {
  return std::array<DirectTileFunction<C>, sizeof...(pixel)>{run_direct_tile<C, vectors, pixel + 1, 1>...};
}
template <class C, int vectors, int... pixel>
constexpr auto short_tiles(std::integer_sequence<int, pixel...>) {
  return std::array<DirectTileFunction<C>, sizeof...(pixel)>{
      run_direct_tile<C, vectors, pixel + 1, short_images(pixel + 1)>...};
}
template <class C, int vectors>
constexpr auto kLongTiles =
    long_tiles<C, vectors>(std::make_integer_sequence<int, kMostTilePixels[vectors - 1]>());
template <class C, int vectors>
constexpr auto kShortTiles = short_tiles<C, vectors>(std::make_integer_sequence<int, kShortTilePixels>());

}  // namespace detail

/// Runs one tile of one image.
template <class C>
void run_direct_tile(const DirectTile<C>& tile, int64_t vectors, int64_t pixels) {
  const auto index = static_cast<size_t>(pixels - 1);
  (vectors == 1 ? detail::kLongTiles<C, 1>[index] : detail::kLongTiles<C, 2>[index])(tile);
}

/// Runs one tile of each of `images` images.
template <class C>
void run_direct_tiles(DirectTile<C> tile, int64_t vectors, int64_t pixels, int64_t images) {
  const auto index = static_cast<size_t>(pixels - 1);
  int64_t image = 0;
  const auto run = [&](detail::DirectTileFunction<C> function, int64_t count) {
    for (; images - image >= count; image += count) {
      function(tile);
      tile.source += count * tile.source_image;
      tile.target += count * tile.target_image;
    }
  };
  if (pixels <= detail::kShortTilePixels && images > 1) {
    run(vectors == 1 ? detail::kShortTiles<C, 1>[index] : detail::kShortTiles<C, 2>[index],
        detail::short_images(static_cast<int>(pixels)));
  }
  run(vectors == 1 ? detail::kLongTiles<C, 1>[index] : detail::kLongTiles<C, 2>[index], 1);
}

}  // namespace sinter::ops
