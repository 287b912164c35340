// The planning of GPU reductions and index arithmetic, which is host code.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/reduce/reduce_schedule.h>

namespace sinter::ops {
namespace {

/// How often the threads of a schedule read each element of x, for which output; walks as the kernels do.
std::vector<int64_t> outputs_by_element(const Shape& x, const ReducePlan& plan,
                                        const ReduceSchedule& schedule) {
  std::vector<int64_t> owner(static_cast<size_t>(x.numel()), -1);
  const int64_t columns = schedule.terms_adjoin ? 1 : plan.columns / schedule.pack;
  const int64_t rows = schedule.terms_adjoin ? plan.rows / schedule.pack : plan.rows;
  for (int64_t block = 0; block < schedule.output_blocks * schedule.segments; ++block) {
    const int64_t begin = block % schedule.segments * schedule.segment_units;
    const int64_t end = std::min(begin + schedule.segment_units, schedule.term_units);
    EXPECT_LT(begin, end) << "an empty segment";
    for (int thread = 0; thread < kReduceThreads; ++thread) {
      const int lane = schedule.terms_adjoin ? thread % schedule.term_lanes : thread / schedule.output_lanes;
      const int place = schedule.terms_adjoin ? thread / schedule.term_lanes : thread % schedule.output_lanes;
      const int64_t unit = block / schedule.segments * schedule.output_lanes + place;
      if (unit >= schedule.output_units) continue;
      const int64_t base =
          plan.kept.offset(unit / columns) + unit % columns * (schedule.terms_adjoin ? 0 : schedule.pack);
      for (int64_t term = begin + lane; term < end; term += schedule.term_lanes) {
        const int64_t at = base + plan.reduced.offset(term / rows) +
                           term % rows * (schedule.terms_adjoin ? schedule.pack : plan.columns);
        EXPECT_EQ(at % schedule.pack, 0);
        for (int64_t j = 0; j < schedule.pack; ++j) {
          int64_t& own = owner[static_cast<size_t>(at + j)];
          EXPECT_EQ(own, -1) << "element " << at + j << " is read twice";
          own = schedule.terms_adjoin ? unit : unit * schedule.pack + j;
        }
      }
    }
  }
  return owner;
}

/// The output that each element belongs to, from the shape alone.
std::vector<int64_t> expected_outputs(const Shape& x, const AxisMask& mask) {
  std::vector<int64_t> outputs(static_cast<size_t>(x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t output = 0;
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (!mask[static_cast<size_t>(axis)]) output = output * x[axis] + i / x.stride(axis) % x[axis];
    }
    outputs[static_cast<size_t>(i)] = output;
  }
  return outputs;
}

void check(const Shape& x, const AxisMask& mask) {
  const ReducePlan plan = plan_reduction(x, mask);
  for (int pack : {1, 2, 4, 8}) {
    if (!packs_fit(plan, pack)) continue;
    SCOPED_TRACE(fmt::format("{} pack {}", x, pack));
    const ReduceSchedule schedule(plan, pack);
    EXPECT_EQ(schedule.term_lanes * schedule.output_lanes, kReduceThreads);
    ASSERT_EQ(outputs_by_element(x, plan, schedule), expected_outputs(x, mask));
  }
}

TEST(ReduceSchedule, ReadsEveryElementOnceForItsOutput) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<int64_t> extents(1 + random() % 5);
    for (int64_t& extent : extents) extent = 1 + static_cast<int64_t>(random() % 9);
    AxisMask mask{};
    for (size_t axis = 0; axis < extents.size(); ++axis) mask[axis] = random() % 2 == 0;
    check(Shape(extents), mask);
  }
}

TEST(ReduceSchedule, CutsTheTermsWhereOutputsAreFew) {
  const auto segments = [](const Shape& x, const AxisMask& mask) {
    check(x, mask);
    return ReduceSchedule(plan_reduction(x, mask), 4).segments;
  };
  // 16 packs of 4 elements for each of 256 threads make a segment.
  EXPECT_EQ(segments({1 << 18}, {true}), 16);                          // all elements
  EXPECT_EQ(segments({4096, 64}, {true, false}), 16);                  // columns
  EXPECT_EQ(segments({64, 8, 32, 32}, {true, false, true, true}), 4);  // channels
  EXPECT_EQ(segments({2048, 128}, {false, true}), 1);                  // many rows
}

TEST(WideDivide, IsExactOnBothSidesOf32Bits) {
  for (const int64_t divisor :
       {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{641}, (int64_t{1} << 31) - 1,
        int64_t{1} << 31, (int64_t{1} << 31) + 1, int64_t{1} << 33}) {
    const cuda::WideDivide divide(divisor);
    for (const int64_t n :
         {int64_t{0}, int64_t{1}, int64_t{640}, int64_t{641}, (int64_t{1} << 31) - 1, int64_t{1} << 31,
          (int64_t{1} << 32) - 1, int64_t{1} << 32, (int64_t{1} << 40) + 12345}) {
      int64_t remainder = -1;
      EXPECT_EQ(divide.divide(n, remainder), n / divisor) << n << " / " << divisor;
      EXPECT_EQ(remainder, n % divisor) << n << " / " << divisor;
    }
  }
}

}  // namespace
}  // namespace sinter::ops
