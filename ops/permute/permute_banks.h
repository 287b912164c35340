// How a tile lies in shared memory, so that few lanes meet in a bank: host logic of the tiles whose lanes
// walk along the output.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops::tiling {

/// Between packs of rows that lie so far apart.
inline int skip_of(int pitch, int log_pack) {
  return (16 - (pitch << log_pack)) & 127;
}

struct BankLayout {
  int pitch = 0, skip = 0;
};

/// Wavefronts in which a warp reads the first elements of its packs: lanes wait for each other that read
/// different words of a bank. Columns of `rows` follow each other in the output; behind
/// `columns` of these come those of the next matrix, whose rows follow.
inline int count_wavefronts(const BankLayout& layout, int log_pack, int element_bytes, int rows,
                            int columns) {
  std::array<int, 32> words, counts{};
  words.fill(-1);
  for (int lane = 0; lane < 32; ++lane) {
    const int index = lane << log_pack;
    const int column = index / rows, row = index % rows + column / columns * rows;
    const int word =
        (row * layout.pitch + (row >> log_pack) * layout.skip + column % columns * element_bytes) / 4;
    const auto bank = static_cast<size_t>(word % 32);
    if (words[bank] != word) ++counts[bank];
    words[bank] = word;
  }
  return *std::max_element(counts.begin(), counts.end());
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
    const int meeting = count_wavefronts(layout, job.log_pack, element_bytes, rows, columns);
    if (meeting >= fewest) continue;
    fewest = meeting;
    job.pitch = pitch;
  }
  job.skip = skip_of(job.pitch, job.log_pack);
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
