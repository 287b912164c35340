// Transposing small tensors by a kernel of few instructions: which, and what a thread does.
//
// Of a tensor of a few MiB all of a GPU's processors hold their share at once, and a good part of the time
// goes by until the kernel's code and parameters have come out of memory. So there are square tiles of 32
// units of 4 bytes (of longer elements: of one), for which a thread computes two addresses and takes constant
// steps. Everything runs on the host too, where the tests execute the kernel.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include <sinter/core/base/host_device.h>
#include <sinter/ops/permute/permute_packs_cuda.h>

namespace sinter::ops {

/// Up to this size a tensor is transposed so; larger ones gain more by longer runs and by fewer instructions.
constexpr int64_t kMostPlainBytes = 8 << 20;
/// Unless less than so much of the tiles at a matrix's ends belongs to it, in percent.
constexpr int64_t kLeastPlainShare = 70;

constexpr int kPlainThreads = 256;

/// `batch` matrices of rows x columns in the input. Wide: short elements go by units of 4 bytes, else one by
/// one.
struct PlainJob {
  int batch = 0, rows = 0, columns = 0;
  bool wide = false;
};

/// A tile's measures for elements of so many bytes.
template <int kBytes>
struct PlainTileOf {
  static constexpr int kUnit = kBytes < 4 ? 4 / kBytes : 1;  ///< elements
  static constexpr int kSide = 32 * kUnit;
  static constexpr int kRounds = kSide * 32 / kPlainThreads;  ///< of rows that a thread loads
  static constexpr int kStep = kPlainThreads / 32;            ///< rows from one of them to the next
  static constexpr int kPitch =
      kSide * kBytes + kUnit * kBytes;  ///< of the image: a unit more than a row has
};
template <class T>
using PlainTile = PlainTileOf<static_cast<int>(sizeof(T))>;

/// Of `batch` matrices of rows x columns; nothing where other tiles are better, nor for elements of a byte or
/// more than 8.
inline std::optional<PlainJob> choose_plain(int64_t batch, int64_t rows, int64_t columns, int element_bytes,
                                            uintptr_t input, uintptr_t output) {
  if (element_bytes == 1 || element_bytes > 8) return std::nullopt;
  const int64_t most = kMostPlainBytes / element_bytes;
  if (rows > most || columns > most || batch > most / rows / columns) return std::nullopt;
  const int unit = element_bytes < 4 ? 4 / element_bytes : 1, side = 32 * unit;
  const auto tiles = [&](int64_t count) { return (count + side - 1) / side; };
  constexpr int64_t kMostGrid = 65535;
  if (batch > kMostGrid || tiles(columns) > kMostGrid) return std::nullopt;
  if (100 * rows * columns < kLeastPlainShare * tiles(rows) * side * tiles(columns) * side)
    return std::nullopt;
  const bool wide = unit > 1 && rows % unit == 0 && columns % unit == 0 && (input | output) % 4 == 0;
  return PlainJob{static_cast<int>(batch), static_cast<int>(rows), static_cast<int>(columns), wide};
}

/// Where the image has a row: one of each unit of rows in every 32, so that lanes that read units of rows
/// find them in different banks.
template <class T, bool kWide>
SINTER_HOST_DEVICE constexpr int plain_row(int row) {
  constexpr int kUnit = PlainTile<T>::kUnit;
  return (kWide ? row % kUnit * 32 + row / kUnit : row) * PlainTile<T>::kPitch;
}

/// A thread's part of the tile that begins at this row and column of a matrix.
template <class T, bool kWide>
SINTER_HOST_DEVICE inline void load_plain(const T* in, int rows, int columns, int first_row, int first_column,
                                          int matrix, int thread, std::byte* image) {
  using Measures = PlainTile<T>;
  using Value = std::conditional_t<kWide, uint32_t, T>;
  constexpr int kElements = kWide ? Measures::kUnit : 1, kRuns = Measures::kUnit / kElements;
  const int lane = thread % 32, own = thread / 32, column = first_column + lane * kElements;
  const T* from = in + (matrix * rows + first_row + own) * columns + column;
  const int left = rows - first_row - own;
  Value values[size_t{Measures::kRounds}][size_t{kRuns}] = {};
  SINTER_UNROLL
  for (int i = 0; i < Measures::kRounds; ++i) {
    SINTER_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      if (i * Measures::kStep < left && column + run * 32 < columns) {
        values[i][run] = *reinterpret_cast<const Value*>(from + run * 32);
      }
    }
    from += Measures::kStep * columns;
  }
  SINTER_UNROLL
  for (int i = 0; i < Measures::kRounds; ++i) {
    SINTER_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      std::byte* const to = image + plain_row<T, kWide>(own + i * Measures::kStep);
      reinterpret_cast<Value*>(to)[run * 32 + lane] = values[i][run];
    }
  }
}

/// The same of the output, once all threads have loaded theirs.
template <class T, bool kWide>
SINTER_HOST_DEVICE inline void store_plain(T* out, int rows, int columns, int first_row, int first_column,
                                           int matrix, int thread, const std::byte* image) {
  using Measures = PlainTile<T>;
  constexpr int kElements = kWide ? Measures::kUnit : 1, kRuns = Measures::kUnit / kElements;
  const int lane = thread % 32, own = thread / 32, row = first_row + lane * kElements;
  T* to = out + (matrix * columns + first_column + own) * rows + row;
  const int left = columns - first_column - own;
  const std::byte* from = image + plain_row<T, kWide>(lane * kElements) + own * static_cast<int>(sizeof(T));
  SINTER_UNROLL_4
  for (int i = 0; i < Measures::kRounds; ++i) {
    SINTER_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      if (i * Measures::kStep >= left || row + run * 32 >= rows) continue;
      const auto read = [&](int j) {
        constexpr int kFar =
            32 * Measures::kPitch;  // to the next row of a unit, or to the run that many rows on
        return *reinterpret_cast<const T*>(from + (run + j) * kFar);
      };
      if constexpr (kWide) {
        uint32_t unit = read(0);
        SINTER_UNROLL
        for (int j = 1; j < kElements; ++j)
          unit |= static_cast<uint32_t>(read(j)) << (j * 8 * static_cast<int>(sizeof(T)));
        *reinterpret_cast<uint32_t*>(to) = unit;
      } else {
        to[run * 32] = read(0);
      }
    }
    to += Measures::kStep * rows;
    from += Measures::kStep * static_cast<int>(sizeof(T));
  }
}

}  // namespace sinter::ops
