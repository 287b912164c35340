// How the gradient of an embedding is cut into tasks once the look-ups are sorted by the row that they read.
// Host code without devices, so that a unit test can use it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// A row's look-ups lie side by side in the sorted list. A row of at most kChunk is added by one task, which
/// also writes the zeros of a row without any. The look-ups of longer rows are added in chunks, the list cut
/// at multiples of kChunk, and their sums are added once more. A chunk meets at most two long rows: that of
/// its first look-up (slot 2 * chunk) and, if that is another, that of its last (slot 2 * chunk + 1).
struct EmbeddingGradPlan {
  static constexpr int64_t kChunk = 64;
  static constexpr int64_t kMostAcross = 32;  // threads of a task
  static constexpr int64_t kMostCount = INT32_MAX;
  static constexpr int64_t kMostRows = (int64_t{1} << 32) - 2;

  int64_t count = 0;    ///< look-ups
  int64_t rows = 0;     ///< of the table
  int64_t columns = 0;  ///< of the table
  int64_t pack = 1;     ///< elements of an access, which divides `columns`
  int64_t across = 1;   ///< threads of a task, a pack of columns each: a power of two
  int64_t tiles = 0;    ///< tasks side by side
  int64_t chunks = 0;

  static bool takes(int64_t count, int64_t rows, int64_t columns) {
    return count > 0 && rows > 0 && columns > 0 && count <= kMostCount && rows <= kMostRows;
  }

  EmbeddingGradPlan(int64_t lookups, int64_t table_rows, int64_t table_columns, int64_t elements)
      : count(lookups), rows(table_rows), columns(table_columns), pack(elements) {
    const int64_t packs = columns / pack;
    across = std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(packs))), kMostAcross);
    tiles = (packs + across - 1) / across;
    chunks = (count + kChunk - 1) / kChunk;
  }

  /// Keys are rows, and `rows` for an index out of range.
  int key_bits() const { return static_cast<int>(std::bit_width(static_cast<uint64_t>(rows))); }
  /// Tasks of whole rows come first, then those of chunks.
  int64_t row_tasks() const { return rows * tiles; }
  int64_t tasks() const { return row_tasks() + chunks * tiles; }
  int64_t slots() const { return 2 * chunks; }
};

/// The look-ups in the order of their keys: those of row r are [starts[r], starts[r + 1]).
struct SortedLookups {
  const uint32_t* keys = nullptr;
  const uint32_t* starts = nullptr;  ///< `rows` + 1
  int64_t count = 0, rows = 0;

  SINTER_HOST_DEVICE int64_t begin_of(int64_t row) const { return starts[row]; }
  SINTER_HOST_DEVICE int64_t end_of(int64_t row) const { return starts[row + 1]; }
  SINTER_HOST_DEVICE bool is_long(int64_t row) const {
    return end_of(row) - begin_of(row) > EmbeddingGradPlan::kChunk;
  }
  SINTER_HOST_DEVICE int64_t chunk_end(int64_t chunk) const {
    const int64_t end = (chunk + 1) * EmbeddingGradPlan::kChunk;
    return end < count ? end : count;
  }
};

/// The look-ups [first, end) of a chunk, which belong to one long row, and the slot of their sum.
struct ChunkShare {
  int64_t first = 0, end = 0, slot = 0;
};

/// What a chunk adds for the long row of its first look-up, or nothing (end = first).
SINTER_HOST_DEVICE inline ChunkShare first_share(const SortedLookups& lookups, int64_t chunk) {
  const int64_t first = chunk * EmbeddingGradPlan::kChunk, row = lookups.keys[first];
  if (row >= lookups.rows || !lookups.is_long(row)) return {};
  const int64_t row_end = lookups.end_of(row), chunk_end = lookups.chunk_end(chunk);
  return {first, row_end < chunk_end ? row_end : chunk_end, 2 * chunk};
}

/// What it adds for the long row of its last look-up, if that is another one.
SINTER_HOST_DEVICE inline ChunkShare last_share(const SortedLookups& lookups, int64_t chunk) {
  const int64_t first = chunk * EmbeddingGradPlan::kChunk, end = lookups.chunk_end(chunk);
  const int64_t row = lookups.keys[end - 1];
  if (row >= lookups.rows || lookups.keys[first] == row || !lookups.is_long(row)) return {};
  return {lookups.begin_of(row), end, 2 * chunk + 1};
}

/// A long row whose look-ups begin in a chunk; there is at most one. Its sums are in the slots slot(0), ...,
/// slot(`parts` - 1).
struct LongRow {
  int64_t row = 0, chunk = 0, parts = 0;
  bool inside = false;  ///< whether it begins behind the chunk's first look-up

  SINTER_HOST_DEVICE int64_t slot(int64_t part) const {
    return 2 * (chunk + part) + (part == 0 && inside ? 1 : 0);
  }
};

/// `parts` is 0 if none begins there.
SINTER_HOST_DEVICE inline LongRow long_row_from(const SortedLookups& lookups, int64_t chunk) {
  const int64_t first = chunk * EmbeddingGradPlan::kChunk;
  const int64_t row = lookups.keys[lookups.chunk_end(chunk) - 1];
  if (row >= lookups.rows || lookups.begin_of(row) < first || !lookups.is_long(row)) return {};
  const int64_t last = (lookups.end_of(row) - 1) / EmbeddingGradPlan::kChunk;
  return {row, chunk, last - chunk + 1, lookups.begin_of(row) > first};
}

/// Where the arrays of a call lie in its scratch, in bytes from the beginning; each begins at a multiple of
/// 256.
struct EmbeddingGradScratch {
  size_t keys = 0, positions = 0, sorted_keys = 0, sorted_positions = 0, starts = 0, sums = 0, sort = 0,
         bytes = 0;

  EmbeddingGradScratch(const EmbeddingGradPlan& plan, size_t sum_bytes, size_t sort_bytes) {
    const auto take = [this](size_t wanted) {
      const size_t begin = bytes;
      bytes += (wanted + 255) / 256 * 256;
      return begin;
    };
    const size_t words = static_cast<size_t>(plan.count) * sizeof(uint32_t);
    keys = take(words);
    positions = take(words);
    sorted_keys = take(words);
    sorted_positions = take(words);
    starts = take(static_cast<size_t>(plan.rows + 1) * sizeof(uint32_t));
    sums = take(static_cast<size_t>(plan.slots() * plan.columns) * sum_bytes);
    sort = take(sort_bytes);
  }
};

}  // namespace sinter::ops
