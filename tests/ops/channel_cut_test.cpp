// How the GPU cuts tensors with channels: slabs and blocks have every element once, and every sum of a
// channel has all of its parts.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/common/channels/channel_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using testing_plans::extent;
using testing_plans::integer;

constexpr int kCases = 40000;
constexpr ChannelWalk kWalks[] = {ChannelWalk::kElements, ChannelWalk::kRuns, ChannelWalk::kPlanes};

/// Mostly small extents, now and then none or a few hundred.
ChannelView random_view(Generator& generator) {
  const auto some = [&](int64_t most) {
    return generator.uniform() < 0.02 ? 0
                                      : integer(generator, 1, generator.uniform() < 0.1 ? most * 8 : most);
  };
  return {some(9), some(9), generator.uniform() < 0.3 ? 1 : some(20)};
}

/// Processors of GPUs: none of the numbers is a multiple of another.
cuda::DeviceTraits random_traits(Generator& generator) {
  constexpr int kProcessors[] = {3, 84, 108, 132, 148};
  return {.processors = kProcessors[integer(generator, 0, 4)]};
}

int64_t channel_of(const ChannelView& view, int64_t element) {
  return element / view.inner % view.channels;
}

int64_t out_of(const ChannelGroups& shape, int64_t element) {
  return element / shape.view.numel() * shape.view.channels + channel_of(shape.view, element);
}

std::string text(const ChannelGroups& shape) {
  const ChannelView& view = shape.view;
  return "(" + std::to_string(shape.groups) + ", " + std::to_string(view.outer) + ", " +
         std::to_string(view.channels) + ", " + std::to_string(view.inner) + ")";
}

/// Walks a cut as the kernels do, with `values` in place of terms.
class CutWalker {
 public:
  CutWalker(const ChannelGroups& shape, const ChannelCut& cut, const std::vector<int64_t>& values)
      : shape_(shape), cut_(cut), values_(values), visits(values.size()) {
    table.assign(static_cast<size_t>(cut.table_rows() * shape.outs()), kUnwritten);
    for (uint32_t part = 0; part < cut.parts; ++part) {
      for (uint32_t block = 0; block < cut.groups * cut.tiles; ++block) {
        cut.walk == ChannelWalk::kPlanes ? walk_planes(block, part) : walk_columns(block, part);
      }
    }
  }

  /// The sum of every out over the table, of which every place must have been written once.
  std::vector<int64_t> sums() const {
    std::vector<int64_t> result(static_cast<size_t>(shape_.outs()));
    for (size_t i = 0; i < table.size(); ++i) {
      EXPECT_NE(table[i], kUnwritten) << "a place that no block wrote";
      result[i % result.size()] += table[i];
    }
    return result;
  }

 private:
  static constexpr int64_t kUnwritten = -1;

  int64_t take(uint32_t element, uint32_t channel) {
    EXPECT_LT(element, values_.size());
    EXPECT_EQ(channel_of(shape_.view, element), channel);
    ++visits[element];
    return values_[element];
  }
  void put(uint32_t row, uint32_t out, int64_t sum) {
    int64_t& place = table[static_cast<size_t>(row * shape_.outs() + out)];
    EXPECT_EQ(place, kUnwritten) << "a place that two blocks wrote";
    place = sum;
  }

  void walk_planes(uint32_t channel, uint32_t part) {
    const uint32_t begin = part * cut_.part_steps, end = std::min(begin + cut_.part_steps, cut_.items());
    EXPECT_LT(begin, end) << "a block without packs";
    int64_t sum = 0;
    for (uint32_t item = begin; item < end; ++item) {
      const PlanePack at = cut_.plane_pack(item, channel, cut_.pack);
      EXPECT_EQ(at.first % static_cast<uint32_t>(cut_.pack), 0U);
      for (int e = at.from; e < at.to; ++e) sum += take(at.first + static_cast<uint32_t>(e), channel);
    }
    put(part, channel, sum);
  }

  /// A thread's sums of a column: one for each element of a pack.
  std::vector<int64_t> sum_column(const ChannelColumn& at, uint32_t group, uint32_t part, uint32_t lane) {
    const auto pack = static_cast<uint32_t>(cut_.pack);
    const uint32_t base = group * cut_.outer * cut_.channels * cut_.inner;
    std::vector<int64_t> sums(pack);
    const auto add = [&](uint32_t row, int from, int to) {
      for (int e = from; e < to; ++e) {
        const uint32_t in_row = at.column * pack + static_cast<uint32_t>(e);
        sums[static_cast<size_t>(e)] +=
            take(base + row * cut_.columns * pack + in_row, in_row / cut_.inner % cut_.channels);
      }
    };
    for (uint32_t row = cut_.first_row(part) + lane; row < cut_.end_row(part, at.column); row += cut_.lanes) {
      if (cut_.walk == ChannelWalk::kElements) {
        add(row, 0, cut_.pack);
      } else {
        add(row, at.from, at.to);
      }
    }
    if (lane == 0 && part == 0) add(cut_.rows, at.from, std::min(cut_.elements_behind(at.column), at.to));
    return sums;
  }

  void walk_columns(uint32_t block, uint32_t part) {
    const uint32_t tile = block % cut_.tiles, group = block / cut_.tiles, runs = cut_.runs_of(tile);
    std::vector<int64_t> of_runs(runs);
    for (uint32_t x = 0; x < cut_.width; ++x) {
      const ChannelColumn at = cut_.column_of(tile, x, cut_.pack);
      if (at.is_empty()) continue;
      for (uint32_t lane = 0; lane < cut_.lanes; ++lane) {
        const std::vector<int64_t> sums = sum_column(at, group, part, lane);
        for (int e = at.from; e < at.to; ++e) {
          uint32_t run = at.run + (e < at.change ? 0 : 1);
          if (cut_.walk == ChannelWalk::kElements) {
            EXPECT_EQ(at.from, 0);
            run = (at.column * static_cast<uint32_t>(cut_.pack) + static_cast<uint32_t>(e)) / cut_.inner;
          }
          of_runs.at(run - tile * cut_.tile_runs) += sums[static_cast<size_t>(e)];
        }
      }
    }
    for (uint32_t run = 0; run < runs; ++run) {
      const uint32_t in_row = tile * cut_.tile_runs + run;
      put(part * cut_.copies + in_row / cut_.channels, group * cut_.channels + in_row % cut_.channels,
          of_runs[run]);
    }
  }

  const ChannelGroups& shape_;
  const ChannelCut& cut_;
  const std::vector<int64_t>& values_;
  std::vector<int64_t> table;

 public:
  std::vector<int> visits;
};

/// Fails unless the cut visits every element once and adds up every channel of every group.
void expect_sums_of_cut(Generator& generator, const ChannelGroups& shape, const ChannelCut& cut) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel())),
      expected(static_cast<size_t>(shape.outs()));
  for (int64_t e = 0; e < shape.numel(); ++e) {
    values[static_cast<size_t>(e)] = integer(generator, 0, 1000);
    expected[static_cast<size_t>(out_of(shape, e))] += values[static_cast<size_t>(e)];
  }
  const CutWalker walker(shape, cut, values);
  ASSERT_EQ(walker.sums(), expected);
  ASSERT_TRUE(std::all_of(walker.visits.begin(), walker.visits.end(), [](int n) { return n == 1; }));
}

/// What kernels take for granted.
void expect_limits(const ChannelGroups& shape, const ChannelCut& cut) {
  ASSERT_TRUE(cut.threads >= 32 && cut.threads % 32 == 0 && cut.threads <= ChannelCut::kMostThreads);
  ASSERT_TRUE(cut.parts >= 1 && cut.parts <= 65535) << cut.parts;
  ASSERT_LT(int64_t{cut.groups} * cut.tiles, int64_t{1} << 31);
  const int64_t steps = cut.walk == ChannelWalk::kPlanes ? cut.items() : cut.all_rows();
  ASSERT_LT(int64_t{cut.parts - 1} * cut.part_steps, steps) << "a part without steps";
  ASSERT_GE(int64_t{cut.parts} * cut.part_steps, steps);
  if (cut.walk == ChannelWalk::kPlanes) {
    ASSERT_LE(cut.part_steps / static_cast<uint32_t>(cut.threads), 2048U) << "sums too long for accuracy";
    ASSERT_EQ(cut.table_rows(), cut.parts);
    return;
  }
  ASSERT_LE(cut.part_steps / cut.lanes, 512U + 1) << "sums too long for accuracy";
  ASSERT_LE(cut.lanes * cut.width, static_cast<uint32_t>(cut.threads));
  ASSERT_GE(cut.lanes, 1U);
  // Steps of a thread beyond the end do not overflow.
  ASSERT_LT((int64_t{cut.all_rows()} + 5 * int64_t{cut.lanes}) * cut.columns, int64_t{1} << 32)
      << text(shape);
  if (cut.walk == ChannelWalk::kRuns) {
    ASSERT_TRUE(cut.log_across >= 0 && cut.log_across <= cut.log_members && cut.log_members <= 5);
    return;
  }
  ASSERT_LE(cut.width * static_cast<uint32_t>(cut.pack), static_cast<uint32_t>(ChannelCut::kElementThreads));
  if (cut.lanes > ChannelCut::kFewLanes) {
    ASSERT_EQ(cut.threads, ChannelCut::kElementThreads);
  }
}

TEST(ChannelCut, EveryWalkVisitsEveryElementOnceAndSumsEveryChannel) {
  Generator generator(3);
  int taken[3] = {};
  for (int i = 0; i < kCases; ++i) {
    ChannelView view = random_view(generator);
    const bool grouped = generator.uniform() < 0.2;
    if (grouped) view.inner = 1;
    const ChannelGroups shape{grouped ? integer(generator, 2, 9) : 1, view};
    if (shape.numel() > 10000) continue;
    const int64_t bytes = int64_t{2} << integer(generator, 0, 2);
    const int64_t pack = generator.uniform() < 0.3 ? 1 : 16 / bytes;
    const cuda::DeviceTraits traits = random_traits(generator);
    for (const ChannelWalk walk : kWalks) {
      if (shape.numel() == 0 || !can_walk(walk, shape, pack)) continue;
      SCOPED_TRACE(text(shape) + " pack " + std::to_string(pack) + " walk " +
                   std::to_string(static_cast<int>(walk)));
      const ChannelCut cut = plan_channels(shape, walk, pack, bytes, traits);
      expect_limits(shape, cut);
      if (HasFatalFailure()) return;
      expect_sums_of_cut(generator, shape, cut);
      if (HasFailure()) return;
      ++taken[static_cast<int>(walk)];
    }
  }
  for (const int count : taken) EXPECT_GT(count, kCases / 10);
}

TEST(ChannelCut, SeveralPartsTilesAndCopiesVisitEveryElementOnce) {
  // Larger than random ones: several parts, tiles that share packs, rows that are several periods.
  Generator generator(8);
  const cuda::DeviceTraits traits{.processors = 5};
  for (const ChannelView& view :
       {ChannelView{2003, 216, 1}, ChannelView{60 * 8 * 101 + 5, 17, 1}, ChannelView{3001, 194, 1},
        ChannelView{203, 1163, 1}, ChannelView{901, 104, 1}, ChannelView{96, 31, 49},
        ChannelView{70, 128, 49}, ChannelView{37, 67, 143}, ChannelView{2, 4001, 9}, ChannelView{3, 10007, 1},
        ChannelView{1, 1, 300007}, ChannelView{33, 7, 1023}, ChannelView{1, 5000, 49},
        ChannelView{5000, 3, 1}}) {
    for (const int64_t bytes : {2, 4, 8}) {
      for (const int64_t pack : {int64_t{1}, 16 / bytes}) {
        for (const ChannelWalk walk : kWalks) {
          const ChannelGroups shape{1, view};
          if (!can_walk(walk, shape, pack)) continue;
          SCOPED_TRACE(text(shape) + " pack " + std::to_string(pack) + " walk " +
                       std::to_string(static_cast<int>(walk)));
          const ChannelCut cut = plan_channels(shape, walk, pack, bytes, traits);
          expect_limits(shape, cut);
          if (HasFatalFailure()) return;
          expect_sums_of_cut(generator, shape, cut);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(ChannelCut, ChosenWalksArePossibleAndWithinLimits) {
  Generator generator(4);
  for (int i = 0; i < kCases; ++i) {
    const bool grouped = generator.uniform() < 0.2;
    const ChannelView view{extent(generator, 13), extent(generator, 13),
                           grouped || generator.uniform() < 0.3 ? 1 : extent(generator, 13)};
    const ChannelGroups shape = ChannelGroups{grouped ? extent(generator, 8) : 1, view}.simplified();
    if (shape.numel() > kMostSlabElements) continue;
    const int64_t bytes = int64_t{2} << integer(generator, 0, 2);
    const bool packs = generator.uniform() < 0.7 && (shape.groups == 1 || view.numel() % (16 / bytes) == 0);
    const int64_t pack = packs ? 16 / bytes : 1;
    SCOPED_TRACE(text(shape) + " pack " + std::to_string(pack));
    const ChannelWalk walk = choose_walk(shape, pack, bytes);
    ASSERT_TRUE(can_walk(walk, shape, pack));
    const ChannelCut cut = plan_channels(shape, walk, pack, bytes, random_traits(generator));
    expect_limits(shape, cut);
    if (HasFatalFailure()) return;
    // A table of the blocks that run at once, or little beside the tensor.
    ASSERT_LE(int64_t{cut.table_rows()} * shape.outs(),
              std::max<int64_t>(1200 * 1024, std::max<int64_t>(shape.numel() / 4, 8 * shape.outs())));
  }
}

TEST(ChannelCut, ShapesOfNetworksFillTheGpuWithWholeChannelsWherePossible) {
  const cuda::DeviceTraits traits{.processors = 132};
  const auto cut_of = [&](const ChannelView& view, int64_t bytes) {
    const ChannelGroups shape = ChannelGroups{1, view}.simplified();
    return plan_channels(shape, choose_walk(shape, 16 / bytes, bytes), 16 / bytes, bytes, traits);
  };
  for (const int64_t bytes : {2, 4}) {
    for (const ChannelView& view :
         {ChannelView{128, 128, 28 * 28}, ChannelView{128, 256, 14 * 14}, ChannelView{128, 512, 7 * 7}}) {
      const ChannelCut cut = cut_of(view, bytes);
      SCOPED_TRACE(text({1, view}) + " bytes " + std::to_string(bytes));
      EXPECT_EQ(cut.table_rows(), 1U) << "a second kernel";
      EXPECT_GE(int64_t{cut.tiles} * cut.threads, 120 * 1000) << "idle processors";
    }
    const ChannelCut few = cut_of({128, 64, 112 * 112}, bytes);
    EXPECT_EQ(few.walk, ChannelWalk::kPlanes);
    EXPECT_GE(int64_t{few.tiles} * few.parts * few.threads, 120 * 1024);
    const ChannelCut last = cut_of({128 * 28 * 28, 128, 1}, bytes);
    EXPECT_EQ(last.walk, ChannelWalk::kElements);
    EXPECT_GE(int64_t{last.tiles} * last.parts, 250);
  }
}

TEST(ChannelCut, TilesAreLongWhereRowsAreNoWholeLines) {
  const cuda::DeviceTraits traits{.processors = 132};
  const auto cut_of = [&](int64_t rows, int64_t channels, int64_t pack) {
    return plan_channels({1, {rows, channels, 1}}, ChannelWalk::kElements, pack, 16 / pack, traits);
  };
  EXPECT_EQ(cut_of(1183744, 216, 8).width, 27U);
  EXPECT_EQ(cut_of(456704, 17, 8).width, 17U);
  EXPECT_EQ(cut_of(506527, 194, 8).width, 49U);
  EXPECT_EQ(cut_of(55016, 1163, 4).width, 117U);
  EXPECT_EQ(cut_of(131072, 104, 2).width, 52U);
  EXPECT_EQ(cut_of(131072, 256, 8).width, 16U) << "rows are whole lines";
  EXPECT_LE(cut_of(1000, 216, 8).width, 16U) << "too few rows for so many sums";
  EXPECT_EQ(cut_of(1183744, 216, 8).lanes, 18U) << "whole sectors at a time";
}

TEST(ChannelCut, PartsFillTheWavesOfBlocks) {
  const auto parts_of = [](int64_t tiles, int64_t steps, int64_t least) {
    return detail::plan_channel_parts(tiles, steps, 264, least, false).parts;
  };
  EXPECT_EQ(parts_of(1, 10000, 1), 264);
  EXPECT_EQ(parts_of(5, 6510, 1), 52);
  EXPECT_EQ(parts_of(1000000, 1, 1), 1);
  EXPECT_EQ(parts_of(1, 3, 1), 3);
  EXPECT_EQ(parts_of(264, 2000, 4), 4);
  EXPECT_EQ(detail::plan_channel_parts(150, 3, 264, 1, true).parts, 1) << "not worth a second kernel";
}

TEST(ChannelSlabs, SlabsAreTheTensorAndKeepItsChannels) {
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    ChannelGroups shape{1, random_view(generator)};
    if (generator.uniform() < 0.3) shape.groups = integer(generator, 0, 12), shape.view.inner = 1;
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    const int64_t most = pack * integer(generator, 1, 60);
    SCOPED_TRACE(text(shape) + " most " + std::to_string(most) + " pack " + std::to_string(pack));
    int64_t next = 0;
    for_each_group_slab(shape, most, pack, [&](const GroupSlab& slab) {
      ASSERT_EQ(slab.first, next);
      ASSERT_GT(slab.shape.numel(), 0);
      ASSERT_LE(slab.shape.numel(), most);
      for (int64_t e = 0; e < slab.shape.numel(); ++e) {
        const int64_t channel = channel_of(slab.shape.view, e);
        ASSERT_EQ(slab.channel + channel, channel_of(shape.view, slab.first + e)) << "element " << e;
        ASSERT_EQ(slab.out + out_of(slab.shape, e), out_of(shape, slab.first + e)) << "element " << e;
      }
      next += slab.shape.numel();
    });
    ASSERT_EQ(next, shape.numel());
    if (HasFatalFailure()) return;
  }
}

TEST(ChannelSlabs, GiantTensorsAreCutAtPacks) {
  for (const ChannelView& view :
       {ChannelView{1 << 20, 64, 49}, ChannelView{3, 1 << 21, 1000},
        ChannelView{2, 3, (int64_t{1} << 32) + 5}, ChannelView{1, 1, (int64_t{1} << 31) + 1}}) {
    int64_t next = 0, slabs = 0;
    for_each_slab(view, kMostSlabElements, 8, [&](const ChannelSlab& slab) {
      EXPECT_EQ(slab.first, next);
      EXPECT_LE(slab.view.numel(), kMostSlabElements);
      EXPECT_EQ(slab.channel,
                view.inner > kMostSlabElements || slab.view.outer == 1 ? channel_of(view, slab.first) : 0);
      if (view.inner <= kMostSlabElements) {
        EXPECT_EQ(slab.first % 8, 0);
      }
      next += slab.view.numel();
      ++slabs;
    });
    EXPECT_EQ(next, view.numel());
    EXPECT_LE(slabs, 2 * view.numel() / kMostSlabElements + 6) << text({1, view});
  }
}

}  // namespace
}  // namespace sinter::ops
