// Sums along the columns of rows that fill no units of 16 bytes, several of which count as one: which
// products are taken so, and how they are cut.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/gemv/gemv_problem.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

constexpr int kCases = 100000;
constexpr int64_t kProcessors = 132;  // of an H100

GemvProblem folded_problem(DType dtype, int64_t rows, int64_t columns, int64_t batch = 1) {
  return {.dtype = dtype,
          .transpose = true,
          .batch = batch,
          .rows = rows,
          .columns = columns,
          .processors = kProcessors};
}

TEST(FoldedRows, EveryUnitLiesInTwoRowsAtMost) {
  Generator generator(6);
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};
  int taken = 0;
  for (int i = 0; i < kCases; ++i) {
    const GemvProblem problem = folded_problem(kDTypes[i % 4], extent(generator, 24), extent(generator, 12),
                                               generator.uniform() < 0.7 ? 1 : extent(generator, 6));
    if (!takes_folded_rows(problem)) continue;
    ++taken;
    const int64_t pack = unit_elements(problem), fold = rows_of_fold(problem), columns = problem.columns;
    SCOPED_TRACE(fmt::format("{} of {} x {} pack {}", problem.batch, problem.rows, columns, pack));
    ASSERT_FALSE(takes_few_rows(problem));
    ASSERT_EQ(fold * columns % pack, 0);
    ASSERT_TRUE(fold > 1 && (fold == 2 || fold / 2 * columns % pack != 0)) << "fewer rows would do";
    ASSERT_TRUE(problem.batch == 1 || problem.rows * columns % pack == 0) << "matrices that fill no units";
    for (int64_t element = 0; element < fold * columns; element += pack) {
      const int64_t row = element / columns, split = std::min((row + 1) * columns - element, pack);
      ASSERT_EQ((element + pack - 1) / columns, split < pack ? row + 1 : row);
    }
    const ColumnSumPlan plan = folded_plan_of(problem);
    ASSERT_GE(plan.parts * plan.part_rows, problem.rows / fold);
    ASSERT_LE(plan.width, ColumnSumPlan::kThreads);
    ASSERT_GE(plan.tiles * plan.width * pack, fold * columns);
    ASSERT_LT((plan.tiles - 1) * plan.width * pack, fold * columns) << "a block without columns";
    if (adds_whole_rows(problem, plan)) {
      ASSERT_LE(columns, ColumnSumPlan::kThreads) << "a thread writes one sum of whole rows";
      ASSERT_GE(plan.width * pack, fold * columns) << "a part of a row";
    } else if (columns > ColumnSumPlan::kThreads) {
      ASSERT_GE(plan.width, 16) << "narrow stripes of rows that begin anywhere in a line";
    }
    const int64_t parts = folded_parts(problem, plan),
                  table = parts == 1 ? 0 : problem.batch * columns * parts;
    ASSERT_GE(gemv_workspace(problem), static_cast<size_t>(table) * size_of(accumulate_dtype(problem.dtype)));
    ASSERT_LE(table * 16, problem.batch * problem.rows * columns) << "a table that is not small";
  }
  EXPECT_GT(taken, kCases / 50);
}

TEST(FoldedRows, ShortRowsAreWholeAndLongOnesFillWaves) {
  const auto plan = [](DType dtype, int64_t rows, int64_t columns) {
    return folded_plan_of(folded_problem(dtype, rows, columns));
  };
  EXPECT_EQ(plan(DType::kFloat64, 634727, 97).width, 97);
  EXPECT_EQ(plan(DType::kBFloat16, 556694, 13).tiles, 1);
  EXPECT_GE(plan(DType::kFloat32, 100000, 317).tiles, 2) << "a third of a block's threads would be idle";
  EXPECT_GE(plan(DType::kFloat32, 100000, 317).width, 64);
  EXPECT_LE(plan(DType::kFloat64, 634727, 97).parts, 2 * (kProcessors * ColumnSumPlan::kBlocks))
      << "few blocks of a third wave";
  for (const auto& [rows, columns] : {std::array<int64_t, 2>{824, 27397}, {168, 62724}, {1024, 20783}}) {
    const ColumnSumPlan folded = plan(DType::kFloat16, rows, columns);
    EXPECT_GE(folded.width, 32);
    EXPECT_LE(folded.tiles * folded.parts, (kProcessors * ColumnSumPlan::kBlocks))
        << "a second wave of few rows";
    EXPECT_GT(folded.tiles * folded.parts, (kProcessors * ColumnSumPlan::kBlocks) * 9 / 10)
        << "idle processors";
  }
}

TEST(FoldedRows, AreTakenWhereRowsAreMany) {
  const auto takes = [](DType dtype, int64_t rows, int64_t columns) {
    return takes_folded_rows(folded_problem(dtype, rows, columns));
  };
  EXPECT_TRUE(takes(DType::kBFloat16, 65536, 769));
  EXPECT_TRUE(takes(DType::kFloat32, 23279, 197));
  EXPECT_TRUE(takes(DType::kFloat64, 256, 1607));
  EXPECT_TRUE(takes(DType::kFloat16, 262144, 7));
  EXPECT_FALSE(takes(DType::kFloat16, 262144, 8)) << "rows of whole units";
  EXPECT_FALSE(takes(DType::kFloat16, 262144, 6)) << "units of three rows";
  EXPECT_FALSE(takes(DType::kFloat16, 500, 65537)) << "few rows";
  EXPECT_FALSE(takes(DType::kFloat32, 1000, 197)) << "a small matrix";
}

}  // namespace
}  // namespace sinter::ops
