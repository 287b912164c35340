// Sums along few rows of 16-bit elements that begin anywhere in a unit, with several vectors
// (ShiftedColumnPlan), and sums along the few columns of many rows, several of which are multiplied as one:
// how they are cut, and the kernels on a GPU against the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/matvec/plan/shifted_column_plan.h>
#include <sinter/ops/matvec/thin_product.h>

#include "ops/gpu_test_support.h"
#include "ops/random_extents.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;
using testing_plans::integer;
using Plan = ShiftedColumnPlan;

TEST(ShiftedColumnPlan, WarpsHaveEveryColumnAndTheirSharedMemory) {
  Generator generator(61);
  for (int i = 0; i < 3000; ++i) {
    const int64_t batch = generator.uniform() < 0.7 ? 1 : integer(generator, 2, 3000);
    const auto outs = static_cast<int64_t>(std::exp2(9 + 17 * generator.uniform()));
    const int64_t terms = integer(generator, 1, Plan::kMostTerms);
    const auto vectors = static_cast<int>(integer(generator, 2, 16));
    SCOPED_TRACE(fmt::format("{} of {} sums of {} with {} vectors", batch, outs, terms, vectors));
    const Plan plan = plan_shifted_columns(batch, outs, terms, vectors);
    ASSERT_GE(plan.rows, terms);
    ASSERT_TRUE(plan.rows == 8 || plan.rows < 2 * terms || plan.rows == 16) << "rows of zeros alone";
    ASSERT_EQ(plan.width % Plan::kGroup, 0);
    ASSERT_LE(plan.width, Plan::most_width(plan.rows));
    ASSERT_GE(plan.tiles * plan.width, outs + 1) << "the column in front of the first one";
    ASSERT_GE(plan.blocks, 1);
    ASSERT_LE(plan.blocks, plan.tiles);
    // Rows begin with any unit of a line, and their last unit lies in shared memory; so do sums, which begin
    // with any element of a unit.
    ASSERT_EQ(plan.line_bytes() % 128, 0);
    ASSERT_GE(plan.line_bytes(), 126 + 2 * plan.width);
    ASSERT_EQ(plan.stage_bytes, terms * plan.line_bytes());
    ASSERT_EQ(plan.sum_bytes % 128, 0);
    ASSERT_GE(plan.sum_bytes, vectors * (2 * plan.width + 14));
    ASSERT_LE(plan.shared_bytes(), 64 * 1024);
  }
}

TEST(ShiftedColumnPlan, FewColumnsAreSpreadOverProcessors) {
  for (const int64_t outs : {40000, 131073, 300001, 20000001}) {
    const Plan plan = plan_shifted_columns(1, outs, 12, 9);
    EXPECT_GE(plan.blocks, std::min<int64_t>(outs / 128, 4 * detail::kProcessors)) << outs;
  }
  EXPECT_EQ(plan_shifted_columns(1, 20000001, 12, 9).width, 256);
}

/// The words of a row that lanes read together, where rows have an odd length or fill two units with four.
TEST(ShiftedColumnPlan, LanesReadWordsFromDifferentBanks) {
  for (const int64_t outs : {1001, 1003, 1005, 1007, 1002, 1006}) {
    const bool odd = outs % 2 != 0;
    std::set<int64_t> banks;
    for (int64_t lane = 0; lane < 32; ++lane) {
      const int64_t row = odd ? 2 * (lane % 4) : lane % 4;
      banks.insert((row * outs / 2 % 32 + lane / 4 * 4) % 32);
    }
    EXPECT_EQ(banks.size(), 32U) << outs;
  }
}

ThinProblem columns_of(int64_t rows, int64_t columns, int vectors) {
  ThinProblem problem{
      .dtype = DType::kBFloat16, .transpose = true, .rows = rows, .columns = columns, .vectors = vectors};
  problem.x_vector = rows;
  problem.y_vector = columns;
  return problem;
}

TEST(FoldedProducts, RowsOfFewColumnsAreMultipliedAsOne) {
  for (int64_t columns = 1; columns < 64; ++columns) {
    for (int vectors = 2; vectors <= 16; ++vectors) {
      const ThinProblem problem = columns_of((int64_t{1} << 22) / columns + 7, columns, vectors);
      SCOPED_TRACE(fmt::format("{} columns, {} vectors", columns, vectors));
      const int fold = many_term_fold(problem);
      const ThinProblem product = many_term_product(problem);
      ASSERT_EQ(takes_many_term_columns(problem), columns * fold >= 40);
      if (!takes_many_term_columns(problem)) continue;
      ASSERT_EQ(product.vectors, fold * vectors);
      ASSERT_LE(product.vectors, kMostStagedVectors);
      ASSERT_EQ(product.columns, fold * columns);
      ASSERT_GE(product.rows * fold, problem.rows);
      ASSERT_LT((product.rows - 1) * fold, problem.rows) << "a term without a row";
      ASSERT_EQ(product.x_element, fold * problem.x_element);
      const ManyTermPlan plan = many_term_plan_of(problem);
      ASSERT_TRUE(fold == 1 || plan.tiles == 1) << "sums of a row in two blocks";
      // Of matrices that begin with no unit, sums may be those of two tiles, whose rows are parts.
      ASSERT_GE(thin_workspace(problem),
                plan.parts * fold == 1 ? size_t{0}
                                       : static_cast<size_t>(plan.parts * fold * columns * vectors) * 4);
    }
  }
  EXPECT_EQ(many_term_fold(columns_of(2097152, 24, 4)), 4);
  EXPECT_EQ(many_term_fold(columns_of(705863, 12, 4)), 4);
  EXPECT_EQ(many_term_fold(columns_of(2097152, 24, 9)), 1);
  EXPECT_EQ(many_term_fold(columns_of(2097152, 40, 2)), 1);
}

class ShiftedColumnsCuda : public GpuTest {};

TEST_F(ShiftedColumnsCuda, FewRowsThatFillNoUnitsAgreeWithTheCpu) {
  for (int64_t rows = 1; rows <= 64; rows += rows < 20 ? 1 : 4) {
    for (int i = 0; i < 8; ++i) {
      SampleMaker maker(static_cast<uint64_t>(61000 + 8 * rows + i),
                        (rows + i) % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
      // Rows of every length modulo 8 (of whole units ones that begin beside these), tiles of all widths.
      const int64_t most[] = {40000, 90000, 200000, 500000};
      const int64_t least = std::max<int64_t>(most[i % 4] / 3, (1 << 15) + 1);
      const int64_t columns = maker.integer(least, most[i % 4]), offset = columns % 8 == 0 ? 3 : 0;
      const bool is_left = i / 2 % 2 == 0;
      const Shape shape = maker.chance(0.25) ? Shape{2, rows, columns / 2 + 300} : Shape{rows, columns};
      check_staged(maker, shape, maker.integer(2, 16), is_left, is_left,
                   maker.chance(0.5) ? offset : maker.integer(1, 9));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ShiftedColumnsCuda, WarpsTakeTileAfterTile) {
  SampleMaker maker(62, DType::kBFloat16);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{2, 3000001},
                                      {4, 2400001},
                                      {7, 1700003},
                                      {9, 1300006},
                                      {16, 1200002},
                                      {31, 900001},
                                      {33, 700003},
                                      {64, 500004}}) {
    check_staged(maker, {rows, columns}, 3, false, false, 0);
    check_staged(maker, {rows, columns}, 13, false, false, 1);
    check_staged(maker, {rows, columns}, 8, true, true, 1);
    check_staged(maker, {rows, columns}, 16, true, true, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ShiftedColumnsCuda, BadValuesStayInTheirColumns) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t rows : {1, 3, 7, 8, 9, 16, 17, 40, 64}) {
    for (const int64_t extra : {1, 2, 4, 5}) {
      const int64_t columns = (1 << 17) + 64 + extra, vectors = rows % 2 == 0 ? 11 : 3;
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10] = host.data<float>()[rows * columns - 1] = nan;
      host.data<float>()[(rows - 1) * columns + 21] = inf;
      if (rows > 1) host.data<float>()[columns] = nan;
      const Tensor x = Tensor::full({vectors, rows}, 0.5);
      const Tensor y =
          matmul(on_gpu(cast(x, DType::kFloat16)), between_nans(cast(host, DType::kFloat16), extra % 2));
      const std::vector<double> values = as_double(y).to_vector<double>();
      for (int64_t i = 0; i < columns * vectors; ++i) {
        const int64_t column = i % columns;
        const double value = values[static_cast<size_t>(i)], whole = static_cast<double>(rows) / 2;
        const bool is_nan = column == 10 || column == columns - 1 || (rows > 1 && column == 0);
        ASSERT_TRUE(is_nan ? std::isnan(value) : value == (column == 21 ? static_cast<double>(inf) : whole))
            << value << " in column " << column << " of " << rows << " rows";
      }
    }
  }
}

TEST_F(ShiftedColumnsCuda, FewColumnsOfManyRowsAgreeWithTheCpu) {
  for (int64_t columns = 3; columns < 40; ++columns) {
    for (int i = 0; i < 3; ++i) {
      SampleMaker maker(static_cast<uint64_t>(63000 + 3 * columns + i),
                        (columns + i) % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
      const int64_t rows = (int64_t{1} << 22) / columns + maker.integer(1, 900);
      const int64_t vectors = std::clamp<int64_t>(maker.integer(2, 8), 2, std::max<int64_t>(columns / 3, 2));
      const bool is_left = maker.chance(0.5);
      const Shape shape = i == 2 ? Shape{2, rows / 2 + 40, columns} : Shape{rows, columns};
      check_staged(maker, shape, vectors, is_left, is_left, maker.chance(0.5) ? 0 : maker.integer(1, 9));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ShiftedColumnsCuda, BadValuesStayInFewColumns) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {12, 13, 24, 31}) {
    const int64_t rows = (1 << 22) / columns + 3, vectors = 3;
    const Tensor host = Tensor::full({rows, columns}, 1.0);
    host.data<float>()[2] = host.data<float>()[rows * columns - 1] = nan;
    host.data<float>()[(rows - 1) * columns + 5] = inf;
    host.data<float>()[columns] = nan;
    const Tensor x = Tensor::full({vectors, rows}, 0.0);
    for (int64_t i = 0; i < vectors * rows; i += 64) x.data<float>()[i] = 0.5;
    for (int64_t v = 0; v < vectors; ++v) {
      for (const int64_t row : {int64_t{0}, int64_t{1}, rows - 1}) x.data<float>()[v * rows + row] = 0.5;
    }
    const Tensor y = matmul(on_gpu(cast(x, DType::kBFloat16)), on_gpu(cast(host, DType::kBFloat16), 1));
    const Tensor sums = matmul(x, Tensor::full({rows, columns}, 1.0));
    const std::vector<double> values = as_double(y).to_vector<double>(),
                              wanted = as_double(sums).to_vector<double>();
    for (int64_t i = 0; i < columns * vectors; ++i) {
      const int64_t column = i % columns;
      const double value = values[static_cast<size_t>(i)], whole = wanted[static_cast<size_t>(i)];
      const bool is_nan = column == 2 || column == columns - 1 || column == 0;
      ASSERT_TRUE(is_nan        ? std::isnan(value)
                  : column == 5 ? value == static_cast<double>(inf)
                                : std::abs(value - whole) <= 0.01 * whole)
          << value << " in column " << column << " of " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace sinter::ops
