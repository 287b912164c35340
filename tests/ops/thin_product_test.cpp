// Products with a few vectors: how they are cut for a GPU, and which matrix products are such.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/matmul/thin_matmul.h>
#include <sinter/ops/matvec/plan/thin_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using testing_plans::integer;

constexpr int kCases = 100000;

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

TEST(ThinPlan, RowSumsTakeEveryPackOnce) {
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t rows = std::max<int64_t>(extent(generator, 30), 1), columns = extent(generator, 24) * pack;
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " pack " + std::to_string(pack));
    const bool wide = generator.uniform() < 0.5;
    const RowSumPlan plan = plan_row_sums(rows, columns, pack, wide);
    ASSERT_EQ(plan.packs * plan.pack, columns);
    ASSERT_TRUE(is_power_of_two(plan.lanes) && plan.lanes <= 32) << plan.lanes;
    ASSERT_TRUE(!plan.at_once || (plan.parts == 1 && plan.packs <= plan.lanes * plan.unroll));
    ASSERT_TRUE(plan.at_once || plan.lanes == 32);
    ASSERT_GE(plan.parts, 1);
    ASSERT_LE(plan.parts, 65535);
    ASSERT_GE(plan.parts * plan.part_packs, plan.packs);
    ASSERT_LE((plan.parts - 1) * plan.part_packs, std::max<int64_t>(plan.packs - 1, 0)) << "an empty part";
    ASSERT_LE(plan.lanes, 2 * std::max<int64_t>(plan.packs, 1)) << "most lanes are idle";
    // Rows are cut only if they are few: the table of partial sums stays small.
    if (plan.parts > 1) {
      ASSERT_LE(plan.parts * rows, int64_t{2} * detail::kThinBlocks * RowSumPlan::kThreads);
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

TEST(ThinPlan, ColumnSumsTakeEveryRowAndPackOnce) {
  Generator generator(2);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t matrices = std::max<int64_t>(extent(generator, 12), 1), rows = extent(generator, 24),
                  columns = std::max<int64_t>(extent(generator, 20), 1) * pack;
    SCOPED_TRACE(std::to_string(matrices) + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                 " pack " + std::to_string(pack));
    const ColumnSumPlan plan = plan_column_sums(matrices, rows, columns, pack);
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

TEST(ThinPlan, LongColumnSumsLeaveNoFewBlocksForASecondWave) {
  Generator generator(4);
  for (int i = 0; i < kCases; ++i) {
    const int pack = random_pack(generator);
    const int64_t matrices = integer(generator, 1, 3), rows = integer(generator, 100000, 4000000),
                  columns = integer(generator, 1, 40) * pack;
    SCOPED_TRACE(std::to_string(matrices) + " of " + std::to_string(rows) + " x " + std::to_string(columns) +
                 " pack " + std::to_string(pack));
    const ColumnSumPlan plan = plan_column_sums(matrices, rows, columns, pack);
    const int64_t blocks = matrices * plan.tiles * plan.parts, wave = ColumnSumPlan::kWave;
    if (plan.part_rows < int64_t{8} * ColumnSumPlan::kAtOnce * plan.depth()) continue;
    ASSERT_FALSE(blocks > wave && blocks <= wave + wave / 4) << blocks << " blocks";
  }
}

TEST(ThinPlan, ColumnSumsOfFewBatchesFillWholeWaves) {
  // A batch of rows to a thread, and four waves of blocks, cost three starts and a second kernel too much.
  for (const auto& [matrices, rows, columns] : {std::array<int64_t, 3>{1, 512, 32768}, {2, 2048, 4096}}) {
    const ColumnSumPlan plan = plan_column_sums(matrices, rows, columns, 8);
    EXPECT_EQ(matrices * plan.tiles * plan.parts, 256) << rows << " x " << columns;
    EXPECT_GE(plan.part_rows, 512);
  }
}

/// The rows of 64 that a lane of packed products has, and the word where each begins: as the kernel has them.
struct PackedLane {
  int64_t terms;
  int log_step, lane;

  bool odd() const { return terms % 2 != 0; }
  int64_t row(int q) const {
    const int64_t g = lane / 4;
    if (odd()) return 8 * g + 2 * (q % 4) + q / 4;
    return (g << log_step) + (q & ((1 << log_step) - 1)) + (int64_t{q >> log_step} << (log_step + 3));
  }
  int64_t word(int q) const { return row(q) * terms / 2 + lane % 4; }
};

TEST(ThinPlan, PackedProductsTakeEveryRowOnceFromDifferentBanks) {
  Generator generator(5);
  for (int64_t terms = 1; terms <= PackedProductPlan::kMostTerms; ++terms) {
    SCOPED_TRACE(terms);
    const auto vectors = static_cast<int>(integer(generator, 2, 16));
    const int64_t batch = integer(generator, 1, 20), rows = integer(generator, 1, 3000000);
    const PackedProductPlan plan = plan_packed_products(batch, rows, terms, vectors);
    ASSERT_GE(16 * plan.steps, terms + terms % 2);
    ASSERT_LT(16 * (plan.steps / 2), std::max<int64_t>(terms + terms % 2, 2)) << "words that are not masked";
    ASSERT_GE(plan.groups * plan.times * PackedProductPlan::kRows, rows);
    ASSERT_LT((plan.groups - 1) * plan.times * PackedProductPlan::kRows, rows) << "an empty group";
    ASSERT_LE(plan.shared_bytes(), 99 * 1024) << "more than every GPU has";
    ASSERT_GE(plan.sum_bytes, 2 * 16 * plan.steps) << "what is read behind the last row is not there";
    ASSERT_LE((plan.blocks - 1) * (PackedProductPlan::kThreads / 32), plan.groups - 1) << "an idle block";
    std::vector<int> visits(PackedProductPlan::kRows);
    for (int q = 0; q < 8; ++q) {
      std::vector<int> words(32);
      for (int lane = 0; lane < 32; ++lane) {
        const PackedLane place{terms, plan.log_step, lane};
        if (lane % 4 == 0) ++visits.at(static_cast<size_t>(place.row(q)));
        ++words.at(static_cast<size_t>(place.word(q) % 32));
      }
      if (terms % 16 != 0) {
        ASSERT_EQ(words, std::vector<int>(32, 1));
      }
    }
    ASSERT_EQ(visits, std::vector<int>(PackedProductPlan::kRows, 1));
  }
}

TEST(ThinPlan, ManyTermsAreTakenOnceByBlocksThatAreNotTooFew) {
  Generator generator(6);
  for (int i = 0; i < kCases; ++i) {
    const int64_t batch = std::max<int64_t>(extent(generator, 8), 1),
                  outs = std::max<int64_t>(extent(generator, 17), 48);
    const int64_t terms = std::max<int64_t>(extent(generator, 24), (int64_t{1} << 22) / outs / batch + 65);
    const auto vectors = static_cast<int>(integer(generator, 2, 16));
    SCOPED_TRACE(std::to_string(batch) + " of " + std::to_string(outs) + " sums of " + std::to_string(terms));
    const ManyTermPlan plan = plan_many_terms(batch, outs, terms, vectors);
    ASSERT_GE(plan.tiles * plan.width, outs);
    ASSERT_LT((plan.tiles - 1) * plan.width, outs) << "a tile without columns";
    ASSERT_EQ(plan.width % 8, 0);
    ASSERT_LE(plan.width + (outs % 8 == 0 ? 0 : 7), 8 * plan.units)
        << "columns that a tile's units do not hold";
    ManyTermPlan other = plan;  // of matrices that begin anywhere, on a GPU with little shared memory
    other.cut(outs, ManyTermPlan::kNarrowUnits, false);
    ASSERT_LE(other.width + 7, 8 * other.units);
    ASSERT_TRUE(other.tiles * other.width >= outs && (other.tiles - 1) * other.width < outs);
    ASSERT_EQ(other.parts, plan.parts) << "a table without room for all parts";
    const int64_t rounds = detail::divide_up(terms, ManyTermPlan::kRound);
    ASSERT_LE(plan.parts, rounds) << "an empty part";
    ASSERT_LE(plan.parts, 65535);
    // No few processors while there are terms to share out.
    const int64_t blocks = batch * plan.tiles * plan.parts;
    ASSERT_TRUE(2 * blocks >= detail::kProcessors || rounds <= 16 * plan.parts) << blocks;
  }
}

TEST(ThinPlan, LongRowsOfAClassAreTakenOnce) {
  Generator generator(7);
  for (int i = 0; i < kCases; ++i) {
    const int size = i % 2 == 0 ? 2 : 4;
    const int64_t batch = std::max<int64_t>(extent(generator, 8), 1),
                  terms = integer(generator, 512 / size, 1 << 20);
    const int64_t outs = std::max<int64_t>(extent(generator, 14), 8 * row_classes(terms, size));
    SCOPED_TRACE(std::to_string(batch) + " of " + std::to_string(outs) + " rows of " + std::to_string(terms));
    const RowProductPlan plan =
        plan_row_products(size, batch, outs, terms, static_cast<int>(integer(generator, 2, 16)));
    ASSERT_EQ(plan.classes * terms * size % plan.unit_bytes, 0)
        << "rows of a class begin at different places";
    ASSERT_EQ(plan.block_warps % plan.row_warps, 0);
    if (plan.by_lines) {
      ASSERT_EQ(plan.unit_bytes, 16);
      ASSERT_NE(terms * size % RowProductPlan::kStepBytes, 0) << "rows begin with lines";
    }
    ASSERT_EQ(plan.tiles % plan.classes, 0);
    const int64_t places = plan.tiles / plan.classes * plan.tile_rows, rows = (outs - 1) / plan.classes + 1;
    ASSERT_GE(places, rows) << "of the first class";
    ASSERT_LE(plan.tile_rows, 16 * plan.sets);
    ASSERT_LT(places - plan.tile_rows, rows) << "a tile without rows";
    ASSERT_GE(plan.steps * RowProductPlan::kStepBytes, (terms - 1) * size + plan.unit_bytes)
        << "with what lies in front of a row";
    ASSERT_GE(plan.parts, 1);
    ASSERT_LE((plan.parts - 1) * plan.term_warps(), plan.steps - 1) << "an empty part";
    // Warps that share terms have one tile; others take turns, each at least one.
    const int64_t tiles = batch * plan.tiles, warps = plan.blocks * plan.row_warps;
    ASSERT_TRUE(plan.term_warps() == 1 ? plan.parts == 1 && warps < tiles + plan.row_warps
                                       : warps >= tiles && warps < tiles + plan.row_warps);
    // No few processors while there are steps to share out.
    const int64_t blocks = plan.blocks * plan.parts;
    ASSERT_TRUE(3 * blocks >= detail::kProcessors || plan.steps <= 32 * plan.parts * plan.term_warps())
        << blocks;
  }
}

TEST(ThinProblem, ASingleColumnIsARow) {
  const ThinProblem column{.transpose = true, .batch = 3, .rows = 100, .columns = 1, .a_stride = 100};
  const ThinProblem row = without_single_column(column);
  EXPECT_FALSE(row.transpose);
  EXPECT_EQ(row.rows, 1);
  EXPECT_EQ(row.columns, 100);
  EXPECT_EQ(row.a_stride, 100);
  EXPECT_EQ(row.out(), column.out());
  EXPECT_EQ(row.in(), column.in());
  EXPECT_TRUE(without_single_column({.transpose = true, .rows = 100, .columns = 2}).transpose);
}

TEST(ThinProblem, ALongColumnThatIsScaledIsARow) {
  const ThinProblem column{.batch = 3, .rows = 1000000, .columns = 1, .a_stride = 1000000, .x_stride = 1};
  const ThinProblem row = without_single_column(column);
  EXPECT_TRUE(row.transpose);
  EXPECT_EQ(row.rows, 1);
  EXPECT_EQ(row.columns, 1000000);
  EXPECT_EQ(row.x_stride, 1);
  EXPECT_EQ(row.out(), column.out());
  EXPECT_EQ(row.in(), column.in());
  EXPECT_TRUE(takes_few_rows(row));
  EXPECT_FALSE(without_single_column({.rows = 100, .columns = 1}).transpose) << "a short one";
  EXPECT_FALSE(without_single_column({.rows = 1000000, .columns = 2}).transpose);
}

/// op(a) op(b) of one batch item by the definition of ThinProblem.
std::vector<int64_t> multiply(const ThinMatmul& thin, const std::vector<int64_t>& a,
                              const std::vector<int64_t>& b, int64_t size) {
  const ThinProblem& p = thin.problem;
  const std::vector<int64_t>&matrix = thin.swapped ? b : a, &x = thin.swapped ? a : b;
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

TEST(ThinMatmul, IsTheProductOfTheMatrices) {
  Generator generator(3);
  int taken = 0;
  for (int i = 0; i < kCases; ++i) {
    const int64_t m = integer(generator, 1, 10), n = integer(generator, 1, 10), k = integer(generator, 0, 9);
    const MatmulOptions options{generator.uniform() < 0.5, generator.uniform() < 0.5};
    BatchRun run{.count = integer(generator, 1, 3)};
    run.a_step = run.count > 1 ? integer(generator, 0, 1) : 0;
    run.b_step = run.count > 1 ? integer(generator, 0, 1) : 0;
    const auto thin = as_thin(options, DType::kFloat32, m, n, k, run);
    ASSERT_FALSE(std::min(m, n) > kMostThinVectors && thin.has_value());
    if (!thin) continue;
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
    ASSERT_EQ(multiply(*thin, a, b, run.count * m * n), expected)
        << m << " " << n << " " << k << " " << options.transpose_a << options.transpose_b;
  }
  EXPECT_GT(taken, kCases / 2);
}

TEST(ThinMatmul, LargeTilesOfManyVectorsAreLeftToCublas) {
  const auto is_ours = [](DType dtype, int64_t m, int64_t n, int64_t k) {
    return is_thin_faster(as_thin({.transpose_b = true}, dtype, m, n, k, {.count = 1})->problem);
  };
  EXPECT_FALSE(is_ours(DType::kFloat16, 65536, 12, 120));
  EXPECT_TRUE(is_ours(DType::kFloat16, 65536, 8, 120)) << "one instruction's vectors";
  EXPECT_TRUE(is_ours(DType::kFloat16, 65536, 12, 121)) << "rows that fill no units";
  EXPECT_TRUE(is_ours(DType::kFloat16, 65536, 12, 56)) << "few terms";
  EXPECT_TRUE(is_ours(DType::kFloat16, 223, 13, 46696)) << "few outs";
  EXPECT_FALSE(is_ours(DType::kFloat16, 12, 65536, 120));
  EXPECT_TRUE(is_ours(DType::kFloat16, 9, 490946, 168)) << "outs that fill no units";
  EXPECT_TRUE(is_ours(DType::kBFloat16, 16, 3003, 4096)) << "an odd number of outs";
  EXPECT_FALSE(is_ours(DType::kFloat16, 10, 20574, 112)) << "a small matrix, an even number";
  EXPECT_TRUE(is_ours(DType::kFloat32, 65536, 3, 120));
  EXPECT_FALSE(is_ours(DType::kFloat64, 7272, 14, 8192));
  EXPECT_FALSE(is_ours(DType::kFloat64, 7302, 12, 256));
  EXPECT_FALSE(is_ours(DType::kFloat64, 33600, 3, 512));
  EXPECT_TRUE(is_ours(DType::kFloat64, 33600, 2, 512)) << "two vectors";
  EXPECT_TRUE(is_ours(DType::kFloat64, 32768, 9, 109)) << "rows that fill no units";
  EXPECT_TRUE(is_ours(DType::kFloat64, 739, 3, 11024)) << "few outs";
}

TEST(ThinMatmul, TilesOfEachMatrixAreFullWhereCublasTakesABatch) {
  const auto is_ours = [](int64_t batch, int64_t m, int64_t n, int64_t k) {
    const BatchRun run{.count = batch, .a_step = 1, .b_step = 1};
    return is_thin_faster(as_thin({.transpose_b = true}, DType::kBFloat16, m, n, k, run)->problem);
  };
  EXPECT_FALSE(is_ours(32, 312, 15, 4096));
  EXPECT_TRUE(is_ours(27, 68, 13, 8192)) << "a part of a tile from each matrix";
}

TEST(ThinMatmul, VectorsAreTaken) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      EXPECT_TRUE(as_thin({transpose_a, transpose_b}, DType::kFloat16, 100, 1, 33, {.count = 1}));
      EXPECT_TRUE(as_thin({transpose_a, transpose_b}, DType::kFloat16, 1, 100, 33, {.count = 1}));
    }
  }
  EXPECT_FALSE(as_thin({}, DType::kFloat16, 100, 9, 33, {.count = 1}));
  EXPECT_TRUE(as_thin({}, DType::kFloat16, 100, 16, 400, {.count = 1}));
  EXPECT_FALSE(as_thin({}, DType::kFloat16, 100, 17, 400, {.count = 1}));
}

}  // namespace
}  // namespace sinter::ops
