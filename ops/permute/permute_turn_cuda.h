// How a block turns a tile of bytes in shared memory. A load for every byte of the output would take
// longer than memory does, so that blocks of 4 x 4 bytes change places in registers: words along rows of the
// image become words along columns, of which packs are then read at any alignment. See permute_tiles_cuda.h.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/in_register.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace detail {

/// A pack as words: of its elements compilers make loads and stores of their own.
struct alignas(16) PackWords {
  uint32_t at[4];
};

template <class T>
SINTER_HOST_DEVICE inline Pack<T> pack_of(const PackWords& words) {
  Pack<T> pack;
  memcpy(&pack, &words, sizeof(pack));
  return pack;
}

/// Words of four neighbouring rows become words of four neighbouring columns.
SINTER_HOST_DEVICE inline void turn_block(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t left = pick_bytes(rows[0], rows[1], 0x5140), right = pick_bytes(rows[0], rows[1], 0x7362),
                 next_left = pick_bytes(rows[2], rows[3], 0x5140),
                 next_right = pick_bytes(rows[2], rows[3], 0x7362);
  columns[0] = pick_bytes(left, next_left, 0x5410);
  columns[1] = pick_bytes(left, next_left, 0x7632);
  columns[2] = pick_bytes(right, next_right, 0x5410);
  columns[3] = pick_bytes(right, next_right, 0x7632);
}

/// What a thread turns of a tile: this pack of rows and word of columns, and those that many further on.
struct TurnLane {
  int pack, word, pack_step, word_step;

  SINTER_HOST_DEVICE TurnLane(const TileJob& job, int thread, int threads)
      : pack((thread & ((1 << job.log_turn) - 1)) | thread >> (job.log_turn + job.log_words) << job.log_turn),
        word(thread >> job.log_turn & ((1 << job.log_words) - 1)),
        pack_step(threads >> job.log_words),
        word_step(1 << job.log_words) {}
};

/// Turns a thread's blocks. kWords: rows begin at words of the image.
template <class T, TileKind kKind, bool kWords>
SINTER_HOST_DEVICE inline void turn_packs(const TileJob& job, const Tile& tile, int thread,
                                          const TileMemory& memory) {
  static_assert(sizeof(T) == 1);
  constexpr int n = Pack<T>::kSize, kBlock = 4;
  const int rows = smaller(tile.rows, job.rows_loaded), columns = smaller(tile.columns, job.column_step);
  const int base = image_base<T>(job, tile);
  const TurnLane lane(job, thread, 1 << log_threads(kKind));
  const int to_step = cuda::in_register(job.turned_place(lane.word_step * kBlock));
  SINTER_KEEP_LOOP
  for (int pack = lane.pack; pack * n < rows; pack += lane.pack_step) {
    int places[size_t{n}], bits[size_t{n}];
    const int first = job.place(pack * n, base);
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) {
      const int place = first + j * job.pitch;  // behind the last row too, whose bytes no one stores
      places[j] = cuda::in_register((kWords ? place : place & ~3) + lane.word * 4);
      bits[j] = kWords ? 0 : cuda::in_register((place & 3) * 8);
    }
    const std::byte* from = memory.image;
    std::byte* to = memory.turned + job.turned_place(lane.word * kBlock) + pack * 16;
    SINTER_KEEP_LOOP
    for (int word = lane.word; word * kBlock < columns; word += lane.word_step) {
      PackWords turned[size_t{kBlock}];
      SINTER_UNROLL
      for (int w = 0; w < 4; ++w) {
        uint32_t in_rows[size_t{kBlock}], in_columns[size_t{kBlock}];
        SINTER_UNROLL
        for (int j = 0; j < kBlock; ++j) {
          const int at = places[w * kBlock + j];
          in_rows[j] = image_element<uint32_t>(from, at);
          if constexpr (!kWords) {
            in_rows[j] = shift_right(in_rows[j], image_element<uint32_t>(from, at + 4), bits[w * kBlock + j]);
          }
        }
        turn_block(in_rows, in_columns);
        SINTER_UNROLL
        for (int j = 0; j < kBlock; ++j) turned[j].at[w] = in_columns[j];
      }
      SINTER_UNROLL
      for (int j = 0; j < kBlock; ++j) *reinterpret_cast<PackWords*>(to + j * job.turned_pitch) = turned[j];
      from += lane.word_step * 4;
      to += to_step;
    }
  }
}

/// How a pack that begins at some byte is read: by double words, out of which it is shifted.
struct TurnedRead {
  int place;  ///< of the first double word
  bool is_high;
  int bits;

  SINTER_HOST_DEVICE explicit TurnedRead(int at)
      : place(at & ~7), is_high((at & 4) != 0), bits((at & 3) * 8) {}

  /// Reads up to 8 bytes behind the pack.
  SINTER_HOST_DEVICE void read(const std::byte* turned, uint32_t* words) const {
    struct alignas(8) Double {
      uint32_t low, high;
    };
    uint32_t all[6];
    SINTER_UNROLL
    for (int i = 0; i < 3; ++i) {
      const auto two = *reinterpret_cast<const Double*>(turned + place + 8 * i);
      all[2 * i] = two.low;
      all[2 * i + 1] = two.high;
    }
    SINTER_UNROLL
    for (int i = 0; i < 5; ++i) all[i] = is_high ? all[i + 1] : all[i];
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = shift_right(all[i], all[i + 1], bits);
  }
  template <class T>
  SINTER_HOST_DEVICE Pack<T> pack(const std::byte* turned) const {
    PackWords words;
    read(turned, words.at);
    return pack_of<T>(words);
  }
  /// The same if it begins at a multiple of 16 bytes.
  template <class T>
  SINTER_HOST_DEVICE Pack<T> whole_pack(const std::byte* turned) const {
    return pack_of<T>(*reinterpret_cast<const PackWords*>(turned + place));
  }
};

/// Bytes of a column from `here` on, the first ones, and of the next one from `beyond` on, the others.
template <class T>
SINTER_HOST_DEVICE inline Pack<T> turned_pack_of_two(const std::byte* turned, int here, int beyond,
                                                     int bytes) {
  PackWords words, others;
  TurnedRead(here).read(turned, words.at);
  TurnedRead(beyond).read(turned, others.at);
  SINTER_UNROLL
  for (int w = 0; w < 4; ++w) {
    const int own = bytes - 4 * w;
    const uint32_t mask = own >= 4 ? UINT32_MAX : own <= 0 ? 0 : (1u << (8 * own)) - 1;
    words.at[w] = (words.at[w] & mask) | (others.at[w] & ~mask);
  }
  return pack_of<T>(words);
}

}  // namespace detail

/// Turns a thread's part of a tile once all threads have loaded theirs; a barrier follows.
template <class T, TileKind kKind>
SINTER_HOST_DEVICE inline void turn_tile(const TileJob& job, const Tile& tile, int thread,
                                         const TileMemory& memory) {
  if (job.word_rows) {
    detail::turn_packs<T, kKind, true>(job, tile, thread, memory);
  } else {
    detail::turn_packs<T, kKind, false>(job, tile, thread, memory);
  }
}

}  // namespace sinter::ops
