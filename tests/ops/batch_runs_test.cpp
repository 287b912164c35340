// Runs of batched products whose operands are broadcast.
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/gemv/batch.h>

namespace sinter::ops {
namespace {

std::vector<BatchRun> runs_of(const Shape& batch, const Shape& a, const Shape& b, int64_t most = 1000000) {
  std::vector<BatchRun> runs;
  for_each_batch_run(
      batch, a, b, [&](const BatchRun& run) { runs.push_back(run); }, most);
  return runs;
}

/// Every item once and in order, and each operand's item the one that broadcasting reads.
void expect_right(const Shape& batch, const Shape& a, const Shape& b, int64_t most) {
  SCOPED_TRACE(fmt::format("{} of {} and {}, at most {}", batch, a, b, most));
  int64_t next = 0;
  for (const BatchRun& run : runs_of(batch, a, b, most)) {
    ASSERT_EQ(run.first, next);
    ASSERT_GE(run.count, 1);
    ASSERT_LE(run.count, most);
    for (int64_t i = 0; i < run.count; ++i) {
      EXPECT_EQ(run.a + i * run.a_step, batch_item(a, batch, run.first + i));
      EXPECT_EQ(run.b + i * run.b_step, batch_item(b, batch, run.first + i));
    }
    next += run.count;
  }
  EXPECT_EQ(next, batch.numel());
}

TEST(BatchRuns, CoverTheBatchAsBroadcastingReadsIt) {
  const struct {
    Shape batch, a, b;
  } cases[] = {
      {{}, {}, {}},
      {{1, 1}, {1, 1}, {1}},
      {{6}, {6}, {6}},
      {{6}, {6}, {}},
      {{6}, {1}, {6}},
      {{2, 3, 4}, {2, 3, 4}, {2, 3, 4}},
      {{2, 3, 4}, {3, 4}, {2, 1, 1}},
      {{2, 3, 4}, {2, 1, 4}, {3, 1}},
      {{2, 3, 4, 5}, {2, 1, 4, 1}, {3, 1, 5}},
      {{0, 3}, {0, 3}, {3}},
  };
  for (const auto& [batch, a, b] : cases) {
    for (const int64_t most : {1, 2, 5, 1000}) expect_right(batch, a, b, most);
  }
}

TEST(BatchRuns, AreAsLongAsTheStepsAllow) {
  EXPECT_EQ(runs_of({2, 3, 4}, {2, 3, 4}, {2, 3, 4}).size(), 1u);
  EXPECT_EQ(runs_of({2, 3, 4}, {2, 3, 4}, {}).size(), 1u);
  EXPECT_EQ(runs_of({2, 3, 4}, {2, 1, 1}, {2, 3, 4}).size(), 2u);
  const std::vector<BatchRun> shared = runs_of({5}, {5}, {1});
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0], (BatchRun{.first = 0, .count = 5, .a = 0, .b = 0, .a_step = 1, .b_step = 0}));
}

}  // namespace
}  // namespace sinter::ops
