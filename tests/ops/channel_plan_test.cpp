// How the GPU cuts tensors into blocks: every element is in exactly one, and tables stay small.
#include <algorithm>

#include <gtest/gtest.h>

#include <sinter/ops/pool/channels/channel_plan.h>

namespace sinter::ops {
namespace {

constexpr int64_t kExtents[] = {1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 256, 1000, 2048, 50000};

TEST(ChannelPlan, RowsCoverAllChannels) {
  for (const int64_t channels : kExtents) {
    for (const int64_t pack : {1, 2, 4, 8}) {
      if (channels % pack != 0) continue;
      for (const int64_t rows : kExtents) {
        const ChannelPlan plan = plan_channel_rows(3, rows, channels, pack);
        EXPECT_EQ(plan.sums, 3 * channels);
        EXPECT_EQ(plan.items, rows);
        EXPECT_EQ(plan.columns * plan.lanes(), ChannelPlan::kThreads);
        EXPECT_EQ(plan.lanes() & (plan.lanes() - 1), 0) << "halving needs a power of two";
        EXPECT_GE(plan.tiles * plan.columns * pack, channels);
        EXPECT_LT((plan.tiles - 1) * plan.columns * pack, channels) << "a block without channels";
        EXPECT_GE(plan.parts, 1);
        EXPECT_LE(plan.parts, rows) << "a part without rows";
        EXPECT_LE(plan.parts * plan.tiles * 3, std::max<int64_t>(1024, plan.tiles * 3));
      }
    }
  }
}

TEST(ChannelPlan, RunsCoverAllPacks) {
  for (const int64_t channels : kExtents) {
    for (const int64_t inner : kExtents) {
      for (const int64_t pack : {1, 4}) {
        if (inner % pack != 0) continue;
        const ChannelPlan plan = plan_channel_runs(5, channels, inner, pack);
        EXPECT_EQ(plan.sums, channels);
        EXPECT_EQ(plan.tiles, channels);
        EXPECT_EQ(plan.items * plan.per_item, 5 * inner);
        EXPECT_GE(plan.parts, 1);
        EXPECT_LE(plan.parts, plan.items) << "a part without packs";
        EXPECT_LE(plan.parts * channels, std::max<int64_t>(1024, channels));
      }
    }
  }
}

TEST(ChannelPlan, EmptyTensorsHaveNoParts) {
  EXPECT_EQ(plan_channel_rows(1, 0, 4, 1).parts, 0);
  EXPECT_EQ(plan_channel_rows(1, 9, 0, 4).parts, 0);
  EXPECT_EQ(plan_channel_rows(0, 9, 4, 4).parts, 0);
  EXPECT_EQ(plan_channel_runs(0, 4, 9, 1).parts, 0);
  EXPECT_EQ(plan_channel_runs(3, 0, 9, 1).parts, 0);
  EXPECT_EQ(plan_channel_runs(3, 4, 0, 1).table_bytes(2), 0u);
}

TEST(ChannelPlan, TablesHoldEveryPart) {
  const ChannelPlan plan = plan_channel_rows(1, 100000, 64, 4);
  EXPECT_GT(plan.parts, 100);
  EXPECT_EQ(plan.table_bytes(2), static_cast<size_t>(plan.parts) * 64 * 2 * sizeof(double));
}

}  // namespace
}  // namespace sinter::ops
