// Products with a few vectors: how they are cut for a GPU, and which matrix products are such.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/gemv/plan/row_plan.h>
#include <sinter/ops/matmul/as_gemv.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using testing_plans::integer;

constexpr int kCases = 100000;
constexpr int64_t kProcessors = 132;  // of an H100

/// Up to 2^most, small ones as likely as large ones, now and then 0.
int64_t extent(Generator& generator, int most) {
  if (generator.uniform() < 0.01) return 0;
  return static_cast<int64_t>(
      std::exp2(generator.uniform() * static_cast<double>(integer(generator, 1, most))));
}

int random_pack(Generator& generator) {
  return 1 << integer(generator, 0, 3);
}

bool is_power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

TEST(GemvPlan, RowSumsTakeEveryPackOnce) {
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t rows = std::max<int64_t>(extent(generator, 30), 1), columns = extent(generator, 24) * pack;
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " pack " + std::to_string(pack));
    const bool wide = generator.uniform() < 0.5;
    const int group_rows = generator.uniform() < 0.5 ? 1 : RowSumPlan::kGroupRows;
    const int least_lanes = group_rows == 1 ? 1 : 1 << integer(generator, 2, 3);
    const RowSumPlan plan = plan_row_sums(kProcessors, rows, columns, pack, wide, group_rows, least_lanes);
    ASSERT_EQ(plan.packs * plan.pack, columns);
    ASSERT_EQ(plan.rows_per_block(), RowSumPlan::kThreads / plan.lanes * group_rows);
    ASSERT_GE(plan.lanes, least_lanes);
    ASSERT_TRUE(is_power_of_two(plan.lanes) && plan.lanes <= 32) << plan.lanes;
    ASSERT_TRUE(!plan.at_once || (plan.parts == 1 && plan.packs <= plan.lanes * plan.unroll));
    ASSERT_TRUE(plan.at_once || plan.lanes == 32);
    ASSERT_GE(plan.parts, 1);
    ASSERT_LE(plan.parts, 65535);
    ASSERT_GE(plan.parts * plan.part_packs, plan.packs);
    ASSERT_LE((plan.parts - 1) * plan.part_packs, std::max<int64_t>(plan.packs - 1, 0)) << "an empty part";
    ASSERT_LE(plan.lanes, std::max<int64_t>(2 * std::max<int64_t>(plan.packs, 1), least_lanes))
        << "most lanes are idle";
    // Rows are cut only if they are few: the table of partial sums stays small.
    if (plan.parts > 1) {
      ASSERT_LE(plan.parts * rows,
                int64_t{2} * (kProcessors * detail::kBlocksOfProcessor) * RowSumPlan::kThreads * group_rows);
    }
    if (columns > 5000 || i % 10 != 0) continue;
    std::vector<int> visits(static_cast<size_t>(plan.packs));
    for (int64_t part = 0; part < plan.parts; ++part) {
      const int64_t begin = part * plan.part_packs, end = std::min(begin + plan.part_packs, plan.packs);
      for (int lane = 0; lane < plan.lanes; ++lane) {
        for (int64_t first = begin + lane; first < end; first += int64_t{plan.lanes} * plan.unroll) {
          for (int u = 0; u < plan.unroll; ++u) {
            if (first + u * plan.lanes < end) ++visits[static_cast<size_t>(first + u * plan.lanes)];
          }
        }
      }
    }
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
  }
}

TEST(GemvPlan, ColumnSumsTakeEveryRowAndPackOnce) {
  Generator generator(2);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t matrices = std::max<int64_t>(extent(generator, 12), 1), rows = extent(generator, 24),
                  columns = std::max<int64_t>(extent(generator, 20), 1) * pack;
    SCOPED_TRACE(std::to_string(matrices) + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                 " pack " + std::to_string(pack));
    const ColumnSumPlan plan = plan_column_sums(kProcessors, matrices, rows, columns, pack);
    ASSERT_GE(plan.width, 1);
    ASSERT_LE(plan.width * plan.pack, ColumnSumPlan::kThreads) << "a thread writes one sum at most";
    ASSERT_LE(plan.width * plan.depth(), ColumnSumPlan::kThreads);
    ASSERT_GT(plan.width * (plan.depth() + 1), ColumnSumPlan::kThreads) << "threads without rows";
    ASSERT_GE(plan.tiles * plan.width * pack, columns);
    ASSERT_LT((plan.tiles - 1) * plan.width * pack, columns) << "a block without columns";
    ASSERT_LT(plan.tiles * plan.width - columns / pack, plan.tiles) << "tiles of unequal width";
    ASSERT_GE(plan.parts, 1);
    ASSERT_LE(plan.parts, 65535);
    ASSERT_GE(plan.parts * plan.part_rows, rows);
    ASSERT_LE((plan.parts - 1) * plan.part_rows, std::max<int64_t>(rows - 1, 0)) << "an empty part";
    if (plan.parts > 1) {
      ASSERT_EQ(plan.part_rows % (ColumnSumPlan::kAtOnce * plan.depth()), 0) << "threads with fewer rows";
      ASSERT_LE(plan.parts * matrices * plan.tiles, 2 * 8192) << "a table larger than the GPU can use";
    }
    if (matrices > 8 || plan.tiles > 8 || rows > 3000 || i % 10 != 0) continue;
    std::vector<int> visits(static_cast<size_t>(rows * plan.tiles * plan.width));
    for (int64_t part = 0; part < plan.parts; ++part) {
      const int64_t end = std::min((part + 1) * plan.part_rows, rows);
      for (int below = 0; below < plan.depth(); ++below) {
        for (int64_t row = part * plan.part_rows + below; row < end; row += plan.depth()) {
          for (int64_t column = 0; column < plan.tiles * plan.width; ++column) {
            ++visits[static_cast<size_t>(row * plan.tiles * plan.width + column)];
          }
        }
      }
    }
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
  }
}

TEST(GemvPlan, LongColumnSumsLeaveNoFewBlocksForASecondWave) {
  Generator generator(4);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t matrices = integer(generator, 1, 3), rows = integer(generator, 100000, 4000000),
                  columns = integer(generator, 1, 40) * pack;
    SCOPED_TRACE(std::to_string(matrices) + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                 " pack " + std::to_string(pack));
    const ColumnSumPlan plan = plan_column_sums(kProcessors, matrices, rows, columns, pack);
    const int64_t blocks = matrices * plan.tiles * plan.parts, wave = (kProcessors * ColumnSumPlan::kBlocks);
    if (plan.part_rows < int64_t{8} * ColumnSumPlan::kAtOnce * plan.depth()) continue;
    ASSERT_FALSE(blocks > wave && blocks <= wave + wave / 4) << blocks << " blocks";
  }
}

TEST(GemvPlan, ColumnSumsOfFewBatchesFillWholeWaves) {
  // A batch of rows to a thread, and four waves of blocks, cost three starts and a second kernel too much.
  for (const auto& [matrices, rows, columns] : {std::array<int64_t, 3>{1, 512, 32768}, {2, 2048, 4096}}) {
    const ColumnSumPlan plan = plan_column_sums(kProcessors, matrices, rows, columns, 8);
    EXPECT_EQ(matrices * plan.tiles * plan.parts, 256) << rows << " x " << columns;
    EXPECT_GE(plan.part_rows, 512);
  }
}

TEST(GemvProblem, SeveralVectorsTakeRowsInGroupsWhereTheseAreMany) {
  Generator generator(6);
  int grouped = 0;
  for (int i = 0; i < kCases / 10; ++i) {
    GemvProblem problem{.batch = integer(generator, 1, 3),
                        .rows = std::max<int64_t>(extent(generator, 18), 1),
                        .columns = std::max<int64_t>(extent(generator, 14), 1),
                        .vectors = static_cast<int>(integer(generator, 2, kMostGemvVectors)),
                        .processors = kProcessors};
    problem.x_vector = problem.columns;
    if (!can_gemv(problem)) {
      ASSERT_TRUE(problem.vectors > kMostOtherVectors && problem.batch > 1 && problem.rows % 4 != 0);
      continue;
    }
    for (int pack = 1; pack <= 4 && problem.columns % pack == 0; pack *= 2) {
      const RowSumPlan plan = row_plan_of(problem, pack);
      const int64_t rows = problem.batch * problem.rows,
                    blocks = (rows + plan.rows_per_block() - 1) / plan.rows_per_block();
      if (plan.group_rows > 1) {
        ++grouped;
        ASSERT_TRUE(problem.batch == 1 || problem.rows % plan.group_rows == 0) << "a group of two matrices";
        // The kernel writes up to four sums of a lane.
        ASSERT_GE(4 * plan.lanes, plan.group_rows * (problem.vectors > 4 ? 8 : 4));
        ASSERT_TRUE(problem.vectors > kMostOtherVectors || blocks * plan.parts >= kProcessors);
      } else {
        ASSERT_LE(problem.vectors, kMostOtherVectors) << "there is no such kernel";
      }
      if (plan.parts == 1) continue;
      ASSERT_GE(gemv_workspace(problem),
                static_cast<size_t>(plan.parts * rows * problem.vectors) * sizeof(float));
    }
  }
  EXPECT_GT(grouped, kCases / 40);
}

TEST(GemvProblem, ASingleColumnIsARow) {
  const GemvProblem column{
      .transpose = true, .batch = 3, .rows = 100, .columns = 1, .a_stride = 100, .processors = kProcessors};
  const GemvProblem row = without_single_column(column);
  EXPECT_FALSE(row.transpose);
  EXPECT_EQ(row.rows, 1);
  EXPECT_EQ(row.columns, 100);
  EXPECT_EQ(row.a_stride, 100);
  EXPECT_EQ(row.out(), column.out());
  EXPECT_EQ(row.in(), column.in());
  EXPECT_TRUE(without_single_column({.transpose = true, .rows = 100, .columns = 2, .processors = kProcessors})
                  .transpose);
}

TEST(GemvProblem, ALongColumnThatIsScaledIsARow) {
  const GemvProblem column{.batch = 3,
                           .rows = 1000000,
                           .columns = 1,
                           .a_stride = 1000000,
                           .x_stride = 1,
                           .processors = kProcessors};
  const GemvProblem row = without_single_column(column);
  EXPECT_TRUE(row.transpose);
  EXPECT_EQ(row.rows, 1);
  EXPECT_EQ(row.columns, 1000000);
  EXPECT_EQ(row.x_stride, 1);
  EXPECT_EQ(row.out(), column.out());
  EXPECT_EQ(row.in(), column.in());
  EXPECT_TRUE(takes_few_rows(row));
  EXPECT_FALSE(without_single_column({.rows = 100, .columns = 1, .processors = kProcessors}).transpose)
      << "a short one";
  EXPECT_FALSE(without_single_column({.rows = 1000000, .columns = 2, .processors = kProcessors}).transpose);
}

/// op(a) op(b) of one batch item by the definition of GemvProblem.
std::vector<int64_t> multiply(const GemvMatmul& gemv, const std::vector<int64_t>& a,
                              const std::vector<int64_t>& b, int64_t size) {
  const GemvProblem& p = gemv.problem;
  const std::vector<int64_t>&matrix = gemv.swapped ? b : a, &x = gemv.swapped ? a : b;
  std::vector<int64_t> y(static_cast<size_t>(size), -1);
  for (int64_t item = 0; item < p.batch; ++item) {
    for (int v = 0; v < p.vectors; ++v) {
      for (int64_t out = 0; out < p.out(); ++out) {
        int64_t sum = 0;
        for (int64_t in = 0; in < p.in(); ++in) {
          const int64_t element = p.transpose ? in * p.columns + out : out * p.columns + in;
          sum += matrix.at(static_cast<size_t>(item * p.a_stride + element)) *
                 x.at(static_cast<size_t>(item * p.x_stride + v * p.x_vector + in * p.x_element));
        }
        y.at(static_cast<size_t>(item * p.out() * p.vectors + v * p.y_vector + out * p.y_element)) = sum;
      }
    }
  }
  return y;
}

TEST(GemvMatmul, IsTheProductOfTheMatrices) {
  Generator generator(3);
  int taken = 0;
  for (int i = 0; i < kCases; ++i) {
    const int64_t m = integer(generator, 1, 7), n = integer(generator, 1, 7), k = integer(generator, 0, 9);
    const MatmulOptions options{generator.uniform() < 0.5, generator.uniform() < 0.5};
    BatchRun run{.count = integer(generator, 1, 3)};
    run.a_step = run.count > 1 ? integer(generator, 0, 1) : 0;
    run.b_step = run.count > 1 ? integer(generator, 0, 1) : 0;
    const auto product = as_gemv(options, DType::kFloat32, m, n, k, run);
    ASSERT_FALSE(std::min(m, n) > kMostGemvVectors && product.has_value());
    if (!product) continue;
    ++taken;
    const auto values = [&](int64_t count) {
      std::vector<int64_t> result(static_cast<size_t>(count));
      for (int64_t& value : result) value = integer(generator, -9, 9);
      return result;
    };
    const std::vector<int64_t> a = values((run.a_step * (run.count - 1) + 1) * m * k),
                               b = values((run.b_step * (run.count - 1) + 1) * k * n);
    std::vector<int64_t> expected;
    for (int64_t item = 0; item < run.count; ++item) {
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t column = 0; column < n; ++column) {
          int64_t sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            const int64_t left =
                item * run.a_step * m * k + (options.transpose_a ? l * m + row : row * k + l);
            const int64_t right =
                item * run.b_step * k * n + (options.transpose_b ? column * k + l : l * n + column);
            sum += a[static_cast<size_t>(left)] * b[static_cast<size_t>(right)];
          }
          expected.push_back(sum);
        }
      }
    }
    ASSERT_EQ(multiply(*product, a, b, run.count * m * n), expected)
        << m << " " << n << " " << k << " " << options.transpose_a << options.transpose_b;
  }
  EXPECT_GT(taken, kCases / 2);
}

TEST(GemvMatmul, VectorsAreTaken) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      EXPECT_TRUE(as_gemv({transpose_a, transpose_b}, DType::kFloat16, 100, 1, 33, {.count = 1}));
      EXPECT_TRUE(as_gemv({transpose_a, transpose_b}, DType::kFloat16, 1, 100, 33, {.count = 1}));
    }
  }
  EXPECT_TRUE(as_gemv({}, DType::kFloat16, 100, 4, 33, {.count = 1}));
  EXPECT_FALSE(as_gemv({}, DType::kFloat16, 100, 5, 33, {.count = 1}));
  for (const int64_t vectors : {5, 6, 7, 8}) {
    EXPECT_TRUE(as_gemv({.transpose_b = true}, DType::kFloat32, vectors, 101, 33, {.count = 1})) << vectors;
    EXPECT_TRUE(as_gemv({.transpose_a = true}, DType::kFloat32, 101, vectors, 33, {.count = 1})) << vectors;
    EXPECT_FALSE(as_gemv({.transpose_b = true}, DType::kFloat64, vectors, 101, 33, {.count = 1}));
  }
  EXPECT_TRUE(as_gemv({}, DType::kFloat32, 101, 8, 33, {.count = 1}));
  EXPECT_FALSE(as_gemv({}, DType::kFloat32, 101, 7, 33, {.count = 1})) << "vectors side by side";
  EXPECT_FALSE(as_gemv({}, DType::kFloat32, 101, 9, 33, {.count = 1}));
}

}  // namespace
}  // namespace sinter::ops
