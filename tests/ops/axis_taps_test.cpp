// Axes whose fine pixels belong to at most two coarse ones agree with the ops' own definitions, and threads
// make every element of a result exactly once.
#include <random>

#include <gtest/gtest.h>

#include <sinter/ops/adaptive_pool/adaptive_pool_taps.h>
#include <sinter/ops/common/axis_taps.h>
#include <sinter/ops/pool/pool_taps.h>
#include <sinter/ops/upsample/upsample_taps.h>

namespace sinter::ops {
namespace {

std::mt19937 random_numbers(7);

int64_t draw(int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random_numbers);
}

/// Taps never fall, stay inside, and span(i) is where coarse pixel i has a part: it leaves none out.
template <class Axis>
void expect_consistent(const Axis& axis, int64_t fine, int64_t coarse) {
  int before = 0;
  for (int o = 0; o < fine; ++o) {
    const auto tap = axis.template tap<double>(o);
    ASSERT_GE(tap.first, before);
    ASSERT_LT(tap.first + (tap.next_weight != 0 ? 1 : 0), coarse);
    ASSERT_TRUE(tap.weight != 0 || tap.next_weight == 0);
    ASSERT_TRUE(!Axis::kSingle || tap.next_weight == 0);
    before = tap.first;
    for (int i = tap.first; i <= tap.first + 1; ++i) {
      if (tap.of(i) == 0) continue;
      const TapSpan span = axis.span(i);
      ASSERT_LE(span.begin, o);
      ASSERT_GT(span.end, o);
      ASSERT_TRUE(!Axis::kEven || tap.of(i) == axis.template weight<double>(i));
    }
  }
  for (int i = 0; i < coarse; ++i) {
    const TapSpan span = axis.span(i);
    ASSERT_GE(span.begin, 0);
    ASSERT_LE(span.end, fine);
    for (int o = span.begin; o < span.end; ++o) {
      const int first = axis.template tap<double>(o).first;
      ASSERT_TRUE(first == i || first == i - 1) << first << " " << i;
    }
  }
}

int64_t draw_side() {
  const int64_t kind = draw(0, 9);
  return kind == 0 ? draw(1, kLongestTapSide) : draw(1, kind < 5 ? 12 : 130);
}

TEST(AxisTaps, UpsamplingAgrees) {
  for (int round = 0; round < 1500; ++round) {
    UpsampleAxis axis{draw_side(), draw_side(), UpsampleMode::kNearest, false};
    if (round == 0) axis.input = axis.output = kLongestTapSide;
    SCOPED_TRACE(testing::Message() << axis.input << " to " << axis.output);
    const auto check = [&](const auto& taps) {
      expect_consistent(taps, axis.output, axis.input);
      for (int o = 0; o < axis.output; ++o) {
        const UpsampleTap want = axis.tap(o);
        const auto got = taps.template tap<double>(o);
        ASSERT_EQ(got.first, want.first);
        ASSERT_NEAR(got.weight, want.weight(want.first), 1e-12);
        const double next = want.second != want.first ? want.weight(want.second) : 0.0;
        ASSERT_NEAR(got.next_weight, next, 1e-12);
      }
      for (int i = 0; i <= axis.input; i += static_cast<int>(draw(1, 30))) {
        ASSERT_EQ(taps.begin_of(i), axis.begin_of(i)) << i;
      }
    };
    check(UpsampleTaps<true>(axis));
    axis.mode = UpsampleMode::kBilinear;
    check(UpsampleTaps<false>(axis));
    axis.align_corners = true;
    check(UpsampleTaps<false>(axis));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(AxisTaps, AdaptiveWindowsAgree) {
  for (int round = 0; round < 1500; ++round) {
    AdaptiveAxis axis{draw_side(), 1};
    axis.windows = draw(1, axis.pixels);
    SCOPED_TRACE(testing::Message() << axis.pixels << " in " << axis.windows);
    ASSERT_TRUE(AdaptiveTaps::can_describe(axis));
    const AdaptiveTaps taps(axis);
    expect_consistent(taps, axis.pixels, axis.windows);
    for (int i = 0; i < axis.pixels; ++i) {
      const auto windows = axis.windows_of(i);
      const auto tap = taps.tap<double>(i);
      ASSERT_EQ(tap.first, windows.begin);
      ASSERT_EQ(tap.next_weight != 0, windows.count() == 2);
      ASSERT_DOUBLE_EQ(tap.weight, 1.0 / static_cast<double>(axis.pixels_of(tap.first).count()));
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(AxisTaps, PoolingWindowsAgree) {
  for (int round = 0; round < 3000; ++round) {
    PoolAxis axis;
    axis.stride = draw(1, 5);
    axis.span = axis.kernel = draw(1, 2 * axis.stride);
    axis.padding = draw(0, axis.kernel / 2);
    axis.extent = axis.kernel + draw(0, 80);
    axis.padding_after = axis.padding;
    const bool ceil = draw(0, 1) == 1;
    const int64_t room = axis.extent + 2 * axis.padding - axis.kernel;
    axis.out = (room + (ceil ? axis.stride - 1 : 0)) / axis.stride + 1;
    if ((axis.out - 1) * axis.stride >= axis.extent + axis.padding) --axis.out;
    ASSERT_TRUE(PoolTaps::can_describe(axis));
    const bool include = draw(0, 1) == 1;
    const PoolTaps taps(axis, include, 0.0), fixed(axis, include, 3.0);
    expect_consistent(taps, axis.extent, axis.out);
    for (int i = 0; i < axis.extent; ++i) {
      const auto windows = axis.windows(i);
      double all = 0;
      for (int64_t o = windows.begin; o < windows.end; ++o) {
        const double share = 1.0 / static_cast<double>(axis.count(o, include));
        ASSERT_DOUBLE_EQ(taps.tap<double>(i).of(static_cast<int>(o)), share);
        ASSERT_DOUBLE_EQ(fixed.tap<double>(i).of(static_cast<int>(o)), 1.0 / 3.0);
        all += share;
      }
      ASSERT_NEAR(taps.tap<double>(i).weight + taps.tap<double>(i).next_weight, all, 1e-12);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(TapPlan, EveryElementIsMadeOnce) {
  for (int round = 0; round < 400; ++round) {
    const TapExtents extents{.outer = draw(0, 3) == 0 ? draw(30, 70) : draw(1, 9),
                             .inner = draw(0, 1) == 0 ? draw(1, 40) : 8 * draw(1, 4),
                             .source_rows = draw(1, 40),
                             .source_columns = draw(1, 40),
                             .rows = draw(1, 40),
                             .columns = draw(1, 40)};
    const int64_t widest = int64_t{2} << draw(0, 2);
    const TapPlan plan = plan_taps(extents, widest, std::min<int64_t>(widest, 4), draw(0, 3) != 0);
    ASSERT_GT(plan.threads, 0);
    ASSERT_TRUE(plan.pack == 1 || (plan.lanes == 1 && extents.inner % plan.pack == 0));
    std::vector<int> made(
        static_cast<size_t>(extents.outer * extents.rows * extents.columns * extents.inner));
    for (int64_t thread = 0; thread < plan.threads; ++thread) {
      const TapPlace place(plan, static_cast<uint32_t>(thread));
      ASSERT_EQ(place.channel % plan.pack, 0);
      for (int lane = 0; lane <= place.last_lane; ++lane) {
        for (int row = place.first_row; row < place.last_row; ++row) {
          for (int i = 0; i < plan.pack; ++i) {
            const int64_t at =
                (((place.first_image + lane) * extents.rows + row) * extents.columns + place.column) *
                    extents.inner +
                place.channel + i;
            ASSERT_LT(static_cast<size_t>(at), made.size());
            ++made[static_cast<size_t>(at)];
          }
        }
      }
    }
    for (const int times : made) ASSERT_EQ(times, 1);
  }
}

TEST(TapPlan, LeavesOutWhatIntsCannotCount) {
  const auto threads = [](const TapExtents& extents) { return plan_taps(extents, 8, 8, true).threads; };
  EXPECT_EQ(threads({1, 1, kLongestTapSide + 1, 1, 1, 1}), 0);
  EXPECT_EQ(threads({1, 1, 1, 1, 1, kLongestTapSide + 1}), 0);
  EXPECT_EQ(threads({1, 8, kLongestTapSide, kLongestTapSide, 1, 1}), 0) << "an image of 2^31 elements";
  EXPECT_GT(threads({1, 7, kLongestTapSide, kLongestTapSide, 1, 1}), 0);
  EXPECT_EQ(threads({int64_t{1} << 40, 1, 1, 1, 1, 1}), 0);
  EXPECT_EQ(threads({int64_t{1} << 31, 1, 1, 1, 1, 1}), 0);
  EXPECT_EQ(threads({int64_t{1} << 20, 1, 2, 2, 1 << 10, 1 << 10}), 0) << "threads beyond an int";
  EXPECT_EQ(threads({0, 8, 2, 2, 4, 4}), 0);
  EXPECT_EQ(threads({8, 0, 2, 2, 4, 4}), 0);
}

}  // namespace
}  // namespace sinter::ops
