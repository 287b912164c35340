// Sums along many rows of float32 with several vectors (FloatManyTermPlan): how they are cut, whose words lie
// in which banks, and the kernel on a GPU against the CPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/matvec/thin_product.h>

#include "ops/gpu_test_support.h"
#include "ops/random_extents.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;
using testing_plans::integer;

TEST(FloatManyTermPlan, WarpsTakeEveryTermOfEveryColumnOnce) {
  Generator generator(51);
  for (int i = 0; i < 3000; ++i) {
    const int64_t batch = generator.uniform() < 0.7 ? 1 : integer(generator, 2, 100);
    const auto outs = static_cast<int64_t>(std::exp2(4.3 + 14 * generator.uniform()));
    const int64_t terms = (int64_t{1} << 22) / outs / batch + integer(generator, 14, 3000);
    const auto vectors = static_cast<int>(integer(generator, 2, 16));
    SCOPED_TRACE(fmt::format("{} of {} sums of {} with {} vectors", batch, outs, terms, vectors));
    const FloatManyTermPlan plan = plan_float_many_terms(batch, outs, terms, vectors);
    ASSERT_EQ(plan.across() * plan.below(), FloatManyTermPlan::kWarps);
    ASSERT_LE(plan.quads(), FloatManyTermPlan::kMostQuads);
    ASSERT_GE(plan.tiles * plan.across() * plan.width, outs);
    ASSERT_LT((plan.tiles - 1) * plan.across() * plan.width, outs) << "a tile without columns";
    ASSERT_LE(plan.parts, 65535);
    const int64_t items = batch * plan.tiles, blocks = plan.blocks(items);
    ASSERT_TRUE(plan.below() == 1 || blocks == items) << "warps that share sums take several tiles";
    ASSERT_GE(blocks, 1);
    // Steps as WarpSteps takes them.
    const int64_t steps = detail::divide_up(terms, FloatManyTermPlan::kStep),
                  stride = plan.parts * plan.below();
    std::vector<int> taken(static_cast<size_t>(steps), 0);
    for (int64_t part = 0; part < plan.parts; ++part) {
      ASSERT_LT(part * plan.below(), steps) << "a part without terms";
      for (int64_t below = 0; below < plan.below(); ++below) {
        for (int64_t step = part * plan.below() + below; step < steps; step += stride)
          ++taken[static_cast<size_t>(step)];
      }
    }
    ASSERT_EQ(std::ranges::count(taken, 1), steps);
  }
}

TEST(FloatManyTermPlan, LanesReadWordsFromDifferentBanks) {
  using Plan = FloatManyTermPlan;
  for (int quads = 1; quads <= Plan::kMostQuads; ++quads) {
    EXPECT_LE(Plan::shared_bytes(quads), Plan::kMostSharedBytes);
    EXPECT_EQ(Plan::stage_words(quads) % 4, 0) << "rows that begin with no unit";
    EXPECT_EQ(Plan::line_words(quads) % 4, 0) << "rows that begin with no unit";
    for (int shift = 0; shift < 4; ++shift) {
      std::set<int> banks;
      for (int lane = 0; lane < 32; ++lane)
        banks.insert((lane % 4 * Plan::group_words(quads) + shift + lane / 4) % 32);
      EXPECT_EQ(banks.size(), 32U) << quads;
    }
    // The last word of a row lies in its line wherever it begins.
    EXPECT_GE(Plan::line_words(quads), Plan::kQuad * quads + 3);
    EXPECT_GE(Plan::group_words(quads), 4 * Plan::line_words(quads));
  }
}

TEST(FloatManyTermPlan, TakesLargeMatricesOfManyRows) {
  ThinProblem problem{
      .dtype = DType::kFloat32, .transpose = true, .rows = 75035, .columns = 152, .vectors = 14};
  problem.x_vector = problem.rows;
  problem.y_vector = problem.columns;
  EXPECT_TRUE(takes_float_many_terms(problem));
  const int64_t parts = plan_float_many_terms(1, 152, 75035, 14).parts;
  EXPECT_GE(thin_workspace(problem), static_cast<size_t>(parts * 152 * 14 * 4));
  ThinProblem other = problem;
  other.dtype = DType::kFloat16;
  EXPECT_FALSE(takes_float_many_terms(other));
  other = problem;
  other.transpose = false;
  EXPECT_FALSE(takes_float_many_terms(other));
  other = problem;
  other.vectors = 1;
  EXPECT_FALSE(takes_float_many_terms(other));
  other = problem;
  other.columns = 12;
  other.y_vector = 12;
  EXPECT_FALSE(takes_float_many_terms(other)) << "few columns";
  other = problem;
  other.rows = other.x_vector = 5000;
  EXPECT_FALSE(takes_float_many_terms(other)) << "a small matrix";
}

class ThinColumnsCuda : public GpuTest {};

TEST_F(ThinColumnsCuda, ManyRowsOfFloat32AgreeWithTheCpu) {
  for (int i = 0; i < 96; ++i) {
    SampleMaker maker(static_cast<uint64_t>(51000 + i), DType::kFloat32);
    // Warps side by side and below each other, one part and many, tiles in turn; rows that are whole units,
    // and others.
    const int64_t most[] = {64, 160, 700, 5000, 60000, 250000};
    const int64_t unit = maker.chance(0.4) ? 4 : 1, bound = most[i % 6];
    const int64_t columns = maker.integer(std::max<int64_t>(bound / 3, 20), bound) / unit * unit;
    const int64_t rows = std::max<int64_t>((int64_t{1} << 22) / columns + 1, 14) + maker.integer(0, 200);
    const bool is_left = maker.chance(0.5), is_batch = maker.chance(0.25);
    const Shape shape = is_batch ? Shape{2, rows / 2 + 40, columns} : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, is_left, maker.integer(0, 1) * 3);
    if (HasFatalFailure()) return;
  }
  // Many matrices, of which a block takes several; the same rows in every one, or not.
  for (const int64_t columns : {257, 1024, 1031}) {
    SampleMaker maker(static_cast<uint64_t>(columns), DType::kFloat32);
    for (const int64_t vectors : {3, 9, 16}) {
      check_staged(maker, {150, 260, columns}, vectors, true, true, 1);
      check_staged(maker, {150, 260, columns}, vectors, false, false, 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ThinColumnsCuda, BadValuesStayInColumnsOfManyRows) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {23, 56, 61, 128, 333, 4099, 140001}) {
    const int64_t rows = (1 << 22) / columns + 3;
    for (const int64_t vectors : {3, 11}) {
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10] = host.data<float>()[rows * columns - 1] = nan;
      host.data<float>()[(rows - 1) * columns + 21] = inf;
      host.data<float>()[columns] = nan;
      const Tensor x = Tensor::full({vectors, rows}, 0.5);
      const Tensor y = matmul(on_gpu(x), on_gpu(host, 1)).to(Device::cpu());
      const float whole = static_cast<float>(rows) / 2;
      for (int64_t i = 0; i < columns * vectors; ++i) {
        const int64_t column = i % columns;
        const float value = y.data<float>()[i];
        const bool is_nan = column == 10 || column == columns - 1 || column == 0;
        ASSERT_TRUE(is_nan ? std::isnan(value) : value == (column == 21 ? inf : whole))
            << value << " in column " << column << " of " << rows << " rows";
      }
    }
  }
}

/// Beyond what the halves of a float32 can be scaled to, and denormals; an infinity among the vectors, and
/// NaN in what lies behind their last terms.
TEST_F(ThinColumnsCuda, HardValuesOfManyRowsAreMultiplied) {
  for (const int64_t vectors : {6, 12}) {
    const int64_t columns = 100, rows = (1 << 22) / columns + 9;
    const Tensor a = Tensor::full({rows, columns}, 1e30), x = Tensor::full({vectors, rows}, 1e-25);
    a.data<float>()[5 * columns + 3] = 3e38F;
    for (int64_t i = 0; i < rows; ++i) a.data<float>()[i * columns + 7] = 1e-39F;
    for (int64_t i = 0; i < rows; ++i) x.data<float>()[rows + i] = 1e5F;
    x.data<float>()[2 * rows] = std::numeric_limits<float>::infinity();
    const Tensor y = matmul(between_nans(x, 1), between_nans(a, 3)).to(Device::cpu());
    const Tensor expected = matmul(as_double(x), as_double(a));
    for (int64_t i = 0; i < columns * vectors; ++i) {
      const auto value = static_cast<double>(y.data<float>()[i]), wanted = expected.data<double>()[i];
      // Of denormals some bits are there; sums of float32 lose some in so many terms.
      const double tolerance = 1e-4 * wanted + 1e-41;
      ASSERT_TRUE(static_cast<float>(wanted) == static_cast<float>(value) ||
                  std::abs(value - wanted) <= tolerance)
          << value << " and not " << wanted << " at " << i;
    }
  }
}

/// Errors as a share of the sum of what the terms are without signs: not more than float32's own sums have.
TEST_F(ThinColumnsCuda, ManyRowsAreSummedAsExactlyAsInFloat32) {
  for (const int64_t columns : {96, 2050}) {
    for (const double low : {-1.0, 0.0, 0.333}) {
      SampleMaker maker(77, DType::kFloat32);
      const int64_t rows = (1 << 23) / columns;
      const Tensor a = maker.tensor({rows, columns}, low, low == 0.333 ? 0.333 : 1.0);
      for (const int64_t vectors : {4, 8, 9, 16}) {
        const Tensor x = maker.tensor({vectors, rows}, low, 1.0);
        const Tensor y = as_double(matmul(on_gpu(x), on_gpu(a))), want = matmul(as_double(x), as_double(a));
        const auto without_signs = [](const Tensor& t) {
          const Tensor copy = as_double(t);
          for (int64_t i = 0; i < copy.numel(); ++i)
            copy.data<double>()[i] = std::abs(copy.data<double>()[i]);
          return copy;
        };
        const Tensor size = matmul(without_signs(x), without_signs(a));
        const std::vector<double> values = y.to_vector<double>();
        for (int64_t i = 0; i < columns * vectors; ++i) {
          const double error = std::abs(values[static_cast<size_t>(i)] - want.data<double>()[i]);
          ASSERT_LE(error, 2e-6 * size.data<double>()[i]) << vectors << " vectors, sum " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
