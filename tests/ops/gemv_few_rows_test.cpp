// Sums along the columns of few rows: how they are cut for a GPU, and which products are such.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/gemv/gemv_problem.h>
#include <sinter/ops/gemv/plan/column_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

constexpr int64_t kProcessors = 132;  // of an H100

std::string text(int64_t batch, int64_t rows, int64_t columns, int pack) {
  return std::to_string(batch) + " of " + std::to_string(rows) + " x " + std::to_string(columns) + " pack " +
         std::to_string(pack);
}

TEST(FewRowPlan, ThreadsTakeEveryColumnOnce) {
  Generator generator(4);
  for (int i = 0; i < 2000; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t batch = integer(generator, 1, 300), rows = integer(generator, 1, 40),
                  columns = extent(generator, 17);
    SCOPED_TRACE(text(batch, rows, columns, pack));
    const FewRowPlan plan = plan_few_rows(kProcessors, batch, rows, columns, pack);
    ASSERT_EQ(plan.at_once() * plan.packs, FewRowPlan::kLoads);
    ASSERT_TRUE(plan.packs == 1 || rows * plan.packs <= FewRowPlan::kLoads) << "more than is in flight";
    ASSERT_TRUE(plan.packs == 1 || batch * plan.tiles >= 3 * kProcessors) << "idle processors";
    std::vector<int> visits(static_cast<size_t>(columns));
    for (int64_t tile = 0; tile < plan.tiles; ++tile) {
      int64_t taken = 0;
      for (int thread = 0; thread < FewRowPlan::kThreads; ++thread) {
        for (int k = 0; k < plan.packs; ++k) {
          const int64_t first = ((tile * plan.packs + k) * FewRowPlan::kThreads + thread) * pack;
          for (int64_t column = first; column < std::min(first + pack, columns); ++column, ++taken) {
            ++visits[static_cast<size_t>(column)];
          }
        }
      }
      ASSERT_GT(taken, 0) << "a block without columns";
    }
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
  }
}

GemvProblem few_rows(DType dtype, int64_t rows, int64_t columns, int64_t batch = 1) {
  return {.dtype = dtype,
          .transpose = true,
          .batch = batch,
          .rows = rows,
          .columns = columns,
          .processors = kProcessors};
}

TEST(FewRowPlan, TakesFewLongRows) {
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kFloat16, 7, 13016512)));
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kFloat32, 12, 207797)));
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kBFloat16, 3, 1000, 4000)));
  GemvProblem along_rows = few_rows(DType::kFloat16, 7, 13016512);
  along_rows.transpose = false;
  EXPECT_FALSE(takes_few_rows(along_rows));
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kFloat16, 1, 524288))) << "very few rows";
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kBFloat16, 15, 55439)));
  EXPECT_FALSE(takes_few_rows(few_rows(DType::kBFloat16, 17, 55439))) << "too few threads";
  EXPECT_FALSE(takes_few_rows(few_rows(DType::kFloat16, 7, 13016))) << "too few threads";
  EXPECT_FALSE(takes_few_rows(few_rows(DType::kFloat16, 700, 1301651))) << "many rows";
  EXPECT_FALSE(takes_few_rows(few_rows(DType::kFloat16, 0, 1301651))) << "empty sums";
}

}  // namespace
}  // namespace sinter::ops
