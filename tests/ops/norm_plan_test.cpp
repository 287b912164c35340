// How the GPU cuts tensors into blocks to normalise them: every element is in exactly one thread's hands,
// blocks and tables stay within bounds, whatever the shape.
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/norm/plan/norm_plan.h>
#include <sinter/ops/norm/plan/norm_resident_plan.h>

#include "common/test_cases.h"

namespace sinter::ops {
namespace {

/// Calls visit(element, channel) for every element that a thread of the kernel by columns takes in.
template <class Visit>
void walk_columns(const NormPlan& plan, int64_t part, int64_t lane, int64_t column, Visit visit) {
  const auto channel_of = [&](int64_t place) { return place % plan.image() / plan.inner; };
  int64_t row = part * plan.lanes() + lane;
  for (; row < plan.items; row += plan.parts * plan.lanes()) {
    for (int64_t i = 0; i < plan.pack; ++i) visit(row * plan.width + column + i, channel_of(column + i));
  }
  if (row != plan.items) return;
  for (int64_t i = column; i < std::min(column + plan.pack, plan.rest); ++i) {
    visit(row * plan.width + i, channel_of(i));
  }
}

/// The same of the kernel by planes.
template <class Visit>
void walk_planes(const NormPlan& plan, int64_t part, int64_t id, int64_t channel, Visit visit) {
  const int64_t packs = plan.plane_packs(), step = plan.parts * plan.lanes();
  const auto begin_of = [&](int64_t image) { return (image * plan.channels + channel) * plan.inner; };
  const auto round_up = [&](int64_t place) { return (place + plan.pack - 1) / plan.pack * plan.pack; };
  if (plan.straddles) {
    // A place of the packs in which a plane begins or ends.
    const int64_t places = 2 * plan.pack, place = id % places;
    const int64_t first = part + id / places * plan.parts, further = plan.lanes() / places * plan.parts;
    for (int64_t image = first; image < plan.items / packs; image += further) {
      const int64_t begin = begin_of(image), end = begin + plan.inner;
      const bool front = place < plan.pack;
      const int64_t i = (front ? round_up(begin) : end / plan.pack * plan.pack) + place - plan.pack;
      if (front ? i >= begin : i < end) visit(i, channel);
    }
  }
  for (int64_t item = part * plan.lanes() + id; item < plan.items; item += step) {
    const int64_t begin = begin_of(item / packs);
    const int64_t offset = (plan.straddles ? round_up(begin) : begin) + item % packs * plan.pack;
    if (offset + plan.pack > begin + plan.inner) continue;
    for (int64_t i = offset; i < offset + plan.pack; ++i) visit(i, channel);
  }
}

/// Calls visit(element, channel) for every element that the kernel by columns or planes would take in.
template <class Visit>
void walk(const NormPlan& plan, Visit visit) {
  for (int64_t block = 0; block < plan.blocks(); ++block) {
    const int64_t part = block / plan.tiles, tile = block % plan.tiles;
    for (int thread = 0; thread < NormPlan::kThreads; ++thread) {
      const int64_t lane = thread / plan.columns;
      const int64_t column = (tile * plan.columns + thread % plan.columns) * plan.pack;
      if (!plan.by_columns) {
        walk_planes(plan, part, thread, tile, visit);
      } else if (lane < plan.lanes() && column < plan.width) {
        walk_columns(plan, part, lane, column, visit);
      }
    }
  }
}

void expect_each_element_once(const ChannelView& view, const NormPlan& plan) {
  std::vector<int> visits(static_cast<size_t>(view.numel()));
  walk(plan, [&](int64_t element, int64_t channel) {
    ASSERT_LT(element, view.numel());
    ASSERT_EQ(channel, element / view.inner % view.channels);
    ++visits[static_cast<size_t>(element)];
  });
  for (size_t i = 0; i < visits.size(); ++i) ASSERT_EQ(visits[i], 1) << "element " << i;
}

void expect_sound(const ChannelView& view, const NormPlan& plan, int pack, int plane_pack, int64_t blocks) {
  ASSERT_TRUE(plan.pack == 1 || plan.pack == (plan.by_columns ? pack : plane_pack));
  ASSERT_EQ(plan.channels, view.channels);
  ASSERT_GE(plan.columns, 1);
  ASSERT_LE(plan.columns, 64);
  if (view.numel() == 0) {
    ASSERT_EQ(plan.blocks(), 0);
    ASSERT_EQ(plan.table_size(), 0);
    return;
  }
  if (plan.by_columns && plan.pack > 1) {
    ASSERT_EQ(plan.columns * plan.pack % NormPlan::kGroup, 0) << "a byte of the mask in two pieces";
  }
  if (!plan.straddles) {
    ASSERT_EQ(plan.by_columns ? plan.items * plan.width + plan.rest : plan.items * plan.width * plan.pack,
              view.numel());
    ASSERT_EQ((plan.by_columns ? plan.width : plan.inner) % plan.pack, 0) << "packs cross a boundary";
  }
  ASSERT_LT(plan.rest, plan.width);
  const NormPlan lines = plan.unfolded();
  ASSERT_LE(lines.table_size(), plan.table_size());
  ASSERT_EQ(lines.width, plan.channels * lines.columns_per_channel());
  ASSERT_GE(plan.parts, 1);
  ASSERT_LE((plan.parts - 1) * plan.lanes(), plan.items - 1) << "a part without items";
  if (plan.by_columns) {
    ASSERT_GE(plan.tiles * plan.columns * plan.pack, plan.width);
    ASSERT_LT((plan.tiles - 1) * plan.columns * plan.pack, plan.width) << "a block without columns";
  }
  const int64_t per_thread = (plan.items + plan.parts * plan.lanes() - 1) / (plan.parts * plan.lanes());
  ASSERT_LE(per_thread, 512) << "too long a sum in the compute type";
  ASSERT_TRUE(plan.blocks() <= std::max(blocks, plan.tiles) || per_thread > 256 ||
              (plan.blocks() <= 8 * blocks && plan.items >= 6 * plan.parts * plan.lanes()))
      << "more blocks than asked for without need";
  if (plan.adds_folds() && plan.tiles > 1) {
    ASSERT_GE(int64_t{plan.columns} * plan.pack, 2 * plan.image());
  }
}

/// Elements of a wide access of each dtype, or 1.
int any_pack(Generator& generator) {
  constexpr int kPacks[] = {1, 2, 4, 8, 8};
  return kPacks[generator.below(std::size(kPacks))];
}

int64_t extent(Generator& generator, int64_t most) {
  constexpr int64_t kEdges[] = {0, 1, 2, 7, 8, 9, 31, 32, 33, 49, 64, 196, 255, 256, 257};
  if (generator.uniform() < 0.3) return std::min(most, kEdges[generator.below(std::size(kEdges))]);
  return 1 + static_cast<int64_t>(generator.below(static_cast<uint64_t>(most)));
}

TEST(NormPlan, VisitsEachElementOnce) {
  Generator generator(5);
  for (int i = 0; i < 3000; ++i) {
    ChannelView view{
        .outer = extent(generator, 50), .channels = extent(generator, 40), .inner = extent(generator, 20)};
    if (generator.uniform() < 0.4) view.inner = 1;
    if (generator.uniform() < 0.2)
      view = {.outer = extent(generator, 40), .channels = 1 + i % 5, .inner = 64 + i % 600};
    const int pack = any_pack(generator), plane_pack = pack == 1 ? 1 : any_pack(generator);
    const int64_t blocks = 1 + static_cast<int64_t>(generator.below(600));
    SCOPED_TRACE(testing::Message() << view.outer << " x " << view.channels << " x " << view.inner
                                    << " in packs of " << pack << ", " << blocks << " blocks");
    expect_each_element_once(view, plan_norm_sums(view, pack, plane_pack, blocks));
    if (maps_by_columns(view, pack)) expect_each_element_once(view, plan_norm_map(view, pack, blocks));
    if (HasFatalFailure()) return;
  }
}

TEST(NormPlan, IsSoundForAnyShape) {
  Generator generator(6);
  for (int i = 0; i < 200000; ++i) {
    const int64_t most = int64_t{1} << generator.below(18);
    ChannelView view{.outer = extent(generator, most),
                     .channels = extent(generator, 4096),
                     .inner = extent(generator, most)};
    if (generator.uniform() < 0.4) view.inner = 1;
    if (generator.uniform() < 0.05) view.outer *= int64_t{1} << 16;
    view = simplified_norm_view(view);
    const int pack = any_pack(generator), plane_pack = pack == 1 ? 1 : any_pack(generator);
    const int64_t blocks = 1 + static_cast<int64_t>(generator.below(2000));
    SCOPED_TRACE(testing::Message() << view.outer << " x " << view.channels << " x " << view.inner
                                    << " in packs of " << pack << ", " << blocks << " blocks");
    expect_sound(view, plan_norm_sums(view, pack, plane_pack, blocks), pack, plane_pack, blocks);
    if (HasFatalFailure()) return;
  }
}

TEST(NormPlan, TakesWholePacksWhereverItCan) {
  const auto pack = [](int64_t outer, int64_t channels, int64_t inner) {
    return plan_norm_sums({outer, channels, inner}, 8, 8, 500).pack;
  };
  EXPECT_EQ(pack(256 * 56 * 56, 64, 1), 8);  // NHWC
  EXPECT_EQ(pack(256, 64, 56 * 56), 8);      // NCHW, planes of whole packs
  EXPECT_EQ(pack(256, 512, 7 * 7), 8);       // NCHW, packs that cross planes
  EXPECT_EQ(pack(256, 1024, 14 * 14), 8);
}

TEST(NormPlan, TakesWholePacksOfOddShapesWhereTheyMayStraddle) {
  const auto plan = [](int64_t outer, int64_t channels, int64_t inner) {
    return plan_norm_sums({outer, channels, inner}, 8, 8, 500);
  };
  EXPECT_EQ(plan(64 * 95 * 97, 359, 1).pack, 8);  // NHWC, odd channels
  EXPECT_EQ(plan(262144, 269, 1).pack, 8);
  EXPECT_EQ(plan(13 * 256 * 320, 5, 1).pack, 8);
  EXPECT_EQ(plan(33, 67, 57 * 53).pack, 8);  // NCHW, odd planes
  EXPECT_EQ(plan(2, 3, 150 * 151).pack, 8);
  EXPECT_EQ(plan(5000, 3, 7 * 7).pack, 8);  // short ones, and images that are no whole packs
  EXPECT_EQ(plan(3, 3, 1).pack, 1);         // too few rows
}

TEST(NormPlan, LeavesFewThreadsIdle) {
  for (int64_t channels = 1; channels < 5000; channels = channels * 17 / 16 + 1) {
    for (const int pack : {2, 4, 8}) {
      const NormPlan plan = plan_norm_sums({1 << 20, channels, 1}, pack, pack, 528);
      const auto busy = static_cast<double>(plan.width / plan.pack * plan.lanes());
      EXPECT_GE(busy, 0.85 * static_cast<double>(plan.tiles * NormPlan::kThreads))
          << channels << " channels in packs of " << pack;
      EXPECT_EQ(plan.pack, pack);
    }
  }
}

TEST(NormPlan, LeavesFewPlacesOfBlocksEmpty) {
  for (int64_t channels = 1; channels < 5000; channels = channels * 17 / 16 + 1) {
    for (const int64_t inner : {112 * 112, 41 * 53, 1}) {
      for (const int64_t blocks : {264, 396, 528}) {
        const ChannelView view{(int64_t{1} << 26) / (channels * inner) + 1, channels, inner};
        const NormPlan plan = plan_norm_sums(simplified_norm_view(view), 8, 8, blocks);
        const int64_t rounds = (plan.blocks() + blocks - 1) / blocks;
        EXPECT_GE(static_cast<double>(plan.blocks()), 0.75 * static_cast<double>(rounds * blocks))
            << channels << " channels, planes of " << inner;
      }
    }
  }
}

TEST(NormPlan, KeepsSectorsTogetherWherePossible) {
  const auto plan = [](int64_t channels, int pack) {
    return plan_norm_sums({1 << 20, channels, 1}, pack, pack, 528);
  };
  for (const int64_t channels : {2, 5, 11, 19, 23, 103, 125}) {  // whole warps, as with 256 channels
    const NormPlan narrow = plan(channels, 8);
    EXPECT_EQ(narrow.columns, 32);
    EXPECT_EQ(narrow.width % 256, 0);
    EXPECT_EQ(narrow.width, narrow.tiles * 256);
    EXPECT_TRUE(narrow.adds_folds());
    EXPECT_LE(narrow.unfolded().parts, 528 + narrow.tiles);
  }
  for (const int64_t channels : {131, 269, 359, 1459}) {
    EXPECT_EQ(plan(channels, 8).columns % 2, 0);
    EXPECT_EQ(plan(channels, 8).width % 16, 0);
    EXPECT_EQ(plan(channels, 4).width % 8, 0);
  }
  EXPECT_EQ(plan(304, 8).columns % 2, 0);
  EXPECT_EQ(plan(192, 8).columns, 24);
}

TEST(NormPlan, CutsPowersOfTwoIntoHalvedWarps) {
  for (const auto& [channels, outer] : {std::pair<int64_t, int64_t>{64, 256 * 112 * 112},
                                        {128, 256 * 28 * 28},
                                        {256, 256 * 56 * 56},
                                        {512, 256 * 28 * 28},
                                        {1024, 256 * 14 * 14},
                                        {2048, 256 * 7 * 7}}) {
    for (const int64_t blocks : {264, 528}) {
      const NormPlan plan = plan_norm_sums({outer, channels, 1}, 8, 8, blocks);
      EXPECT_EQ(plan.columns, std::min<int64_t>(channels / 8, 32));
      EXPECT_EQ(plan.parts,
                std::min(blocks / plan.tiles, (plan.items + plan.lanes() * 4 - 1) / (plan.lanes() * 4)));
      EXPECT_EQ(plan.fold, 1);
    }
  }
}

/// Adds up what blocks put into their tables as the kernel does, and the tables as the finish does.
TEST(NormPlan, TablesHaveEachColumnOfAChannelOnce) {
  Generator generator(9);
  for (int i = 0; i < 3000; ++i) {
    const ChannelView view{
        .outer = 64 + extent(generator, 5000), .channels = extent(generator, 400), .inner = 1};
    if (view.channels == 0) continue;
    const NormPlan plan = plan_norm_sums(view, 8, 8, 1 + static_cast<int64_t>(generator.below(600)));
    SCOPED_TRACE(testing::Message() << view.outer << " x " << view.channels);
    std::vector<int64_t> table(static_cast<size_t>(plan.table_size()), 0);
    const int64_t side = int64_t{plan.columns} * plan.pack, image = plan.image();
    for (int64_t tile = 0; tile < plan.tiles; ++tile) {
      const int64_t first = tile * side, end = std::min(side, plan.width - first);
      for (int64_t column = 0; column < (plan.adds_folds() ? image : end); ++column) {
        int64_t sum = 0;
        if (plan.adds_folds()) {
          for (int64_t place = (column - first % image + image) % image; place < end; place += image) {
            ASSERT_EQ((first + place) % image, column);
            ++sum;
          }
        }
        for (int64_t part = 0; part < plan.parts; ++part) {
          const int64_t at = plan.adds_folds() ? (part * plan.tiles + tile) * image + column
                                               : part * plan.width + first + column;
          ASSERT_LT(at, plan.table_size());
          table[static_cast<size_t>(at)] += plan.adds_folds() ? sum : 1;
        }
      }
    }
    const NormPlan lines = plan.unfolded();
    for (int64_t channel = 0; channel < view.channels; ++channel) {
      int64_t sum = 0;
      for (int64_t part = 0; part < lines.parts; ++part)
        sum += table[static_cast<size_t>(part * lines.width + channel)];
      ASSERT_EQ(sum, plan.parts * plan.fold);
    }
  }
}

TEST(NormPlan, KeepsTablesSmallAgainstTheTensor) {
  for (const ChannelView& view : {ChannelView{256 * 56 * 56, 256, 1}, ChannelView{256, 512, 49},
                                  ChannelView{256 * 14 * 14, 1024, 1}, ChannelView{256, 1024, 196}}) {
    EXPECT_LE(plan_norm_sums(view, 8, 8, 528).table_size() * 20, view.numel());
  }
}

TEST(NormPlan, FinishesWithThreadsForEachValue) {
  Generator generator(10);
  for (int i = 0; i < 20000; ++i) {
    const int64_t lines = 1 + static_cast<int64_t>(generator.below(1 << generator.below(12)));
    const int64_t columns = generator.uniform() < 0.5 ? 1 : 1 + static_cast<int64_t>(generator.below(512));
    const NormFinishPlan plan = plan_norm_finish(lines, columns);
    SCOPED_TRACE(testing::Message() << lines << " x " << columns);
    ASSERT_GE(plan.threads, NormFinishPlan::kLeastThreads);
    ASSERT_LE(plan.threads, NormFinishPlan::kMostThreads);
    ASSERT_TRUE(32 % plan.side == 0 && plan.threads % 32 == 0);
    ASSERT_TRUE(plan.threads == NormFinishPlan::kMostThreads ||
                lines * columns <= 4 * (plan.threads / plan.side));
    ASSERT_TRUE(columns == 1 || plan.side == 1);
  }
}

// ---- tensors that are kept on chip

NormRoom any_room(Generator& generator) {
  const auto shared_bytes = static_cast<size_t>(8 + generator.below(220)) << 10;
  return {.processors = 1 + static_cast<int>(generator.below(140)),
          .shared_bytes = shared_bytes,
          .shared_of_half = shared_bytes / 2,
          .tensors = 1 + static_cast<int>(generator.below(2)),
          .element_bytes = generator.uniform() < 0.5 ? 2 : 4};
}

ChannelView any_image(Generator& generator, int64_t most) {
  ChannelView view{
      .outer = extent(generator, most), .channels = extent(generator, 300), .inner = extent(generator, most)};
  if (generator.uniform() < 0.5) view.inner = 1;
  if (generator.uniform() < 0.7) view.channels = (view.channels + 7) / 8 * 8;
  return view;
}

/// Calls visit(element, channel) for every element that is taken in.
template <class Visit>
void walk(const NormResidentPlan& plan, const NormRoom& room, Visit visit) {
  const int pack = NormResidentPlan::kPackBytes / room.element_bytes;
  for (int64_t block = 0; block < plan.blocks(); ++block) {
    const auto team = static_cast<int>(block / plan.members), member = static_cast<int>(block % plan.members);
    for (int thread = 0; thread < plan.threads; ++thread) {
      const NormResidentPlace place(plan, pack, member, thread);
      ASSERT_LE(place.slots, plan.slots);
      ASSERT_LE(place.streamed, plan.streamed);
      ASSERT_TRUE(place.streamed == 0 || (place.slots == plan.slots && plan.panels == plan.teams));
      for (int64_t panel = team; panel < plan.panels; panel += plan.teams) {
        NormResidentWalk packs(plan, place, pack);
        const NormResidentWalk begin = packs;
        for (int slot = 0; slot < place.slots + place.streamed; ++slot) {
          const int64_t next = slot < place.slots ? packs.next() : begin.ahead(slot);
          const int64_t offset = next + panel * plan.channels * plan.inner;
          ASSERT_EQ(offset % pack, 0) << "an access that is not aligned";
          for (int i = 0; i < pack; ++i) {
            const int behind = plan.inner == 1 ? i : i < place.split ? 0 : 1;
            visit(offset + i, panel * plan.channels + place.first_channel + behind);
          }
        }
      }
    }
  }
}

TEST(NormResidentPlan, TakesEachElementInOnce) {
  Generator generator(7);
  const int usual = 6000, cases = test::share_of_cases(usual);
  int fitting = 0, streamed = 0;
  for (int i = 0; i < cases; ++i) {
    const bool narrow = i % 4 == 0;  // more than the chip holds
    ChannelView view = narrow ? ChannelView{8 * extent(generator, 600), 8 * extent(generator, 8), 1}
                              : any_image(generator, 60);
    NormRoom room = any_room(generator);
    if (narrow) room.processors = 1 + room.processors % 3;
    const NormResidentPlan plan = plan_norm_resident(view, room);
    if (!plan.fits()) continue;
    ++fitting;
    streamed += plan.streamed > 0 ? 1 : 0;
    SCOPED_TRACE(testing::Message() << view.outer << " x " << view.channels << " x " << view.inner);
    std::vector<int> visits(static_cast<size_t>(view.numel()));
    walk(plan, room, [&](int64_t element, int64_t channel) {
      ASSERT_LT(element, view.numel());
      ASSERT_EQ(channel, element / view.inner % view.channels);
      ++visits[static_cast<size_t>(element)];
    });
    for (size_t k = 0; k < visits.size(); ++k) ASSERT_EQ(visits[k], 1) << "element " << k;
    if (HasFatalFailure()) return;
  }
  if (cases < usual) return;
  EXPECT_GT(fitting, 500);
  EXPECT_GT(streamed, 40);
}

TEST(NormResidentPlan, StaysWithinItsRoom) {
  Generator generator(8);
  for (int i = 0; i < 200000; ++i) {
    const ChannelView view = any_image(generator, int64_t{1} << generator.below(18));
    const NormRoom room = any_room(generator);
    const NormResidentPlan plan = plan_norm_resident(view, room);
    if (!plan.fits()) continue;
    SCOPED_TRACE(testing::Message() << view.outer << " x " << view.channels << " x " << view.inner);
    ASSERT_GT(view.numel(), 0);
    const bool whole = plan.threads == NormResidentPlan::kThreads;
    ASSERT_TRUE(whole || plan.threads == NormResidentPlan::kHalfThreads);
    ASSERT_LE(plan.shared_bytes, whole ? room.shared_bytes : room.shared_of_half);
    ASSERT_LE(plan.blocks(), room.processors * (whole ? 1 : 2)) << "blocks that would wait for others";
    ASSERT_EQ(plan.panels * plan.channels, view.channels);
    ASSERT_LE(plan.teams, plan.panels);
    ASSERT_EQ(int64_t{plan.channels} * plan.inner % 8, 0) << "a byte of the mask with two panels";
    ASSERT_EQ(plan.columns * (16 / room.element_bytes) % 8, 0) << "a byte of the mask in two pieces";
    ASSERT_LE(plan.columns * plan.lanes, plan.threads);
    ASSERT_GE(int64_t{plan.lanes} * plan.members * (plan.slots + plan.streamed), plan.rows);
    ASSERT_LE(plan.streamed, 3 * plan.slots);
    ASSERT_TRUE(plan.streamed == 0 ||
                (plan.panels == plan.teams && plan.inner == 1 && whole && room.tensors == 2));
    ASSERT_LE(plan.entries(), plan.threads) << "a sum without a thread";
    ASSERT_GE(plan.table_size(), plan.members == 1 ? 0 : plan.blocks() * 2 * plan.entries());
    ASSERT_LT(int64_t{plan.members - 1} * plan.lanes, plan.rows) << "a member without rows";
    ASSERT_LE(plan.slots, NormResidentPlan::kMostSlots);
    ASSERT_LE(plan.channels, NormResidentPlan::kMostChannels);
    ASSERT_TRUE(plan.inner > 1 || (32 % plan.columns == 0 && plan.threads % plan.columns == 0));
    ASSERT_TRUE(plan.inner > 1 || plan.channels * room.element_bytes == plan.columns * 16);
    ASSERT_GE(plan.scratch_floats(), 2 * plan.threads) << "doubles of all threads";
  }
}

TEST(NormResidentPlan, KeepsWhatFits) {
  const auto plan = [](int64_t outer, int64_t channels, int64_t inner, int tensors, int bytes) {
    return plan_norm_resident({outer, channels, inner}, {.processors = 132,
                                                         .shared_bytes = 227 << 10,
                                                         .shared_of_half = 113 << 10,
                                                         .tensors = tensors,
                                                         .element_bytes = bytes});
  };
  for (const int bytes : {2, 4}) {
    for (const int tensors : {1, 2}) {
      EXPECT_TRUE(plan(256, 1024, 14 * 14, tensors, bytes).fits());
      EXPECT_TRUE(plan(16, 32, 112 * 112, tensors, bytes).fits());
      EXPECT_FALSE(plan(256 * 56 * 56, 256, 1, tensors, bytes).fits());
      EXPECT_FALSE(plan(256, 256, 56 * 56, tensors, bytes).fits());
    }
  }
  EXPECT_TRUE(plan(512 * 4 * 4, 512, 1, 2, 2).fits());
  EXPECT_TRUE(plan(16 * 112 * 112, 32, 1, 1, 4).fits());
  EXPECT_FALSE(plan(64, 30, 1, 1, 2).fits()) << "channels that are no whole packs";
  EXPECT_FALSE(plan(64, 8, 7, 1, 2).fits()) << "planes of which more than two share a pack";
}

/// Small tensors of many channels are bound by launches and by blocks that wait.
TEST(NormResidentPlan, LeavesBlocksOfSmallTensorsAlone) {
  const auto members = [](int64_t outer, int64_t channels, int64_t inner, int tensors, int bytes) {
    return plan_norm_resident({outer, channels, inner}, {.processors = 132,
                                                         .shared_bytes = 227 << 10,
                                                         .shared_of_half = 113 << 10,
                                                         .tensors = tensors,
                                                         .element_bytes = bytes})
        .members;
  };
  for (const int bytes : {2, 4}) {
    for (const int tensors : {1, 2}) {
      EXPECT_EQ(members(128, 512, 1, tensors, bytes), 1);
      EXPECT_EQ(members(128, 7120, 1, tensors, bytes), 1);
      EXPECT_EQ(members(32, 1024, 14 * 14, tensors, bytes), 1);
      EXPECT_GT(members(256 * 7 * 7, 512, 1, tensors, bytes), 1) << "too much for a block";
    }
    EXPECT_EQ(members(32, 512, 7 * 7, 1, bytes), 1);
    EXPECT_GT(members(64, 512, 7 * 7, 1, bytes), 1) << "more than a processor's share";
  }
  EXPECT_EQ(members(32 * 7 * 7, 2048, 1, 1, 2), 1);
  EXPECT_GT(members(2848, 320, 1, 1, 4), 1) << "most processors would be idle";
}

TEST(NormResidentPlan, StreamsWhatFindsNoPlace) {
  const auto plan = [](int64_t outer, int64_t channels, int tensors, int bytes) {
    return plan_norm_resident({outer, channels, 1}, {.processors = 132,
                                                     .shared_bytes = 227 << 10,
                                                     .shared_of_half = 113 << 10,
                                                     .tensors = tensors,
                                                     .element_bytes = bytes});
  };
  EXPECT_GT(plan(16 * 112 * 112, 32, 2, 4).streamed, 0);
  EXPECT_GT(plan(24 * 240 * 240, 16, 2, 2).streamed, 0);
  EXPECT_GT(plan(2 * 1001 * 1009, 8, 2, 2).streamed, 0);
  EXPECT_GT(plan(8 * 72 * 72, 192, 2, 2).streamed, 0);
  EXPECT_EQ(plan(16 * 112 * 112, 32, 2, 2).streamed, 0);
  EXPECT_FALSE(plan(256 * 28 * 28, 512, 2, 2).fits());
  EXPECT_FALSE(plan(19 * 29 * 29, 608, 2, 2).fits()) << "runs of 64 bytes";
  EXPECT_FALSE(plan(32 * 207 * 207, 16, 1, 4).fits()) << "forward";
  EXPECT_TRUE(plan(293 * 3 * 2, 752, 2, 2).fits());
  EXPECT_TRUE(plan(7 * 1436 * 181, 8, 1, 2).fits());
}

}  // namespace
}  // namespace sinter::ops
