// Sums along very few columns that fill no units: how they are cut for a GPU, and which products are such.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/matvec/plan/narrow_column_plan.h>
#include <sinter/ops/matvec/thin_product.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

ThinProblem narrow(DType dtype, int64_t rows, int64_t columns, int64_t batch = 1) {
  return {.dtype = dtype,
          .transpose = true,
          .batch = batch,
          .rows = rows,
          .columns = columns,
          .a_stride = rows * columns,
          .x_stride = rows};
}

TEST(NarrowColumnPlan, FoldsAreWholeUnitsInDifferentBanks) {
  for (const int pack : {2, 4, 8}) {
    for (int columns = 2; columns <= NarrowColumnPlan::most_columns(pack); ++columns) {
      if (columns % pack == 0) continue;
      SCOPED_TRACE(fmt::format("{} columns, pack {}", columns, pack));
      const int fold = NarrowColumnPlan::fold(columns, pack), units = NarrowColumnPlan::units(columns, pack);
      EXPECT_EQ(fold * columns, units * pack);
      EXPECT_EQ(units % 2, 1) << "lanes' folds begin in the same banks";
      EXPECT_GT(fold, 1);
      // Every row begins with a unit after less than a fold, if the matrix begins at a multiple of what rows
      // and units have in common.
      for (int begin = 0; begin < pack; begin += pack / fold) {
        int front = 0;
        while (front < fold && (begin + front * columns) % pack != 0) ++front;
        EXPECT_LT(front, fold) << begin;
      }
      const int bytes = NarrowColumnPlan::kThreads / 32 * NarrowColumnPlan::stages(columns, pack) * 512 *
                        units * NarrowColumnPlan::times(columns, pack);
      EXPECT_LE(bytes, (units > 13 ? 200 : 111) * 1024) << "fewer blocks of a processor than the plan has";
    }
  }
}

TEST(NarrowColumnPlan, HasScratchForPartsThatAreNotEmpty) {
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};
  Generator generator(3);
  int taken = 0;
  for (int i = 0; i < 100000; ++i) {
    const ThinProblem problem = narrow(kDTypes[i % 4], extent(generator, 26), integer(generator, 1, 17),
                                       generator.uniform() < 0.6 ? 1 : extent(generator, 8));
    if (!takes_narrow_columns(problem) || is_staged(problem) || takes_few_rows(problem)) continue;
    ++taken;
    SCOPED_TRACE(fmt::format("{} of {} x {}", problem.batch, problem.rows, problem.columns));
    const auto columns = static_cast<int>(problem.columns);
    const int pack = unit_elements(problem);
    const NarrowColumnPlan plan = plan_narrow_columns(problem.batch, problem.rows, columns, pack);
    const int64_t chunk_rows =
        int64_t{32} * NarrowColumnPlan::times(columns, pack) * NarrowColumnPlan::fold(columns, pack);
    ASSERT_TRUE(plan.parts == 1 || plan.parts * chunk_rows * 8 <= problem.rows) << "idle warps";
    ASSERT_LE(plan.parts, 2 * detail::kProcessors);
    if (plan.parts == 1) continue;
    const int64_t sums = problem.batch * problem.columns * plan.parts;
    ASSERT_GE(thin_workspace(problem), static_cast<size_t>(sums) * size_of(accumulate_dtype(problem.dtype)));
  }
  EXPECT_GT(taken, 1000);
}

TEST(NarrowColumnPlan, TakesVeryFewColumnsThatFillNoUnits) {
  EXPECT_TRUE(takes_narrow_columns(narrow(DType::kBFloat16, 9109050, 6)));
  EXPECT_TRUE(takes_narrow_columns(narrow(DType::kFloat16, 111427, 11, 23)));
  EXPECT_TRUE(takes_narrow_columns(narrow(DType::kFloat32, 1048576, 2)));
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat32, 1048576, 4))) << "whole units";
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat32, 1048576, 9))) << "more columns";
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat16, 9109050, 17)));
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat16, 10000, 6))) << "a small matrix";
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat16, 100, 6, 9109050))) << "small matrices";
  EXPECT_FALSE(takes_narrow_columns(narrow(DType::kFloat16, 9109050, 1))) << "a row";
  ThinProblem other = narrow(DType::kBFloat16, 9109050, 6);
  other.transpose = false;
  EXPECT_FALSE(takes_narrow_columns(other)) << "sums along rows";
  other = narrow(DType::kBFloat16, 9109050, 6);
  other.x_element = 2;
  EXPECT_FALSE(takes_narrow_columns(other)) << "gaps in x";
}

}  // namespace
}  // namespace sinter::ops
