// How a tile lies in shared memory, so that few lanes meet in a bank: host logic of the tiles whose lanes
// walk along the output.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops::tiling {

// What it counts as, in wavefronts of two warps, that a thread looks for the places of each of its packs.
constexpr int kPlacesWavefronts = 4;

/// Between packs of rows that lie so far apart.
inline int skip_of(int pitch, int log_pack) {
  return (16 - (pitch << log_pack)) & 127;
}

struct BankLayout {
  int pitch = 0, skip = 0;
  bool apart = false;  ///< TileJob::lanes_apart
};

/// Wavefronts in which a block's first warps read the first elements of their packs: lanes wait for each
/// other that read different words of a bank. Columns of `rows` follow each other in the output; behind
/// `columns` of these come those of the next matrix, whose rows follow.
inline int count_wavefronts(const BankLayout& layout, int log_pack, int element_bytes, int rows, int columns,
                            int warps) {
  int wavefronts = 0;
  for (int warp = 0; warp < warps; ++warp) {
    std::array<int, 32> words, counts{};
    words.fill(-1);
    for (int lane = 0; lane < 32; ++lane) {
      const int thread = 32 * warp + lane;
      const int index = (layout.apart ? apart_thread(thread) : thread) << log_pack;
      const int column = index / rows, row = index % rows + column / columns * rows;
      const int word =
          (row * layout.pitch + (row >> log_pack) * layout.skip + column % columns * element_bytes) / 4;
      const auto bank = static_cast<size_t>(word % 32);
      if (words[bank] != word) ++counts[bank];
      words[bank] = word;
    }
    wavefronts += *std::max_element(counts.begin(), counts.end());
  }
  return wavefronts;
}

/// Where lanes walk through few rows, or matrices of few, at least job.pitch apart: the pitch at which fewest
/// of them meet, of those that cost up to `most_bytes`.
inline void spread_rows(TileJob& job, int element_bytes, int64_t most_bytes) {
  const int least_pitch = job.pitch, rows = static_cast<int>(job.inner.divisor()),
            columns = static_cast<int>(std::min<uint32_t>(job.middle.divisor(), INT32_MAX));
  int fewest = INT32_MAX;
  for (int pitch = least_pitch; pitch < least_pitch + 128; pitch += 16) {
    if (job.row_step * (pitch - least_pitch) > most_bytes) break;
    const BankLayout layout{pitch, skip_of(pitch, job.log_pack)};
    const int meeting = count_wavefronts(layout, job.log_pack, element_bytes, rows, columns, 1);
    if (meeting >= fewest) continue;
    fewest = meeting;
    job.pitch = pitch;
  }
  job.skip = skip_of(job.pitch, job.log_pack);
}

/// In matrices that follow each other in both tensors: whether each pack of rows skips 16 bytes, which makes
/// the way to the next one an odd number of them, and whether lanes of a warp take packs apart.
inline void spread_matrices(TileJob& job, int element_bytes, int rows, int columns) {
  const int pitch = columns * element_bytes, skip = columns % 2 == 0 ? 16 : 0, pack = 1 << job.log_pack;
  // The rows from one pack of a thread to the next where that is a constant: only if those are packs of rows
  // too, it stays one in spite of a skip.
  const int walked = job.walk_columns != 0 ? rows : job.place_step / pitch;
  const bool loses = walked % pack != 0;
  int fewest = INT32_MAX;
  for (const BankLayout& layout : {BankLayout{pitch, 0}, BankLayout{pitch, 0, true}, BankLayout{pitch, skip},
                                   BankLayout{pitch, skip, true}}) {
    const int meeting = count_wavefronts(layout, job.log_pack, element_bytes, rows, columns, 2) +
                        (loses && layout.skip != 0 ? kPlacesWavefronts : 0);
    if (meeting >= fewest) continue;
    fewest = meeting;
    job.skip = layout.skip;
    job.lanes_apart = layout.apart;
  }
  if (job.skip != 0 || job.lanes_apart) job.kind = TileKind::kSpreadMatrices;
  if (job.skip == 0) return;
  const int skipped = walked / pack * job.skip;
  if (loses) {
    job.pack_step = 1 << log_threads(job.kind);
    job.place_step = job.walk_columns = job.wrap_step = 0;
  } else if (job.walk_columns != 0) {
    job.wrap_step += skipped;
  } else if (job.place_step != 0) {
    job.place_step += skipped;
  }
}

/// Whole packs of rows for which a block has memory: of few columns, tables and what pads their rows count
/// more than these.
inline int64_t most_rows_in_memory(const TileJob& job) {
  constexpr int64_t kMostMemory = 81920;  // about, of a block
  const int64_t table = job.kind == TileKind::kSeveralAxes ? 13 : 0,
                row_bytes = job.pitch + (job.skip >> job.log_pack) + table;
  return kMostMemory / row_bytes >> job.log_pack << job.log_pack;
}

}  // namespace sinter::ops::tiling
