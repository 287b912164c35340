// Sums along few long rows of 16-bit elements with several vectors (LongRowProductPlan): how they are cut,
// and the kernel on a GPU against the CPU.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/matmul/thin_matmul.h>
#include <sinter/ops/matvec/plan/long_row_product_plan.h>
#include <sinter/ops/matvec/thin_product.h>
#include <sinter/ops/permute/permute.h>

#include "ops/gpu_test_support.h"
#include "ops/random_extents.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;
using testing_plans::integer;
using Plan = LongRowProductPlan;

TEST(LongRowProductPlan, WarpsHaveEveryTermOnceAndTheirSharedMemory) {
  Generator generator(71);
  for (int i = 0; i < 4000; ++i) {
    const int64_t batch = generator.uniform() < 0.6 ? 1 : integer(generator, 2, 3000);
    const int64_t matrix_rows =
        integer(generator, 1, generator.uniform() < 0.5 ? Plan::kMostRows : Plan::kMostGroupedRows);
    const auto vectors = static_cast<int>(integer(generator, 1, Plan::kMostRows));
    const auto terms = static_cast<int64_t>(std::exp2(12 + 16 * generator.uniform()));
    const bool dense = generator.uniform() < 0.5;
    SCOPED_TRACE(
        fmt::format("{} of {} sums of {} with {} {} vectors", batch, matrix_rows, terms, vectors, dense));
    const Plan plan = plan_long_row_products(batch, matrix_rows, terms, vectors, dense);
    const int64_t rows = plan.group_rows, groups = batch * plan.groups;
    ASSERT_LE(rows, Plan::kMostRows);
    ASSERT_GE(plan.groups * rows, matrix_rows);
    ASSERT_LT((plan.groups - 1) * rows, matrix_rows) << "a group without rows";
    ASSERT_EQ(plan.width % Plan::kStep, 0);
    ASSERT_EQ(plan.width & (plan.width - 1), 0);
    ASSERT_LE(plan.width, 8 * Plan::kStep) << "lines that no lane copies";
    ASSERT_GE(plan.tiles * plan.width, terms);
    ASSERT_LT((plan.tiles - 1) * plan.width, terms) << "a tile without terms";
    ASSERT_GE(plan.parts, 1);
    ASSERT_LE(plan.parts, plan.tiles) << "a part without terms";
    ASSERT_LE(groups * plan.parts, std::max<int64_t>(4 * detail::kProcessors, groups));
    ASSERT_GE(plan.warps, Plan::kSomeWarps);
    ASSERT_LE(plan.warps, Plan::kMostWarps);
    // Rows begin with any element of a line, lanes read a word behind the last, and sums take their stages.
    ASSERT_EQ(plan.stage_bytes % 128, 0);
    ASSERT_GE(Plan::line_bytes(plan.width), 124 + 2 * plan.width + 4);
    ASSERT_GE(plan.stage_bytes, (rows + (dense ? vectors : 0)) * Plan::line_bytes(plan.width));
    ASSERT_GE(plan.stage_bytes - rows * Plan::line_bytes(plan.width), 2 * plan.width * vectors + 126);
    ASSERT_LE(plan.shared_bytes(), 227 * 1024);
    ASSERT_GE(Plan::kStages * plan.stage_bytes, 64 * (rows > 8 ? 2 : 1) * (vectors > 8 ? 2 : 1) * 4);
  }
}

TEST(LongRowProductPlan, FewTermsAreSpreadOverProcessors) {
  for (const int64_t terms : {70913, 167232, 192946, 334843, 37111691}) {
    const Plan plan = plan_long_row_products(1, 13, terms, 10, true);
    EXPECT_EQ(plan.parts, detail::kProcessors) << terms;
    const int64_t most = detail::divide_up(plan.tiles, plan.parts) * plan.width;
    EXPECT_LE(static_cast<double>(most * plan.parts), 1.25 * static_cast<double>(terms)) << terms;
  }
}

/// As a user writes it: a (rows, columns) times x, or x times a^T.
std::optional<ThinProblem> problem_of(const Shape& matrix, int64_t vectors, bool is_left) {
  const int64_t rows = matrix[-2], columns = matrix[-1], batch = matrix.numel() / rows / columns;
  const BatchRun run{.count = batch, .a_step = 1, .b_step = 1};
  const auto thin = is_left ? as_thin({}, DType::kFloat16, rows, vectors, columns, run)
                            : as_thin({.transpose_b = true}, DType::kFloat16, vectors, rows, columns, run);
  if (!thin.has_value()) return std::nullopt;
  return thin->problem;
}

TEST(LongRowProductPlan, FewLongRowsAreTakenInBothOrders) {
  for (int64_t rows = 1; rows <= 16; ++rows) {
    for (int64_t vectors = 2; vectors <= 16; ++vectors) {
      for (const bool is_left : {true, false}) {
        for (const int64_t columns : {70913, 300002, 1000004}) {
          if ((rows + vectors) * columns < (1 << 20)) continue;
          const auto problem = problem_of({rows, columns}, vectors, is_left);
          ASSERT_TRUE(problem.has_value());
          if (problem->vectors == 1) continue;
          SCOPED_TRACE(fmt::format("{} rows {} vectors {} columns {}", rows, vectors, columns, is_left));
          // Those that are taken before.
          if (takes_many_term_columns(*problem) || takes_row_products(*problem)) continue;
          ASSERT_TRUE(takes_long_row_products(*problem));
          const Plan plan = long_row_product_plan_of(*problem);
          ASSERT_EQ(thin_workspace(*problem), static_cast<size_t>(plan.parts * rows * vectors) * 4);
        }
      }
    }
  }
  EXPECT_FALSE(takes_long_row_products(*problem_of({3, 20000}, 3, true)));
  EXPECT_TRUE(takes_long_row_products(*problem_of({127, 200001}, 3, true)));
  EXPECT_FALSE(takes_long_row_products(*problem_of({128, 200001}, 3, true)));
  EXPECT_FALSE(takes_long_row_products(*problem_of({64, 20000}, 3, true))) << "rows that begin alike";
  EXPECT_FALSE(takes_long_row_products(*problem_of({17, 2000001}, 13, true))) << "vectors read from memory";
}

class LongRowProductsCuda : public GpuTest {};

TEST_F(LongRowProductsCuda, FewLongRowsAgreeWithTheCpu) {
  for (int64_t rows = 1; rows <= 16; ++rows) {
    for (int i = 0; i < 16; ++i) {
      SampleMaker maker(static_cast<uint64_t>(71000 + 16 * rows + i),
                        (rows + i) % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
      const int64_t vectors = maker.integer(2, 16), batch = maker.chance(0.25) ? maker.integer(2, 5) : 1;
      // Last tiles of every kind: those that end with a unit, and with some elements of one.
      const int64_t least = std::max<int64_t>((1 << 20) / (rows + vectors) / batch, 8192);
      int64_t columns = (maker.integer(least, 2 * least) / 512 + 1) * 512 + maker.integer(-9, 70);
      if (maker.chance(0.3)) columns = columns / 8 * 8;
      const Shape shape = batch > 1 ? Shape{batch, rows, columns} : Shape{rows, columns};
      const bool is_left = i % 2 == 0;
      check_staged(maker, shape, vectors, is_left, !is_left, maker.chance(0.5) ? 0 : maker.integer(1, 9));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LongRowProductsCuda, GroupsOfLongRowsAgreeWithTheCpu) {
  for (int i = 0; i < 48; ++i) {
    SampleMaker maker(static_cast<uint64_t>(74000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    const int64_t rows = maker.integer(Plan::kMostRows + 1, Plan::kMostGroupedRows),
                  batch = maker.chance(0.25) ? maker.integer(2, 5) : 1;
    int64_t columns = std::max<int64_t>((1 << 21) / rows / batch, 8192) + maker.integer(0, 4000);
    columns = rows < 32 ? columns / 4 * 4 + 2 : columns | 1;  // so that few rows begin alike
    const Shape shape = batch > 1 ? Shape{batch, rows, columns} : Shape{rows, columns};
    const bool is_left = i % 4 < 2;
    check_staged(maker, shape, maker.integer(2, 16), is_left, !is_left,
                 maker.chance(0.5) ? 0 : maker.integer(1, 9));
    if (HasFatalFailure()) return;
  }
}

TEST_F(LongRowProductsCuda, WarpsTakeTileAfterTile) {
  SampleMaker maker(72, DType::kFloat16);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 5000001},
                                      {2, 4000002},
                                      {3, 4000004},
                                      {5, 3000008},
                                      {7, 2000005},
                                      {11, 1500003},
                                      {16, 1200001}}) {
    check_staged(maker, {rows, columns}, 3, true, false, 0);
    check_staged(maker, {rows, columns}, 13, true, false, 1);
    check_staged(maker, {rows, columns}, 8, false, true, 0);
    check_staged(maker, {rows, columns}, 15, false, true, 1);
    if (HasFatalFailure()) return;
  }
}

TEST_F(LongRowProductsCuda, ManyMatricesAndABias) {
  SampleMaker maker(73, DType::kBFloat16);
  check_staged(maker, {150, 3, 9001}, 5, true, false, 0);
  check_staged(maker, {40, 7, 12346}, 12, false, true, 1);
  check_staged(maker, {300, 2, 8200}, 2, false, true, 0);
  for (const auto& [outs, vectors] : {std::pair<int64_t, int64_t>{5, 11}, {11, 5}, {16, 3}, {41, 7}}) {
    const Tensor w = maker.tensor({outs, 200003}, -1, 1), x = maker.tensor({vectors, 200003}, -1, 1),
                 bias = maker.tensor({outs}, -20, 20);
    const Tensor y = linear(on_gpu(x), on_gpu(w), on_gpu(bias));
    expect_close(y, linear(as_double(x), as_double(w), as_double(bias)), 200003);
  }
}

/// NaN at both ends of a row and of a vector, and an infinity: in sums of theirs alone.
TEST_F(LongRowProductsCuda, BadValuesStayInTheirSums) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t rows : {3, 6, 8, 9, 15, 21, 35}) {
    for (const int64_t vectors : {4, 7, 12}) {
      for (const int64_t extra : {1, 2, 7, 8, 36}) {
        const int64_t columns = (1 << 17) + extra;
        const Tensor host = Tensor::full({rows, columns}, 1.0), x = Tensor::full({vectors, columns}, 0.0);
        for (int64_t i = 0; i < vectors * columns; ++i)
          x.data<float>()[i] = i % columns % 64 == 0 ? 0.5F : 0.0F;
        const double whole = static_cast<double>((columns + 63) / 64) / 2;
        host.data<float>()[columns] = host.data<float>()[3 * columns - 1] = nan;
        host.data<float>()[64] = inf;
        x.data<float>()[columns] = nan;
        const bool is_left = extra % 2 == 0;
        const Tensor a = between_nans(cast(host, DType::kFloat16), extra % 3);
        const Tensor right =
            between_nans(cast(is_left ? permute(x, {1, 0}) : x, DType::kFloat16), extra % 5 == 1 ? 1 : 0);
        const Tensor y = is_left ? matmul(a, right) : matmul(a, right, {.transpose_b = true});
        const std::vector<double> values = as_double(y).to_vector<double>();
        for (int64_t i = 0; i < rows * vectors; ++i) {
          const int64_t row = i / vectors;
          const double value = values[static_cast<size_t>(i)];
          const bool is_nan = row == 1 || row == 2 || i % vectors == 1;
          ASSERT_TRUE(is_nan     ? std::isnan(value)
                      : row == 0 ? value == static_cast<double>(inf)
                                 : std::abs(value - whole) <= 1)
              << value << " in row " << row << ", vector " << i % vectors << " of " << columns << " columns";
        }
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
