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

TEST(BroadcastWalk, FindsTheElementsOfEveryInput) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const Shape output = drawn_shape(random);
    const std::array<Shape, 2> inputs{drawn_input(output, random), drawn_input(output, random)};
    const BroadcastWalk<2> walk(plan_broadcast<2>(output, inputs));
    for (int64_t i = 0; i < output.numel(); ++i) {
      uint32_t column = 0, begins[2];
      const uint32_t row = walk.row_of(static_cast<uint32_t>(i), column);
      walk.find_row(row, begins);
      for (int k = 0; k < 2; ++k) {
        const Shape& input = inputs[static_cast<size_t>(k)];
        ASSERT_EQ(walk.row_begin(k, row), begins[k]);
        ASSERT_EQ(walk.offset(k, begins[k], column), expected_offset(output, input, i));
        ASSERT_TRUE(!walk.flat[k] || expected_offset(output, input, i) == i);
        // What a kernel reads without looking again.
        for (int64_t j = 0; j < walk.inner.divisor() - column; ++j) {
          ASSERT_EQ(expected_offset(output, input, i + j),
                    walk.offset(k, begins[k], column) + (walk.steps[k] ? j : 0))
              << to_string(output) << to_string(input) << " from " << i << " on " << j;
        }
      }
    }
  }
}

TEST(BroadcastWalk, TakesPartsOfLargeTensors) {
  std::mt19937 random(7);
  int cut = 0;
  for (int round = 0; round < 3000; ++round) {
    const Shape output = drawn_shape(random);
    const std::array<Shape, 2> inputs{drawn_input(output, random), drawn_input(output, random)};
    const int64_t most = 1 + static_cast<int64_t>(random() % 40);
    int64_t next = 0;
    for_each_part(plan_broadcast<2>(output, inputs), most,
                  [&](const BroadcastPlan<2>& part, int64_t first, const std::array<int64_t, 2>& offsets) {
                    int64_t count = 1;
                    for (int axis = 0; axis < part.rank; ++axis)
                      count *= part.extents[static_cast<size_t>(axis)];
                    ASSERT_EQ(first, next);
                    ASSERT_LE(count, most);
                    next += count;
                    cut += count < output.numel() ? 1 : 0;
                    const BroadcastWalk<2> walk(part);
                    for (int64_t i = 0; i < count; ++i) {
                      uint32_t column = 0, begins[2];
                      walk.find_row(walk.row_of(static_cast<uint32_t>(i), column), begins);
                      for (int k = 0; k < 2; ++k) {
                        const auto input = static_cast<size_t>(k);
                        ASSERT_EQ(offsets[input] + walk.offset(k, begins[k], column),
                                  expected_offset(output, inputs[input], first + i));
                        ASSERT_TRUE(!walk.flat[k] || walk.offset(k, begins[k], column) == i);
                      }
                    }
                  });
    ASSERT_EQ(next, output.numel());
  }
  EXPECT_GT(cut, 1000);
}

TEST(BroadcastWalk, LaunchesOnceBelowTwoToTheThirtyFirst) {
  const auto parts_of = [](const Shape& output, const Shape& input) {
    int parts = 0;
    for_each_part(plan_broadcast<1>(output, {input}), INT32_MAX,
                  [&](const auto&, int64_t, const auto&) { ++parts; });
    return parts;
  };
  EXPECT_EQ(parts_of({1 << 16, (1 << 15) - 1}, {1 << 16, 1}), 1);
  EXPECT_EQ(parts_of({1 << 16, 1 << 15}, {1 << 16, 1}), 2);
  EXPECT_EQ(parts_of({3, 1 << 16, 1 << 16}, {3, 1, 1}), 9);
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
