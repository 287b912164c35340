// The walk over broadcasts in aligned packs, which is host code: every element once, from the right places.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/common/cuda/flat_walk.h>

namespace sinter::ops {
namespace {

Shape drawn_shape(std::mt19937& random) {
  std::vector<int64_t> extents(random() % 5);
  for (int64_t& extent : extents) extent = 1 + static_cast<int64_t>(random() % 7);
  return Shape(extents);
}

/// A shape that can be broadcast to `output`.
Shape drawn_input(const Shape& output, std::mt19937& random) {
  const int left_out =
      output.rank() > 0 ? static_cast<int>(random() % static_cast<unsigned>(output.rank() + 1)) : 0;
  std::vector<int64_t> extents(output.begin() + left_out, output.end());
  for (int64_t& extent : extents) extent = random() % 3 == 0 ? 1 : extent;
  return Shape(extents);
}

/// The element of `input` that belongs to element `index` of `output`.
int64_t expected_offset(const Shape& output, const Shape& input, int64_t index) {
  int64_t sum = 0;
  for (int axis = 1; axis <= input.rank(); ++axis) {
    const int64_t place = index / output.stride(output.rank() - axis) % output[-axis];
    sum += input[-axis] == 1 ? 0 : place * input.stride(input.rank() - axis);
  }
  return sum;
}

TEST(FlatWalk, FindsTheElementsOfEveryInput) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const Shape output = drawn_shape(random);
    const std::array<Shape, 2> inputs{drawn_input(output, random), drawn_input(output, random)};
    const FlatWalk<2> walk(plan_broadcast<2>(output, inputs));
    for (int64_t i = 0; i < output.numel(); ++i) {
      int64_t offsets[2];
      const int64_t left = walk.locate(i, offsets);
      ASSERT_GE(left, 1);
      ASSERT_EQ(left, walk.inner - i % walk.inner);
      for (int k = 0; k < 2; ++k) {
        const int64_t expected = expected_offset(output, inputs[static_cast<size_t>(k)], i);
        ASSERT_EQ(offsets[k], expected) << to_string(output) << to_string(inputs[static_cast<size_t>(k)]);
        ASSERT_EQ(walk.offset(k, i), expected);
        ASSERT_TRUE(!walk.flat[k] || expected == i);
        // What a kernel reads without looking again.
        for (int64_t j = 0; j < left; ++j) {
          ASSERT_EQ(walk.offset(k, i + j), expected + (walk.steps(k) ? j : 0));
        }
      }
    }
  }
}

TEST(RowWalk, FindsTheElementsOfEveryInput) {
  std::mt19937 random(7);
  int taken = 0;
  for (int round = 0; round < 6000; ++round) {
    const Shape output = drawn_shape(random);
    const std::array<Shape, 2> inputs{drawn_input(output, random), drawn_input(output, random)};
    const auto plan = plan_broadcast<2>(output, inputs);
    if (!RowWalk<2>::takes(plan, output.numel())) continue;
    ++taken;
    const RowWalk<2> walk(plan);
    for (int64_t i = 0; i < output.numel(); ++i) {
      uint32_t column = 0;
      const uint32_t row = walk.row_of(static_cast<uint32_t>(i), column);
      for (size_t k = 0; k < 2; ++k) {
        const auto input = static_cast<int>(k);
        ASSERT_EQ(walk.offset(input, row, column), expected_offset(output, inputs[k], i));
        ASSERT_EQ(walk.offset_of(input, static_cast<uint32_t>(i)), walk.offset(input, row, column));
        // What a kernel reads without looking again.
        for (int64_t j = 0; j < walk.inner.divisor() - column; ++j) {
          ASSERT_EQ(expected_offset(output, inputs[k], i + j),
                    walk.offset(input, row, column) + (walk.steps[k] ? j : 0))
              << to_string(output) << to_string(inputs[k]) << " from " << i << " on " << j;
        }
      }
    }
  }
  EXPECT_GT(taken, 1000);
}

TEST(RowWalk, LeavesLargeTensorsAndMoreAxesToOthers) {
  const Shape column{1 << 16, 1}, square{1 << 16, 1 << 15};
  const auto plan = plan_broadcast<1>(square, {column});
  EXPECT_TRUE(RowWalk<1>::takes(plan, (int64_t{1} << 31) - 1));
  EXPECT_FALSE(RowWalk<1>::takes(plan, square.numel()));
  EXPECT_FALSE(RowWalk<1>::takes(plan_broadcast<1>({2, 3, 8}, {Shape{1, 3, 1}}), 48));
}

TEST(BroadcastPlan, IsPlainWhereNoInputIsRepeated) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const Shape output = drawn_shape(random);
    const std::array<Shape, 2> inputs{drawn_input(output, random), drawn_input(output, random)};
    ASSERT_EQ(plan_broadcast<2>(output, inputs).is_plain(),
              inputs[0].numel() == output.numel() && inputs[1].numel() == output.numel());
  }
}

TEST(ElementwisePacks, OfAThreadFillTheGpuFirst) {
  constexpr int64_t few = 264 * 2 * 128, large = int64_t{32} << 20;
  EXPECT_EQ(elementwise_packs(32, few - 1, 16 * few), 1);
  EXPECT_EQ(elementwise_packs(32, few, 16 * few), 2);
  EXPECT_EQ(elementwise_packs(48, large / 16, large), 2);
  EXPECT_EQ(elementwise_packs(48, large / 16 + 1, large + 16), 1);
  EXPECT_EQ(elementwise_packs(24, 1, 16), 2);  // one pack moves little
}

TEST(FlatCut, TakesEveryElementOnceAndPacksWhereTheyAreAligned) {
  alignas(64) static char memory[64];
  for (const int pack : {2, 4, 8, 16}) {
    for (int64_t count = 0; count < 70; ++count) {
      for (int64_t offset = 0; offset < pack; ++offset) {
        const int64_t element = 16 / pack;
        const FlatCut cut(count, elements_before_aligned(memory + offset * element, 16, element, count),
                          pack);
        std::vector<int> seen(static_cast<size_t>(count));
        for (int64_t i = 0; i < cut.packs; ++i) {
          ASSERT_EQ((offset + cut.first_of(i)) % pack, 0);
          for (int64_t j = 0; j < pack; ++j) ++seen.at(static_cast<size_t>(cut.first_of(i) + j));
        }
        for (int64_t thread = 0; thread < 2 * pack; ++thread) {
          if (cut.edge(thread) >= 0) ++seen.at(static_cast<size_t>(cut.edge(thread)));
        }
        EXPECT_EQ(cut.edge(2 * pack), -1);
        for (const int times : seen) ASSERT_EQ(times, 1) << count << " from " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
