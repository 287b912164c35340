// Sums along the columns of few rows: how they are cut for a GPU, and which products are such.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/matvec/plan/few_row_plan.h>
#include <sinter/ops/matvec/thin_product.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

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
    const FewRowPlan plan = plan_few_rows(batch, rows, columns, pack);
    ASSERT_EQ(plan.at_once() * plan.packs, FewRowPlan::kLoads);
    ASSERT_TRUE(plan.packs == 1 || rows * plan.packs <= FewRowPlan::kLoads) << "more than is in flight";
    ASSERT_TRUE(plan.packs == 1 || batch * plan.tiles >= 3 * detail::kProcessors) << "idle processors";
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

/// How often the warps of a ShiftedRowPlan take each column of a matrix whose sums begin `front` elements
/// in front of a unit, and the units that they read in front of and behind a row that begins `shift` elements
/// behind one.
std::vector<int> visits_of_shifted_rows(const ShiftedRowPlan& plan, int64_t columns, int pack, int64_t front,
                                        int64_t shift) {
  std::vector<int> visits(static_cast<size_t>(columns));
  const int64_t whole = std::max<int64_t>((columns - front) / pack - 1, 0) * pack;
  for (int64_t lane = 0; lane < 32; ++lane) {
    const int64_t place = lane < pack ? lane : front + whole + lane - pack;
    if (place < (lane < pack ? std::min(front, columns) : columns)) ++visits[static_cast<size_t>(place)];
  }
  for (int64_t tile = 0; tile < plan.tiles; ++tile) {
    const int64_t column = front + tile * 32 * plan.packs * pack;
    const int64_t units =
        std::clamp<int64_t>(front + whole - column, 0, int64_t{32} * plan.packs * pack) / pack;
    if (units == 0) continue;
    // What is read: aligned units, the last of which has an element of the row.
    const int64_t first = (shift + column) / pack * pack - shift, last = first + units * pack;
    EXPECT_GT(first + pack, 0) << "a unit in front of the row";
    EXPECT_LT(last, columns) << "a unit behind the row";
    for (int64_t i = column; i < column + units * pack; ++i) ++visits[static_cast<size_t>(i)];
  }
  return visits;
}

TEST(ShiftedRowPlan, WarpsTakeEveryColumnOnceAndReadNothingBesideRows) {
  Generator generator(14);
  for (int i = 0; i < 20000; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t batch = integer(generator, 1, 300), rows = integer(generator, 1, 128),
                  columns = extent(generator, i % 10 == 0 ? 18 : 12);
    SCOPED_TRACE(text(batch, rows, columns, pack));
    const ShiftedRowPlan plan = plan_shifted_rows(batch, rows, columns, pack);
    ASSERT_TRUE(plan.packs == 1 || plan.packs == 2 || plan.packs == 4);
    ASSERT_TRUE(plan.rows >= 1 && plan.rows <= ShiftedRowPlan::at_once(plan.packs));
    ASSERT_LE(plan.shared_bytes(), 99 * 1024) << "more than every GPU has";
    ASSERT_LE(plan.warps * 32, ShiftedRowPlan::kMostThreads);
    const int64_t items = batch * plan.tiles;
    ASSERT_LT((plan.blocks - 1) * plan.warps, items) << "an idle block";
    ASSERT_GE(plan.blocks, std::min<int64_t>(items, detail::kProcessors)) << "idle processors";
    ASSERT_LE(plan.blocks, detail::kProcessors * ShiftedRowPlan::kBlocks);
    const std::vector<int> visits = visits_of_shifted_rows(
        plan, columns, pack, integer(generator, 0, pack - 1), integer(generator, 0, pack - 1));
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
    if (HasNonfatalFailure()) return;
  }
}

ThinProblem few_rows(DType dtype, int64_t rows, int64_t columns, int64_t batch = 1) {
  return {.dtype = dtype, .transpose = true, .batch = batch, .rows = rows, .columns = columns};
}

TEST(FewRowPlan, TakesFewLongRows) {
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kFloat16, 7, 13016512)));
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kFloat32, 12, 207797)));
  EXPECT_TRUE(takes_few_rows(few_rows(DType::kBFloat16, 3, 1000, 4000)));
  ThinProblem along_rows = few_rows(DType::kFloat16, 7, 13016512);
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
