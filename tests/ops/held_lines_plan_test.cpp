// How the gradient of a gather is cut into tasks, walked on the CPU as the kernels do: every element of the
// indices must be taken once, to its place in the result, and every place of every part be written once.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/gather/held_lines_plan.h>

namespace sinter::ops {
namespace {

constexpr HeldRoom kLarge{.processors = 132, .most_shared = 227 << 10, .shared = 228 << 10};
constexpr HeldRoom kSmall{.processors = 2, .most_shared = 48 << 10, .shared = 64 << 10};

/// Up to 2^most, small ones as likely as large ones.
int64_t extent(Generator& generator, double most) {
  return static_cast<int64_t>(std::exp2(generator.uniform() * most));
}

/// Where sum `sum` of a task goes in the result, -1 for nowhere.
int64_t place_of(const HeldLines& plan, const HeldTask& task, int64_t sum) {
  if (!plan.tiled) return task.result + sum;
  const int64_t column = sum % plan.width;
  return column < task.width ? task.result + sum / plan.width * plan.inner + column : -1;
}

/// Counts how often each element is taken, each with some row, and how often a part writes each result.
template <HeldWalk walk>
void walk_tasks(const HeldLines& plan, const GatherSizes& sizes) {
  const int64_t count = sizes.outer * sizes.extent * sizes.inner;
  const int64_t copies = plan.mode == Held::kParts ? HeldLines::kBlockWarps : 1;
  std::vector<int> taken(static_cast<size_t>(count));
  std::vector<int> written(static_cast<size_t>(plan.results() * plan.parts));
  for (int64_t number = 0; number < plan.tasks(); ++number) {
    for (int64_t part = 0; part < plan.parts; ++part) {
      for (int64_t copy = 0; copy < copies; ++copy) {
        const HeldTask task = plan.task<walk>(number, part * copies + copy, plan.parts * copies);
        ASSERT_LE(task.outputs, plan.held);
        ASSERT_LT(task.steps, 1u << 31);
        for (int64_t step = 0; step < int64_t{task.steps} + 40; ++step) {  // a warp goes beyond the end
          const HeldElement at = plan.element<walk>(task, static_cast<uint32_t>(step));
          if (!at.inside) continue;
          ASSERT_TRUE(at.element >= 0 && at.element < count);
          ++taken[static_cast<size_t>(at.element)];
          const int64_t row = at.element * 7 % sizes.rows;
          const int64_t sum = at.sum + row * plan.row_step();
          ASSERT_LT(sum, task.outputs);
          const int64_t outer = at.element / (sizes.extent * sizes.inner), inner = at.element % sizes.inner;
          ASSERT_EQ(place_of(plan, task, sum), (outer * sizes.rows + row) * sizes.inner + inner);
        }
      }
      const HeldTask task = plan.task<walk>(number, part, plan.parts);
      for (int64_t sum = 0; sum < task.outputs; ++sum) {
        const int64_t place = place_of(plan, task, sum);
        if (place >= 0) ++written[static_cast<size_t>(part * plan.results() + place)];
      }
    }
  }
  for (const int times : taken) ASSERT_EQ(times, 1);
  for (const int times : written) ASSERT_EQ(times, 1);
}

void walk_tasks(const HeldLines& plan, const GatherSizes& sizes) {
  switch (plan.walk()) {
    case HeldWalk::kLine:
      return walk_tasks<HeldWalk::kLine>(plan, sizes);
    case HeldWalk::kSlabs:
      return walk_tasks<HeldWalk::kSlabs>(plan, sizes);
    case HeldWalk::kTile:
      return walk_tasks<HeldWalk::kTile>(plan, sizes);
  }
}

TEST(HeldLinesPlan, TakesEveryElementOnce) {
  Generator generator(21);
  int modes[3] = {}, walks[3] = {}, bundled = 0, several = 0, distinct = 0;
  for (int round = 0; round < 4000; ++round) {
    const GatherSizes sizes{.outer = extent(generator, 9),
                            .extent = extent(generator, 13),
                            .inner = round % 3 == 0 ? 1 : extent(generator, 9),
                            .rows = extent(generator, 13),
                            .sum_bytes = round % 5 == 0 ? 8 : 4};
    if (sizes.outer * sizes.extent * sizes.inner > 60'000) continue;
    if (sizes.outer * sizes.rows * sizes.inner > 300'000) continue;
    HeldLines plan;
    if (!plan_held_lines(plan, sizes, round % 2 == 0 ? kLarge : kSmall)) continue;
    SCOPED_TRACE(testing::Message() << sizes.outer << " " << sizes.extent << " " << sizes.inner << " of "
                                    << sizes.rows);
    walk_tasks(plan, sizes);
    if (HasFatalFailure()) return;
    ++modes[static_cast<int>(plan.mode)];
    ++walks[static_cast<int>(plan.walk())];
    bundled += plan.bundle > 1;
    several += plan.parts > 1;
    distinct += plan.distinct();
  }
  for (const int mode : modes) EXPECT_GT(mode, 20);
  for (const int walk : walks) EXPECT_GT(walk, 20);
  for (const int some : {bundled, several, distinct}) EXPECT_GT(some, 20);
}

TEST(HeldLinesPlan, KeepsToItsRoom) {
  Generator generator(22);
  for (int round = 0; round < 100'000; ++round) {
    const GatherSizes sizes{.outer = extent(generator, 24),
                            .extent = extent(generator, 31),
                            .inner = extent(generator, 20),
                            .rows = extent(generator, 20),
                            .sum_bytes = round % 3 == 0 ? 8 : 4};
    const HeldRoom& room = round % 2 == 0 ? kLarge : kSmall;
    HeldLines plan;
    if (!plan_held_lines(plan, sizes, room)) continue;
    ASSERT_LE(plan.shared_bytes, room.most_shared);
    ASSERT_EQ(plan.copy_stride % 8, 0);
    ASSERT_GE(plan.copy_stride, plan.held + 16);  // a shift of up to 7, and the rest of a pack
    ASSERT_LE(plan.threads, plan.mode == Held::kTurns ? 1024 : 256);
    ASSERT_LE(plan.blocks(), int64_t{1} << 30);
    ASSERT_TRUE(plan.bundle == 1 || (plan.parts == 1 && !plan.tiled && plan.mode == Held::kWarps));
    ASSERT_TRUE(plan.mode != Held::kWarps || plan.parts == 1);
    ASSERT_TRUE(!plan.tiled || (plan.width < plan.inner && (plan.width & (plan.width - 1)) == 0));
    const int64_t partials = plan.parts > 1 ? plan.parts * plan.results() * sizes.sum_bytes : 0;
    const double inputs = 8.0 * static_cast<double>(sizes.outer) * static_cast<double>(sizes.extent) *
                          static_cast<double>(sizes.inner);  // may pass 64 bits
    ASSERT_LE(static_cast<double>(partials), std::max(33554432.0, inputs));
    const int64_t part_extent = (sizes.extent + plan.parts - 1) / plan.parts;
    ASSERT_LE(plan.bundle * part_extent * plan.width, int64_t{1} << 30);
  }
}

TEST(HeldLinesPlan, ChoosesByShape) {
  HeldLines plan;
  ASSERT_TRUE(plan_held_lines(plan, {.outer = 65536, .extent = 100, .inner = 1, .rows = 1024}, kLarge));
  EXPECT_EQ(plan.mode, Held::kWarps);
  EXPECT_EQ(plan.bundle, 1);
  ASSERT_TRUE(plan_held_lines(plan, {.outer = 1, .extent = 262144, .inner = 100, .rows = 16}, kLarge));
  EXPECT_EQ(plan.mode, Held::kParts);
  EXPECT_TRUE(plan.distinct());
  EXPECT_GT(plan.parts, 132);
  ASSERT_TRUE(plan_held_lines(plan, {.outer = 100'000, .extent = 4, .inner = 1, .rows = 10}, kLarge));
  EXPECT_EQ(plan.bundle, 23);
  ASSERT_TRUE(plan_held_lines(plan, {.outer = 100, .extent = 5000, .inner = 1, .rows = 50'000}, kLarge));
  EXPECT_EQ(plan.mode, Held::kTurns);
  EXPECT_FALSE(plan_held_lines(plan, {.outer = 100, .extent = 5000, .inner = 1, .rows = 60'000}, kLarge));
  EXPECT_FALSE(plan_held_lines(plan, {.outer = 100, .extent = 0, .inner = 1, .rows = 10}, kLarge));
}

}  // namespace
}  // namespace sinter::ops
