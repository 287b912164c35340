// Which tiles permutations are cut into, where nothing has to move to see it.
#include "ops/permute_tile_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/permute/permute_woven_cuda.h>

namespace sinter::ops {
namespace {

TEST(PermuteTilePlanTest, GiveEveryBlockSomethingToWaitFor) {
  const auto bytes_of = [](const std::vector<int64_t>& extents, const std::vector<int>& axes, int size) {
    const PermutePlan plan = plan_permute(Shape(extents), axes);
    const TileJob job = plan_tiles(plan, size, 0, 0);
    const std::optional<WovenJob> woven = choose_woven(plan, job, size, 0, 0);
    return size * (woven ? int64_t{woven->rows.step} * woven->columns.step
                         : std::min<int64_t>(job.row_step, job.row_count) * job.column_step);
  };
  // Small matrices, next to each other or not, and sides that take in more axes than fill sectors.
  EXPECT_GE(bytes_of({31, 320, 31, 7, 4}, {2, 1, 0, 4, 3}, 2), 8192);
  EXPECT_GE(bytes_of({25, 32, 192, 12, 11}, {1, 0, 2, 4, 3}, 4), 8192);
  EXPECT_GE(bytes_of({41, 1737, 127, 8}, {1, 0, 3, 2}, 2), 8192);
  EXPECT_GE(bytes_of({112640, 277, 16}, {0, 2, 1}, 1), 4096);  // a whole matrix
  EXPECT_GE(bytes_of({24, 2275, 22, 8}, {3, 1, 0, 2}, 8), 8192);
  EXPECT_GE(bytes_of({16242, 11, 19, 27}, {1, 3, 0, 2}, 2), 8192);
  EXPECT_GE(bytes_of({64, 712, 32, 8}, {1, 3, 0, 2}, 4), 8192);
}

TEST(PermuteTilePlanTest, FitIntoSharedMemoryWhateverTheShape) {
  const auto bytes = [](const std::vector<int64_t>& extents, const std::vector<int>& axes, int size) {
    const PermutePlan plan = plan_permute(Shape(extents), axes);
    if (plan.is_copy()) return int64_t{0};
    const std::optional<WovenJob> woven = plan_woven(plan, size, 0, 0);
    const int64_t tiles = plan.keeps_last() ? 0 : TileMemory::bytes(plan_tiles(plan, size, 0, 0));
    return std::max(tiles, woven ? woven->shared_bytes() : 0);
  };
  constexpr int64_t kMost = 96 << 10;
  EXPECT_LE(bytes({184, 779, 14, 11}, {3, 1, 0, 2}, 1), kMost);  // few columns, in memory 32 bytes each
  EXPECT_LE(bytes({496, 273, 39, 6, 15}, {1, 4, 2, 0, 3}, 1), kMost);
  Generator generator(12);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(generator.below(static_cast<size_t>(bound)));
  };
  for (int i = 0; i < 20000; ++i) {
    std::vector<int64_t> extents(2 + generator.below(4));
    int64_t count = 1;
    for (int64_t& extent : extents) {
      const int64_t bounds[] = {16, 300, 700, 5000};
      extent = 1 + below(bounds[below(4)]);
      if (count * extent > int64_t{1} << 32) extent = 1 + below(4);
      count *= extent;
    }
    std::vector<int> axes(extents.size());
    std::iota(axes.begin(), axes.end(), 0);
    for (size_t j = axes.size(); j > 1; --j) std::swap(axes[j - 1], axes[generator.below(j)]);
    for (const int size : {1, 2, 4, 8}) {
      ASSERT_LE(bytes(extents, axes, size), kMost)
          << to_string(Shape(extents)) << " by " << fmt::format("{}", fmt::join(axes, ",")) << " of " << size;
    }
  }
}

TEST(PermuteTilePlanTest, TallMatricesHaveTheirColumnsFirst) {
  const TileJob job = plan_of<uint8_t>({262144, 1637}, {1, 0});
  const auto tiles_along = [](int64_t count, int step) { return (count + step - 1) / step; };
  const int64_t row_tiles = tiles_along(job.row_count, job.row_step),
                column_tiles = tiles_along(job.column_count, job.column_step);
  ASSERT_GT(row_tiles, 4 * job.group_rows);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t i = 0; i < job.matrix_tiles; ++i) {
    const Tile tile = job.tile(static_cast<uint32_t>(i), 0);
    if (tile.rows <= 0) continue;
    EXPECT_TRUE(seen.emplace(tile.row, tile.column).second);
    const int64_t group =
        i / (job.group_rows * column_tiles);  // which no tile leaves before all columns are done
    EXPECT_EQ(tile.row / job.row_step / job.group_rows, group);
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), row_tiles * column_tiles);
  EXPECT_EQ(plan_of<uint32_t>({8192, 8192}, {1, 0}).group_rows, 128);  // many columns: all rows first
}

TEST(PermuteTilePlanTest, HoldOfAColumnWhatItsLanesTake) {
  for (const std::vector<int64_t>& extents :
       std::vector<std::vector<int64_t>>{{207880, 426}, {364110, 687}, {111289, 1020}, {4097, 8191}}) {
    const TileJob job = plan_of<uint16_t>(extents, {1, 0});
    EXPECT_EQ(job.kind, TileKind::kShiftedColumns);
    EXPECT_EQ(job.row_step % (16 * Pack<uint16_t>::kSize), 0) << job.row_step;
  }
}

TEST(PermuteTilePlanTest, OddMatricesAreTakenWholeWhereAThreadHasFewPacks) {
  const auto is_woven = [](const std::vector<int64_t>& extents, int size) {
    const PermutePlan plan = plan_permute(Shape(extents), std::vector<int>{0, 2, 1});
    return choose_woven(plan, plan_tiles(plan, size, 0, 0), size, 0, 0).has_value();
  };
  EXPECT_EQ(plan_of<uint32_t>({512, 43, 13}, {0, 2, 1}).kind, TileKind::kWholeColumns);
  EXPECT_EQ(plan_of<uint16_t>({512, 37, 23}, {0, 2, 1}).kind, TileKind::kWholeColumns);
  EXPECT_FALSE(is_woven({512, 43, 13}, 4));
  EXPECT_TRUE(is_woven({16384, 43, 13}, 4));  // a tile holds many matrices, whose patterns would not repeat
  EXPECT_TRUE(is_woven({512, 49, 32}, 2));    // lanes would meet in banks
}

TEST(PermuteTilePlanTest, OddRunsTakeInTheNextAxis) {
  EXPECT_EQ(plan_of<uint16_t>({120, 85, 47, 64}, {3, 0, 2, 1}).row_count, 85 * 47);
  EXPECT_EQ(plan_of<uint16_t>({120, 88, 47, 64}, {3, 0, 2, 1}).row_count, 88);  // whole packs
}

}  // namespace
}  // namespace sinter::ops
