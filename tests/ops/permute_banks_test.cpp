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

/// Of small matrices a thread's packs repeat, so that they are one piece in both tensors; rows of others skip
/// banks.
TEST(PermuteBanksTest, MatricesOfFewPacksAreWhole) {
  const auto is_whole = [](int64_t rows, int64_t columns, auto zero) {
    const TileJob job = plan_of<decltype(zero)>({5000, rows, columns}, {0, 2, 1});
    EXPECT_EQ(job.piece && job.skip == 0, job.kind == TileKind::kWholeColumns) << rows << " x " << columns;
    return job.kind == TileKind::kWholeColumns;
  };
  EXPECT_TRUE(is_whole(16, 16, uint32_t{}));
  EXPECT_TRUE(is_whole(3, 5, uint32_t{}));
  EXPECT_TRUE(is_whole(12, 24, uint16_t{}));
  EXPECT_TRUE(is_whole(13, 16, uint8_t{}));
  EXPECT_FALSE(is_whole(205, 16, uint16_t{}));
  EXPECT_FALSE(is_whole(128, 32, uint16_t{}));
  EXPECT_FALSE(is_whole(272, 16, uint8_t{}));
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

}  // namespace
}  // namespace sinter::ops
