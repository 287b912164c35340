// How the tiles of a permutation lie in shared memory, so that few lanes meet in a bank.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/permute/permute_store_cuda.h>

#include "ops/permute_tile_plan.h"

namespace sinter::ops {
namespace {

TEST(PermuteBanksTest, SmallMatricesLieInDifferentBanks) {
  const auto waves = [](int64_t rows, int64_t columns, auto zero) {
    const int size = static_cast<int>(sizeof(zero)), pack = 16 / size;
    const TileJob job = plan_of<decltype(zero)>({5000, rows, columns}, {0, 2, 1});
    EXPECT_EQ(job.kind, TileKind::kSpreadMatrices);
    int total = 0;
    for (int warp = 0; warp < 4; ++warp) {
      std::map<int, std::set<int>> words;  // by bank, of the first elements of a warp's packs
      for (int thread = 32 * warp; thread < 32 * warp + 32; ++thread) {
        const int index = (job.lanes_apart ? apart_thread(thread) : thread) * pack;
        if (index >= job.row_step * columns) continue;
        const detail::PieceWalk<TileKind::kSpreadMatrices> at(job, index, 0);
        const int word = (job.place(at.row, 0) + at.column * size) / 4;
        words[word % 32].insert(word);
      }
      size_t most = 0;
      for (const auto& [bank, meeting] : words) most = std::max(most, meeting.size());
      total += static_cast<int>(most);
    }
    return total;
  };
  EXPECT_LE(waves(205, 16, uint16_t{}), 16);  // all lanes of a column, without a skip
  EXPECT_LE(waves(74, 16, uint16_t{}), 16);
  EXPECT_LE(waves(128, 32, uint16_t{}), 16);
  EXPECT_LE(waves(512, 8, uint8_t{}), 8);
  EXPECT_LE(waves(128, 16, uint32_t{}), 8);
  EXPECT_LE(waves(64, 12, uint64_t{}), 16);
  std::set<int> threads;
  for (int thread = 0; thread < 128; ++thread) threads.insert(apart_thread(thread));
  EXPECT_EQ(threads.size(), 128u);
  EXPECT_EQ(*threads.rbegin(), 127);
}

TEST(PermuteBanksTest, FewLongRowsLieInDifferentBanks) {
  const TileJob job = plan_of<uint8_t>({1659, 11, 10561}, {0, 2, 1});
  ASSERT_EQ(job.kind, TileKind::kWholeColumns);
  std::map<int, std::set<int>> words;  // by bank, of the first elements of a warp's packs
  for (int index = 0; index < 512; index += 16) {
    const int place = job.place(index % 11, 0) + index / 11;
    words[place / 4 % 32].insert(place / 4);
  }
  for (const auto& [bank, meeting] : words) EXPECT_LE(meeting.size(), 2u) << "bank " << bank;
}

TEST(PermuteBanksTest, ThinRowsWhoseLanesWouldMeetAreNoPiece) {
  EXPECT_TRUE(plan_of<uint8_t>({2048, 1627, 58}, {0, 2, 1}).piece);
  EXPECT_FALSE(plan_of<uint8_t>({2048, 1627, 56}, {0, 2, 1}).piece);
}

/// What skips banks is copied pack of rows by pack of rows, which takes longer than lanes of such matrices
/// would wait for each other.
TEST(PermuteBanksTest, SmallerMatricesAreCopiedInOnePiece) {
  for (const TileJob& job :
       {plan_of<uint16_t>({20000, 7, 24}, {0, 2, 1}), plan_of<uint16_t>({8192, 12, 24}, {0, 2, 1}),
        plan_of<uint8_t>({40000, 13, 16}, {0, 2, 1}), plan_of<uint32_t>({30000, 5, 12}, {0, 2, 1})}) {
    EXPECT_EQ(job.kind, TileKind::kWholeColumns);
    EXPECT_TRUE(job.piece && job.skip == 0);
    EXPECT_EQ(job.log_band, log_threads(job.kind) - 1) << "few threads copy";
  }
}

}  // namespace
}  // namespace sinter::ops
