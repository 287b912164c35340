// How the GPU gives groups of channels to blocks: every element is in exactly one thread's hands, every sum
// is added up once, blocks stay within their room, whatever the shape.
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/norm/plan/norm_group_plan.h>

#include "common/test_cases.h"

namespace sinter::ops {
namespace {

NormGroupRoom any_room(Generator& generator) {
  return {.processors = 1 + static_cast<int>(generator.below(140)),
          .shared_bytes = static_cast<size_t>(8 + generator.below(220)) << 10,
          .tensors = 1 + static_cast<int>(generator.below(2)),
          .element_bytes = 2 << generator.below(3),
          .wide = generator.uniform() < 0.8,
          .mask = generator.uniform() < 0.4};
}

int64_t extent(Generator& generator, int64_t most) {
  constexpr int64_t kEdges[] = {1, 2, 4, 7, 8, 9, 31, 32, 33, 49, 64, 196, 255, 256, 257};
  if (generator.uniform() < 0.4) return std::min(most, kEdges[generator.below(std::size(kEdges))]);
  return 1 + static_cast<int64_t>(generator.below(static_cast<uint64_t>(most)));
}

ChannelView any_view(Generator& generator, int64_t most) {
  ChannelView view{
      .outer = extent(generator, most), .channels = extent(generator, 400), .inner = extent(generator, most)};
  if (generator.uniform() < 0.4) view.inner = 1;
  if (generator.uniform() < 0.3) view.channels = (view.channels + 7) / 8 * 8;
  if (view.channels == 1) view = {.outer = 1, .channels = 1, .inner = view.numel()};
  return view;
}

testing::Message name(const ChannelView& view, const NormGroupRoom& room) {
  return testing::Message() << view.outer << " x " << view.channels << " x " << view.inner << ", "
                            << room.element_bytes << " bytes, " << room.tensors << " tensors, mask "
                            << room.mask;
}

/// Calls visit(element, channel, place) for every element that is taken in.
template <class Visit>
void walk(const NormGroupPlan& plan, Visit visit) {
  const NormGroupWalk all(plan);
  for (int64_t group = 0; group < plan.groups; ++group) {
    for (int id = 0; id < plan.threads; ++id) {
      const NormGroupPlace place(all, group, id);
      ASSERT_LE(place.packs, plan.slots);
      ASSERT_TRUE(place.packs == 0 || id < plan.active);
      for (int i = 0; i < place.packs; ++i) {
        const int64_t offset = place.offset(i);
        ASSERT_EQ(offset % plan.pack, 0) << "an access that is not aligned";
        for (int k = 0; k < plan.pack; ++k)
          visit(offset + k, place.first_channel + place.channel(k), place, id, k);
      }
    }
  }
}

TEST(NormGroupPlan, TakesEachElementInOnceAndAddsItToItsChannel) {
  Generator generator(11);
  const int usual = 2600, cases = test::share_of_cases(usual);
  int fitting = 0, single = 0;
  for (int i = 0; i < cases; ++i) {
    const ChannelView view = any_view(generator, 50);
    const NormGroupRoom room = any_room(generator);
    const NormGroupPlan plan = plan_norm_groups(view, room);
    if (!plan.fits()) continue;
    ++fitting;
    single += plan.pack == 1 ? 1 : 0;
    SCOPED_TRACE(name(view, room));
    std::vector<int> visits(static_cast<size_t>(view.numel()));
    const int64_t pitch = plan.pitch(), size = plan.lines() * pitch, span = plan.span();
    walk(plan, [&](int64_t element, int64_t channel, const NormGroupPlace& place, int id, int k) {
      ASSERT_LT(element, view.numel());
      ASSERT_EQ(channel, element / view.inner % view.channels);
      ASSERT_LT(channel - place.first_channel, place.channels);
      ++visits[static_cast<size_t>(element)];
      // Where the kernel leaves the element's sum, and which places it adds up for the channel.
      const int own = plan.own_sums(), column = plan.fixed ? place.column : id;
      const int64_t line = plan.fixed ? (id - place.column) / plan.columns : 0;
      ASSERT_LT(line * pitch + column, size);
      const int64_t unit = own == 1 ? column : int64_t{column} * plan.pack + k;
      ASSERT_EQ(unit / span, channel - place.first_channel);
    });
    for (size_t k = 0; k < visits.size(); ++k) ASSERT_EQ(visits[k], 1) << "element " << k;
    if (HasFatalFailure()) return;
  }
  if (cases < usual) return;
  EXPECT_GT(fitting, 400);
  EXPECT_GT(single, 100);
}

TEST(NormGroupPlan, StaysWithinItsRoom) {
  Generator generator(12);
  for (int i = 0; i < 150000; ++i) {
    const ChannelView view = any_view(generator, int64_t{1} << generator.below(18));
    const NormGroupRoom room = any_room(generator);
    const NormGroupPlan plan = plan_norm_groups(view, room);
    if (!plan.fits()) continue;
    SCOPED_TRACE(name(view, room));
    ASSERT_TRUE(plan.pack == 1 || (room.wide && plan.pack * room.element_bytes == 16));
    ASSERT_TRUE(plan.pack > 1 || !room.mask) << "bytes of the mask in two blocks";
    ASSERT_LE(plan.shared_bytes, room.shared_bytes);
    ASSERT_EQ(plan.fixed_bytes % 16, 0U);
    ASSERT_LE(plan.threads, NormGroupPlan::kThreads);
    ASSERT_EQ(plan.threads % 32, 0);
    ASSERT_GE(plan.threads, std::max(plan.active, plan.channels)) << "a channel without a thread";
    ASSERT_GE(plan.groups * plan.channels, view.channels);
    ASSERT_LT((plan.groups - 1) * plan.channels, view.channels) << "a group without channels";
    ASSERT_TRUE(plan.fixed || plan.channels == 1);
    if (room.mask) {
      ASSERT_EQ(plan.channels * view.inner % 8, 0) << "a byte of the mask with two groups";
      ASSERT_EQ(plan.active * plan.pack % 8, 0) << "a byte of the mask in two pieces";
      ASSERT_EQ(plan.columns * plan.pack % 8, 0);
    }
    ASSERT_GE(int64_t{plan.slots} * plan.active,
              plan.fixed ? int64_t{plan.rows} * plan.columns : view.per_channel() / plan.pack);
    const NormGroupWalk all(plan);
    ASSERT_GT(NormGroupPlace(all, 0, 0).packs, 0) << "a block without packs";
  }
}

TEST(NormGroupPlan, TakesSmallTensorsOfManyChannels) {
  const auto plan = [](int64_t outer, int64_t channels, int64_t inner, int tensors, int bytes,
                       bool mask = false) {
    return plan_norm_groups({outer, channels, inner}, {.processors = 132,
                                                       .shared_bytes = 227 << 10,
                                                       .tensors = tensors,
                                                       .element_bytes = bytes,
                                                       .wide = true,
                                                       .mask = mask});
  };
  for (const NormGroupPlan& taken :
       {plan(359, 479, 4, 1, 4), plan(2, 696, 24 * 24, 2, 4), plan(5, 1388, 64, 2, 4),
        plan(96, 2760, 1, 1, 8, true), plan(3, 928, 136, 1, 8, true), plan(6 * 64, 1384, 1, 1, 4, true)}) {
    EXPECT_TRUE(taken.fits());
    EXPECT_GT(taken.pack, 1);
    EXPECT_GE(taken.groups, 80);
  }
  for (const NormGroupPlan& taken : {plan(128, 7127, 1, 2, 2), plan(229, 5557, 1, 2, 2)}) {
    EXPECT_EQ(taken.pack, 1);
    EXPECT_GE(taken.groups, 80);
  }
  EXPECT_FALSE(plan(2846, 319, 1, 1, 4).fits()) << "most processors would be idle";
  EXPECT_FALSE(plan(37 * 144, 512, 1, 2, 2).fits());
  EXPECT_FALSE(plan(59 * 64, 355, 1, 1, 2, true).fits()) << "bytes of the mask in two groups";
  EXPECT_FALSE(plan(256, 256, 56 * 56, 1, 2).fits()) << "too large";
  EXPECT_FALSE(plan(162624, 9, 1, 1, 2).fits()) << "too few channels";
}

}  // namespace
}  // namespace sinter::ops
