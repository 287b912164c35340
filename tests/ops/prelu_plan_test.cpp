// How PReLU's kernels cut tensors: every element once, each with its own channel's slope and sum.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/prelu/prelu_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using testing_plans::integer;

constexpr int kCases = 100000;

/// Mostly small extents, now and then none or a few hundred.
ChannelView random_view(Generator& generator) {
  const auto extent = [&](int64_t most) {
    return generator.uniform() < 0.02 ? 0
                                      : integer(generator, 1, generator.uniform() < 0.1 ? most * 8 : most);
  };
  return {extent(9), extent(9), generator.uniform() < 0.3 ? 1 : extent(20)};
}

int64_t channel_of(const ChannelView& view, int64_t element) {
  return element / view.inner % view.channels;
}

std::string text(const ChannelView& view) {
  return "(" + std::to_string(view.outer) + ", " + std::to_string(view.channels) + ", " +
         std::to_string(view.inner) + ")";
}

TEST(PReluPlan, SlabsAreTheTensorAndKeepItsChannels) {
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view = random_view(generator);
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    const int64_t most = pack * integer(generator, 1, 60);
    SCOPED_TRACE(text(view) + " most " + std::to_string(most) + " pack " + std::to_string(pack));
    int64_t next = 0;
    for_each_slab(view, most, pack, [&](const ChannelSlab& slab) {
      ASSERT_EQ(slab.first, next);
      ASSERT_GT(slab.view.numel(), 0);
      ASSERT_LE(slab.view.numel(), most);
      for (int64_t e = 0; e < slab.view.numel(); ++e) {
        ASSERT_EQ(slab.channel + channel_of(slab.view, e), channel_of(view, slab.first + e))
            << "element " << e;
      }
      next += slab.view.numel();
    });
    ASSERT_EQ(next, view.numel());
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PReluPlan, GiantTensorsAreCutAtPacks) {
  constexpr int64_t kMost = int64_t{1} << 30;
  for (const ChannelView& view :
       {ChannelView{1 << 20, 64, 49}, ChannelView{3, 1 << 21, 1000},
        ChannelView{2, 3, (int64_t{1} << 32) + 5}, ChannelView{1, 1, (int64_t{1} << 31) + 1}}) {
    int64_t next = 0, slabs = 0;
    for_each_slab(view, kMost, 8, [&](const ChannelSlab& slab) {
      EXPECT_EQ(slab.first, next);
      EXPECT_LE(slab.view.numel(), kMost);
      EXPECT_EQ(slab.channel, view.inner > kMost || slab.view.outer == 1 ? channel_of(view, slab.first) : 0);
      if (view.inner <= kMost) {
        EXPECT_EQ(slab.first % 8, 0);
      }
      next += slab.view.numel();
      ++slabs;
    });
    EXPECT_EQ(next, view.numel());
    EXPECT_LE(slabs, 2 * view.numel() / kMost + 6) << text(view);
  }
}

TEST(PReluPlan, OrdersOfSlopesHoldWhatTheyPromise) {
  Generator generator(2);
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view = random_view(generator);
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    const SlopeOrder order = slope_order(view, pack);
    for (int64_t first = 0; first + pack <= view.numel(); first += pack) {
      const int64_t channel = channel_of(view, first);
      int changes = 0;
      for (int64_t e = first + 1; e < first + pack; ++e) {
        changes += channel_of(view, e) != channel_of(view, e - 1) ? 1 : 0;
        if (order == SlopeOrder::kVectors) {
          ASSERT_EQ(channel_of(view, e), channel + e - first) << text(view);
        }
      }
      ASSERT_LE(changes, order == SlopeOrder::kRuns ? 1 : pack) << text(view) << " at " << first;
      ASSERT_TRUE(order != SlopeOrder::kVectors || channel % pack == 0) << text(view);
    }
  }
}

/// Walks a tensor as the kernels do, with `values` in place of the terms, and gives the sum of every channel.
std::vector<int64_t> sums_by_plan(const PReluGradPlan& plan, const std::vector<int64_t>& values,
                                  std::vector<int>& visits) {
  const int64_t tile = plan.tile_elements(), row = plan.columns * plan.pack;
  std::vector<int64_t> table(static_cast<size_t>(plan.table_size()), -1);
  const auto visit = [&](int64_t element) {
    ++visits[static_cast<size_t>(element)];
    return values[static_cast<size_t>(element)];
  };
  for (int64_t part = 0; part < plan.parts; ++part) {
    for (int64_t t = 0; t < plan.tiles; ++t) {
      const int64_t first_run = t * tile / plan.inner;
      int64_t* slots = table.data() + (part * plan.tiles + t) * plan.slots;
      for (int64_t x = 0; x < plan.width && t * plan.width + x < plan.columns; ++x) {
        const int64_t column = t * plan.width + x;
        for (int64_t i = 0; i < plan.pack; ++i) {
          const int64_t run = (column * plan.pack + i) / plan.inner - first_run;
          EXPECT_LT(run, plan.slots);
          int64_t sum = 0;
          for (int64_t lane = 0; lane < plan.lanes; ++lane) {
            for (int64_t r = plan.first_row(part) + lane; r < plan.end_row(part, column); r += plan.lanes) {
              sum += visit(r * row + column * plan.pack + i);
            }
          }
          if (part == 0 && i < plan.elements_behind(column)) {
            sum += visit(plan.rows * row + column * plan.pack + i);
          }
          slots[run] = (slots[run] == -1 ? 0 : slots[run]) + sum;
        }
      }
    }
  }
  std::vector<int64_t> sums(static_cast<size_t>(plan.channels));
  for (int64_t run = 0; run < plan.runs; ++run) {
    for (int64_t t = run * plan.inner / tile; t <= ((run + 1) * plan.inner - 1) / tile; ++t) {
      for (int64_t part = 0; part < plan.parts; ++part) {
        const int64_t slot = run - t * tile / plan.inner;
        const int64_t value = table[static_cast<size_t>((part * plan.tiles + t) * plan.slots + slot)];
        EXPECT_NE(value, -1) << "a place that no block wrote";
        sums[static_cast<size_t>(run % plan.channels)] += value;
      }
    }
  }
  return sums;
}

/// Fails unless a plan for `view` visits every element once and adds up every channel.
void expect_sums_of_plan(Generator& generator, const ChannelView& view, const PReluGradPlan& plan) {
  std::vector<int64_t> values(static_cast<size_t>(view.numel())),
      expected(static_cast<size_t>(view.channels));
  for (int64_t e = 0; e < view.numel(); ++e) {
    values[static_cast<size_t>(e)] = integer(generator, 0, 1000);
    expected[static_cast<size_t>(channel_of(view, e))] += values[static_cast<size_t>(e)];
  }
  std::vector<int> visits(values.size());
  ASSERT_EQ(sums_by_plan(plan, values, visits), expected);
  ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
}

TEST(PReluPlan, GradientsVisitEveryElementAndSumEveryChannel) {
  Generator generator(3);
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view = random_view(generator);
    if (view.numel() > 20000) continue;
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    const PReluGradPlan plan = plan_prelu_grad(view, pack);
    if (view.numel() == 0) {
      ASSERT_EQ(plan.parts, 0);
      ASSERT_EQ(plan.table_size(), 0);
      continue;
    }
    expect_sums_of_plan(generator, view, plan);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PReluPlan, LongTilesVisitEveryElementAndSumEveryChannel) {
  Generator generator(8);
  const auto check = [&](const ChannelView& view, int64_t pack) {
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    const PReluGradPlan plan = plan_prelu_grad(view, pack);
    ASSERT_GT(plan.width, 16);
    expect_sums_of_plan(generator, view, plan);
  };
  check({20003, 216, 1}, 8);
  check({60 * 8 * 1001 + 5, 17, 1}, 8);
  check({30001, 194, 1}, 8);
  check({2003, 1163, 1}, 4);
  check({9001, 104, 1}, 2);
}

TEST(PReluPlan, GridsAndScratchStayWithinTheirLimits) {
  Generator generator(4);
  const auto extent = [&] {
    return static_cast<int64_t>(
        std::exp2(generator.uniform() * static_cast<double>(integer(generator, 1, 13))));
  };
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view{extent(), extent(), generator.uniform() < 0.3 ? 1 : extent()};
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    const PReluGradPlan plan = plan_prelu_grad(view, pack);
    ASSERT_GE(plan.width * plan.lanes, 1);
    ASSERT_LE(plan.width * plan.lanes, PReluGradPlan::kThreads);
    ASSERT_LE(plan.tile_elements(), PReluGradPlan::kThreads) << "a thread writes one sum at most";
    ASSERT_GE(plan.tiles * plan.width, plan.columns);
    ASSERT_LT((plan.tiles - 1) * plan.width, plan.columns) << "a block without columns";
    ASSERT_GE(plan.parts, 1);
    ASSERT_LT(plan.first_row(plan.parts - 1), plan.all_rows()) << "a part without rows";
    ASSERT_LE(plan.parts, 65535);
    ASSERT_LT(plan.tiles, int64_t{1} << 31);
    // A table of the blocks that run at once, or of a few places for every channel and 16 rows.
    ASSERT_LE(plan.table_size(),
              std::max<int64_t>(600 * 1024, plan.tiles * plan.slots * (plan.all_rows() / 16 + 1)));
  }
}

TEST(PReluPlan, TheSecondKernelHasThreadsForEveryChannel) {
  Generator generator(6);
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view = random_view(generator);
    if (view.numel() == 0) continue;
    const PReluGradPlan plan = plan_prelu_grad(view, int64_t{1} << integer(generator, 0, 3));
    const PReluGradFold fold = plan_prelu_grad_fold(plan);
    SCOPED_TRACE(text(view) + " pack " + std::to_string(plan.pack));
    ASSERT_TRUE(std::has_single_bit(fold.side) && std::has_single_bit(fold.lanes));
    ASSERT_LE(fold.side, PReluGradFold::kMostSide);
    ASSERT_LE(fold.side * fold.lanes, PReluGradFold::kMostThreads);
    ASSERT_LT(fold.side, 2 * plan.channels) << "threads without a channel";
    ASSERT_LT(fold.lanes, 2 * plan.table_size()) << "threads without a place";
    if (plan.inner == 1) {  // the tiles' places follow each other as the elements of a row do
      ASSERT_EQ(plan.slots, plan.tile_elements());
      ASSERT_GE(plan.tiles * plan.slots, plan.columns * plan.pack);
    }
  }
}

/// Walks a tensor as the kernel of planes does.
void visit_planes(const PReluPlanesPlan& plan, const ChannelView& view, std::vector<int>& visits) {
  for (int64_t channel = 0; channel < plan.channels; ++channel) {
    for (int64_t part = 0; part < plan.parts; ++part) {
      const int64_t begin = part * plan.part_items, end = std::min(begin + plan.part_items, plan.items);
      ASSERT_LT(begin, end) << "a block without packs";
      for (int64_t item = begin; item < end; ++item) {
        const PReluPlanePack at = plan.pack_at(item / plan.span, channel, item % plan.span);
        ASSERT_TRUE(0 <= at.begin && at.begin <= at.end && at.end <= plan.pack);
        ASSERT_EQ(at.first % plan.pack, 0);
        for (int64_t e = at.first + at.begin; e < at.first + at.end; ++e) {
          ASSERT_TRUE(e >= 0 && e < view.numel()) << e;
          ASSERT_EQ(channel_of(view, e), channel);
          ++visits[static_cast<size_t>(e)];
        }
      }
    }
  }
}

TEST(PReluPlan, PlanesAreVisitedOnceByBlocksOfTheirChannel) {
  Generator generator(7);
  int taken = 0;
  for (int i = 0; i < kCases / 10; ++i) {
    const int64_t element_bytes = int64_t{2} << integer(generator, 0, 2);
    const int64_t pack = generator.uniform() < 0.3 ? 1 : 16 / element_bytes;
    const ChannelView view{integer(generator, 1, generator.uniform() < 0.1 ? 200 : 5),
                           integer(generator, 1, generator.uniform() < 0.1 ? 400 : 7),
                           integer(generator, 1, generator.uniform() < 0.2 ? 5000 : 500)};
    if (view.numel() > 50000) continue;
    const PReluPlanesPlan plan = plan_prelu_planes(view, pack, element_bytes);
    if (plan.parts == 0) continue;
    ++taken;
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    ASSERT_TRUE(plan.threads % 32 == 0 && plan.threads > 0 && plan.threads <= PReluPlanesPlan::kMostThreads);
    std::vector<int> visits(static_cast<size_t>(view.numel()));
    visit_planes(plan, view, visits);
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(taken, kCases / 40);
}

TEST(PReluPlan, PlanesOfAnySizeFillTheGpuWithinItsLimits) {
  EXPECT_GE(plan_prelu_planes({1, 97, 797 * 797}, 4, 4).parts, 2);
  EXPECT_GE(plan_prelu_planes({48, 4, 641 * 128}, 4, 4).parts, 64);
  EXPECT_EQ(plan_prelu_planes({1, 100000, 272}, 4, 4).parts, 1);
  EXPECT_LE(plan_prelu_planes({1, 100000, 272}, 4, 4).threads, 32);
  Generator generator(8);
  const auto extent = [&](int64_t most_bits) {
    return static_cast<int64_t>(
        std::exp2(generator.uniform() * static_cast<double>(integer(generator, 1, most_bits))));
  };
  for (int i = 0; i < kCases; ++i) {
    const int64_t element_bytes = int64_t{2} << integer(generator, 0, 2);
    const int64_t pack = generator.uniform() < 0.3 ? 1 : 16 / element_bytes;
    const ChannelView view{extent(12), extent(16), extent(32)};
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    const PReluPlanesPlan plan = plan_prelu_planes(view, pack, element_bytes);
    if (plan.parts == 0) continue;
    ASSERT_LE(plan.items, int64_t{1} << 30);
    ASSERT_LE(plan.parts * plan.channels, INT32_MAX);
    ASSERT_EQ(plan.part_items % 32, 0);
    ASSERT_TRUE((plan.parts - 1) * plan.part_items < plan.items);
    ASSERT_GE(plan.parts * plan.part_items, plan.items);
    ASSERT_LE(plan.part_items / plan.threads, 2048) << "sums too long for their accuracy";
    // The farthest plane's end is within its packs.
    const int64_t last = plan.outer - 1, end = view.numel();
    const PReluPlanePack tail = plan.pack_at(last, plan.channels - 1, plan.span - 1);
    ASSERT_GE(tail.first + plan.pack, end);
  }
}

TEST(PReluPlan, FewRowsHaveWideTilesAndNoIdleThreads) {
  for (const ChannelView& view :
       {ChannelView{2, 40001, 9}, ChannelView{3, 100003, 1}, ChannelView{1, 9001, 5}}) {
    for (const int64_t pack : {1, 2, 4, 8}) {
      const PReluGradPlan plan = plan_prelu_grad(view, pack);
      EXPECT_GE(plan.width * plan.lanes, 48) << text(view) << " pack " << pack;
      EXPECT_LT(plan.threads(), plan.width * plan.lanes + 32) << text(view) << " pack " << pack;
    }
  }
}

TEST(PReluPlan, TilesAreLongWhereRowsAreNoWholeLines) {
  const auto width_of = [](int64_t rows, int64_t channels, int64_t pack) {
    return plan_prelu_grad({rows, channels, 1}, pack).width;
  };
  EXPECT_EQ(width_of(1183744, 216, 8), 27);
  EXPECT_EQ(width_of(456704, 17, 8), 17);
  EXPECT_EQ(width_of(506527, 194, 8), 49);
  EXPECT_EQ(width_of(55016, 1163, 4), 117);
  EXPECT_EQ(width_of(131072, 104, 2), 52);
  EXPECT_EQ(width_of(131072, 256, 8), 16) << "rows are whole lines";
  EXPECT_LE(width_of(1000, 216, 8), 16) << "too few rows for so many sums";
  EXPECT_EQ(plan_prelu_grad({1183744, 216, 1}, 8).lanes, 18) << "whole sectors at a time";
  EXPECT_EQ(plan_prelu_grad({3803136, 136, 1}, 8).lanes, 30);
}

TEST(PReluPlan, PartsFillTheWavesOfBlocks) {
  EXPECT_LE(plan_prelu_grad({833224, 67, 1}, 4).tiles * plan_prelu_grad({833224, 67, 1}, 4).parts, 264);
  EXPECT_EQ(plan_prelu_parts(1, 10000, 264, 1), 264);
  EXPECT_EQ(plan_prelu_parts(5, 6510, 264, 1), 52);
  EXPECT_EQ(plan_prelu_parts(1000000, 1, 264, 1), 1);
  EXPECT_EQ(plan_prelu_parts(1, 3, 264, 1), 3);
  EXPECT_EQ(plan_prelu_parts(264, 2000, 264, 4), 4);
}

TEST(PReluPlan, ClustersHaveSeveralBlocksWhereChannelsAreFew) {
  // The shapes with which the GPU's test covers this.
  EXPECT_EQ(plan_prelu_clusters({16, 8, 64 * 64}, 4).cluster, 8);
  EXPECT_EQ(plan_prelu_clusters({16, 8, 64 * 64}, 4).lanes, 0);
  const PReluClusterPlan several = plan_prelu_clusters({64, 256, 49}, 8);
  EXPECT_EQ(several.cluster, 4);
  EXPECT_EQ(several.group_channels, 8);
  EXPECT_GT(several.lanes, 1);
  // Channels in many waves have only the threads that they need; with fixed columns always whole rows of
  // them.
  EXPECT_EQ(plan_prelu_clusters({1, 1000, 272}, 4).threads, 32);
  EXPECT_EQ(plan_prelu_clusters({1, 8000, 49}, 8).lanes, 1);
}

TEST(PReluPlan, ClustersVisitEveryPackAndSumEveryChannel) {
  Generator generator(5);
  int taken = 0;
  for (int i = 0; i < kCases; ++i) {
    const int64_t pack = int64_t{1} << integer(generator, 1, 3);
    const ChannelView view{integer(generator, 1, 20), integer(generator, 1, 512), integer(generator, 1, 400)};
    const PReluClusterPlan plan = plan_prelu_clusters(view, pack);
    if (plan.groups == 0) continue;
    ++taken;
    SCOPED_TRACE(text(view) + " pack " + std::to_string(pack));
    ASSERT_EQ(plan.rows * plan.columns * pack, view.numel());
    ASSERT_EQ(plan.groups * plan.span, plan.columns);
    ASSERT_EQ(plan.groups * plan.group_channels, view.channels);
    ASSERT_EQ(plan.span * pack, plan.group_channels * view.inner);
    ASSERT_TRUE(plan.cluster >= 1 && plan.cluster <= PReluClusterPlan::kMostCluster);
    ASSERT_TRUE(plan.threads % 32 == 0 && plan.threads <= PReluClusterPlan::kMostThreads) << plan.threads;
    ASSERT_LE(plan.group_channels, PReluClusterPlan::kMostChannels);
    if (plan.lanes == 0) {
      ASSERT_EQ(plan.group_channels, 1);
      continue;
    }
    ASSERT_LE(plan.lanes * plan.span, plan.threads);
    ASSERT_TRUE(plan.log_across >= 0 && plan.log_across <= plan.log_members && plan.log_members <= 5);
    ASSERT_TRUE(plan.log_members == 0 || plan.group_channels << plan.log_members <= plan.threads);
    // Every column's sums are taken once as the first, or as the second, of a channel's.
    std::vector<int> firsts(static_cast<size_t>(plan.span)), seconds(firsts.size());
    for (int64_t c = 0; c < plan.group_channels; ++c) {
      const PReluChannelColumns columns(static_cast<int>(c), static_cast<int>(view.inner),
                                        static_cast<int>(pack));
      for (int k = columns.low; k <= columns.high; ++k) {
        ++(k == columns.low && columns.begins_within ? seconds : firsts)[static_cast<size_t>(k)];
      }
    }
    for (int64_t k = 0; k < plan.span; ++k) {
      const int64_t first = k * pack / view.inner, last = (k * pack + pack - 1) / view.inner;
      ASSERT_EQ(firsts[static_cast<size_t>(k)], 1);
      ASSERT_EQ(seconds[static_cast<size_t>(k)], last - first);
      ASSERT_LE(last - first, 1);
    }
  }
  EXPECT_GT(taken, kCases / 50);
}

}  // namespace
}  // namespace sinter::ops
