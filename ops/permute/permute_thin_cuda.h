// Transposing matrices that have few rows or few columns, or are small altogether: the short side is taken
// whole, so that at least one side of a tile is a single piece of memory, which moves as it is between its
// tensor and an image of it in shared memory.
#pragma once

#include <sinter/ops/permute/permute_packs_cuda.h>
#include <sinter/ops/permute/permute_plan.h>

namespace sinter::ops {

/// Which side is short.
enum class ThinSide : uint8_t {
  kRows,     ///< the input is few long runs, the output one piece: (3, 50176) to (50176, 3)
  kColumns,  ///< the other way round
  kBoth,     ///< whole matrices move: both are one piece
};

// The image skips 16 bytes after every 128: elements a multiple of 128 bytes apart are in different banks.
// One pack more than a tile holds, since the image begins where its tensor's packs do.
inline constexpr int kThinPacks = kTilePacks + 1 + (kTilePacks + 1) / 8 + 1;

/// `thin` runs of `length` elements each, `stride` apart, against one piece in which the runs alternate; or,
/// for kBoth, matrices of `matrix_rows` x `thin` that follow each other, of `length` rows in all.
struct ThinJob {
  ThinSide side = ThinSide::kRows;
  int thin = 1, matrix_rows = 1;
  int64_t length = 0, stride = 0;
  OuterAxes outer;
  cuda::WideDivide length_tiles;
  int64_t tiles = 0;
  int step = 0;    ///< along the runs, from tile to tile
  int loaded = 0;  ///< along the runs, what a tile loads: more than `step` if runs are stored unaligned
  cuda::FastDivide run_packs;                 ///< packs of a run in a tile
  cuda::FastDivide divide_thin, divide_rows;  ///< by `thin` and `matrix_rows`
  PackSpace input, output;
};

/// True if a matrix has a side so short that thin tiles move it, and the job; see plan_tiles.
bool plan_thin(const PermutePlan& plan, int element_bytes, uintptr_t input, uintptr_t output, ThinJob& job);

/// One tile: offsets of its first element in both tensors, its first place along the runs, and how many
/// places there are from there on.
struct ThinTile {
  int64_t in = 0, out = 0, begin = 0;
  int count = 0;
};

template <ThinSide kSide>
SINTER_HOST_DEVICE inline ThinTile thin_tile(const ThinJob& job, int64_t task) {
  ThinTile tile;
  int64_t at = 0;
  task = job.length_tiles.divide(task, at);
  tile.begin = at * job.step;
  tile.count = limited(job.length - tile.begin);
  job.outer.locate(task, tile.in, tile.out);
  tile.in += tile.begin * (kSide == ThinSide::kRows ? 1 : job.thin);
  tile.out += tile.begin * (kSide == ThinSide::kColumns ? 1 : job.thin);
  return tile;
}

namespace detail {

/// Where the image holds byte `byte`.
SINTER_HOST_DEVICE inline int image_place(int byte) {
  return byte + ((byte >> 7) << 4);
}

template <class T>
SINTER_HOST_DEVICE inline T& image_element(std::byte* image, int index) {
  return *reinterpret_cast<T*>(image + image_place(index * static_cast<int>(sizeof(T))));
}

template <class T>
SINTER_HOST_DEVICE inline const T& image_element(const std::byte* image, int index) {
  return *reinterpret_cast<const T*>(image + image_place(index * static_cast<int>(sizeof(T))));
}

/// The lanes of a warp take the elements of a pack in different orders, so that they meet different banks:
/// element j of a pack that turn() has turned is element turned(j) of the pack before.
template <class T>
struct Turn {
  static constexpr int kUnit = sizeof(T) < 4 ? 4 : static_cast<int>(sizeof(T));  // bytes that stay together
  static constexpr int kUnits = 16 / kUnit, kElements = kUnit / static_cast<int>(sizeof(T));
  int by;

  SINTER_HOST_DEVICE explicit Turn(int thread) : by((thread >> 3) & (kUnits - 1)) {}
  SINTER_HOST_DEVICE int turned(int j) const {
    return ((j / kElements + by) & (kUnits - 1)) * kElements + j % kElements;
  }
  SINTER_HOST_DEVICE Pack<T> turn(const Pack<T>& pack) const { return rotate_words(pack, by * (kUnit / 4)); }
  SINTER_HOST_DEVICE Pack<T> turn_back(const Pack<T>& pack) const {
    return rotate_words(pack, -by * (kUnit / 4));
  }
};

/// `count` elements from `start` on become the image, which begins with the pack that holds the first.
template <class T>
SINTER_HOST_DEVICE inline void load_piece(const PackSpace& space, int64_t start, int count, int thread,
                                          const T* in, std::byte* image) {
  constexpr int n = Pack<T>::kSize, kItems = kTilePacks / kTileThreads;
  const int phase = space.behind<T>(start), end = count + phase;
  start -= phase;
  Pack<T> packs[size_t{kItems}];
  SINTER_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const int first = (thread + i * kTileThreads) * n;
    if (first < end && space.holds<T>(start + first)) packs[i] = load_pack(in + start + first);
  }
  SINTER_UNROLL
  for (int i = 0; i <= kItems; ++i) {  // there may be one pack more than the tile holds
    const int first = (thread + i * kTileThreads) * n;
    if (first >= end) return;
    if (i < kItems && space.holds<T>(start + first)) {
      *reinterpret_cast<Pack<T>*>(image + image_place(first * static_cast<int>(sizeof(T)))) =
          packs[i % kItems];
    } else {
      SINTER_UNROLL
      for (int j = 0; j < n; ++j) {
        if (first + j >= phase && first + j < end) image_element<T>(image, first + j) = in[start + first + j];
      }
    }
  }
}

/// The image's elements become `count` elements of the output from `start` on.
template <class T>
SINTER_HOST_DEVICE inline void store_piece(const PackSpace& space, int64_t start, int count, int thread,
                                           const std::byte* image, T* out) {
  constexpr int n = Pack<T>::kSize;
  const int phase = space.behind<T>(start);
  for (int first = thread * n; first < count + phase; first += kTileThreads * n) {
    const auto pack =
        *reinterpret_cast<const Pack<T>*>(image + image_place(first * static_cast<int>(sizeof(T))));
    T* to = out + (start - phase) + first;
    if (first >= phase && first + n <= count + phase) {
      stream_pack(to, pack);
    } else {
      store_some(to, pack, phase - first, count + phase - first);
    }
  }
}

/// Few long runs, scattered over an image of the output.
template <class T>
SINTER_HOST_DEVICE inline void load_runs(const ThinJob& job, const ThinTile& tile, int thread, const T* in,
                                         std::byte* image) {
  constexpr int n = Pack<T>::kSize, kItems = 2;
  const int phase = job.output.behind<T>(tile.out);
  const auto packs = static_cast<int>(job.run_packs.divisor());
  const Turn<T> turn(thread);
  for (int base = thread; base < packs * job.thin; base += kItems * kTileThreads) {
    Pack<T> low[size_t{kItems}], high[size_t{kItems}];
    int64_t starts[size_t{kItems}];
    int runs[size_t{kItems}], firsts[size_t{kItems}];
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {
      uint32_t pack = 0;
      runs[i] = static_cast<int>(job.run_packs.divide(static_cast<uint32_t>(base + i * kTileThreads), pack));
      firsts[i] = runs[i] < job.thin ? static_cast<int>(pack) * n : tile.count;
      starts[i] = tile.in + runs[i] * job.stride + firsts[i];
      if (firsts[i] >= tile.count || !job.input.holds<T>(starts[i])) continue;
      const int shift = job.input.behind<T>(starts[i]);
      low[i] = load_pack(in + starts[i] - shift);
      if (shift != 0) high[i] = load_pack(in + starts[i] + (n - shift));
    }
    SINTER_UNROLL
    for (int i = 0; i < kItems; ++i) {
      int index = phase + firsts[i] * job.thin + runs[i];
      if (firsts[i] >= tile.count) continue;
      if (!job.input.holds<T>(starts[i])) {  // the ends of the tensor
        for (int j = firsts[i]; j < tile.count && j < firsts[i] + n; ++j) {
          image_element<T>(image, index) = in[starts[i] + (j - firsts[i])];
          index += job.thin;
        }
        continue;
      }
      const int shift = job.input.behind<T>(starts[i]);
      if (shift != 0) low[i] = cut(low[i], high[i], shift);
      SINTER_UNROLL
      for (int j = 0; j < n;
           ++j) {  // beyond the run's end too: there the image has room, and nothing reads it
        image_element<T>(image, index) = low[i].at[j];
        index += job.thin;
      }
    }
  }
}

/// The image of the input, collected to few long runs.
template <class T>
SINTER_HOST_DEVICE inline void store_runs(const ThinJob& job, const ThinTile& tile, int thread,
                                          const std::byte* image, T* out) {
  constexpr int n = Pack<T>::kSize;
  const int phase = job.input.behind<T>(tile.in);
  const auto packs = static_cast<int>(job.run_packs.divisor());
  const Turn<T> turn(thread);
  for (int item = thread; item < packs * job.thin; item += kTileThreads) {
    uint32_t pack = 0;
    const auto run = static_cast<int>(job.run_packs.divide(static_cast<uint32_t>(item), pack));
    const int64_t start = tile.out + run * job.stride;
    // Every aligned pack is stored by the tile in whose first `step` places it begins; the elements before a
    // run's first aligned pack go with it.
    const int shift = job.output.ahead<T>(start), first = static_cast<int>(pack) * n + shift;
    int index = phase + run;
    if (pack == 0 && tile.begin == 0) {
      for (int j = 0; j < shift && j < tile.count; ++j) {
        out[start + j] = image_element<T>(image, index + j * job.thin);
      }
    }
    if (first >= tile.count) continue;
    index += first * job.thin;
    Pack<T> value;
    // Beyond the run's end too: what is read there is not stored.
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) {
      value.at[j] = image_element<T>(image, index + turn.turned(j) * job.thin);
    }
    value = turn.turn_back(value);
    if (first + n <= tile.count) {
      store_pack(out + start + first, value);
    } else {
      store_some(out + start + first, value, 0, tile.count - first);
    }
  }
}

/// The image of whole matrices, stored as one piece: element i of it is found by walking rows and columns.
template <class T>
SINTER_HOST_DEVICE inline void store_matrices(const ThinJob& job, const ThinTile& tile, int thread,
                                              const std::byte* image, T* out) {
  constexpr int n = Pack<T>::kSize;
  const int phase_in = job.input.behind<T>(tile.in), phase = job.output.behind<T>(tile.out);
  const int count = smaller(tile.count, job.step) * job.thin;
  for (int first = thread * n - phase; first < count; first += kTileThreads * n) {
    uint32_t row = 0, column = 0;
    uint32_t rest = job.divide_rows.divide(static_cast<uint32_t>(first < 0 ? 0 : first), row);
    rest = job.divide_thin.divide(rest, column);
    int matrix = phase_in + static_cast<int>(rest) * job.matrix_rows * job.thin;
    int index = matrix + static_cast<int>(row) * job.thin + static_cast<int>(column);
    Pack<T> pack;
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) {
      if (first + j < 0 || first + j >= count) continue;
      pack.at[j] = image_element<T>(image, index);
      index += job.thin;
      if (++row < job.divide_rows.divisor()) continue;
      row = 0;
      if (++column == job.divide_thin.divisor()) {
        column = 0;
        matrix += job.matrix_rows * job.thin;
      }
      index = matrix + static_cast<int>(column);
    }
    if (first >= 0 && first + n <= count) {
      store_pack(out + tile.out + first, pack);
    } else {
      store_some(out + tile.out + first, pack, -first, count - first);
    }
  }
}

}  // namespace detail

/// Puts a thread's part of a tile into shared memory, which holds kThinPacks packs.
template <class T, ThinSide kSide>
SINTER_HOST_DEVICE inline void load_thin(const ThinJob& job, const ThinTile& tile, int thread, const T* in,
                                         std::byte* image) {
  if constexpr (kSide == ThinSide::kRows) {
    detail::load_runs(job, tile, thread, in, image);
  } else {
    detail::load_piece(job.input, tile.in, smaller(tile.count, job.loaded) * job.thin, thread, in, image);
  }
}

/// Stores a thread's part of a tile once all threads have loaded theirs.
template <class T, ThinSide kSide>
SINTER_HOST_DEVICE inline void store_thin(const ThinJob& job, const ThinTile& tile, int thread,
                                          const std::byte* image, T* out) {
  if constexpr (kSide == ThinSide::kRows) {
    detail::store_piece(job.output, tile.out, smaller(tile.count, job.step) * job.thin, thread, image, out);
  } else if constexpr (kSide == ThinSide::kColumns) {
    detail::store_runs(job, tile, thread, image, out);
  } else {
    detail::store_matrices(job, tile, thread, image, out);
  }
}

}  // namespace sinter::ops
