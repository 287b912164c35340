// Products of float32 and the 16-bit types with several vectors whose rows are copied to shared memory in
// groups (RowGroupPlan) or in steps (RowProductPlan), and of float32 along columns (FloatColumnPlan): any
// extents and strides, and values that are not finite beside what is summed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/matvec/plan/row_product_plan.h>

#include "ops/gpu_test_support.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class ThinGroupsCuda : public GpuTest {};

/// So many rows of `columns` that they are multiplied in groups.
int64_t many_rows(int64_t columns, DType dtype) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  return std::max((int64_t{12} << 20) / (columns * size), int64_t{1 << 17} / size) + 1;
}

TEST_F(ThinGroupsCuda, RowsAndSeveralVectorsAgreeWithTheCpu) {
  for (int i = 0; i < 48; ++i) {
    SampleMaker maker(static_cast<uint64_t>(23000 + i), kDTypes[i % 3]);
    const bool is_float = maker.dtype() == DType::kFloat32;
    const int64_t columns =
        i < 24 ? (is_float ? 9 : 60) + i : maker.integer(is_float ? 14 : 64, is_float ? 165 : 260);
    // Full groups and a last one of any number of rows; a batch whose lines of y are not aligned.
    const int64_t rows = many_rows(columns, maker.dtype()) + maker.integer(0, 300);
    const bool is_left = maker.chance(0.5);
    const Shape shape = i % 4 == 2 ? Shape{2, rows / 8 * 4 + 8, columns} : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, !is_left,
                 maker.chance(0.1) ? maker.integer(0, 1) : 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinGroupsCuda, BadValuesStayInRowsOfSeveralVectors) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int64_t columns : {14, 16, 33, 64, 67, 70, 95, 96, 101, 128, 160}) {
      const int64_t rows = many_rows(columns, dtype) + 5, vectors = columns % 2 == 0 ? 11 : 3;
      expect_bad_values_stay_in_rows(dtype, rows, columns, vectors);
      if (HasFatalFailure()) return;
    }
  }
}

/// Long rows and short ones in steps, wherever they begin in their units: see RowProductPlan. The 16-bit
/// types' long rows are in ThinHalvesCuda.
TEST_F(ThinGroupsCuda, RowsInStepsAgreeWithTheCpu) {
  for (int i = 0; i < 96; ++i) {
    SampleMaker maker(static_cast<uint64_t>(25000 + i), kDTypes[i % 3]);
    const auto size = static_cast<int64_t>(size_of(maker.dtype()));
    const bool is_short = i % 2 == 0 || size == 2;
    // Rows that are whole units and others; many tiles for a warp, or many warps for a tile.
    const int64_t unit = int64_t{1} << maker.integer(0, size == 2 ? 3 : 2),
                  length = is_short ? maker.integer(512 / size, 1500) : maker.integer(1500, 1 << 17);
    const int64_t columns = std::max(length / unit * unit, 512 / size);
    const int64_t rows = std::max<int64_t>((1 << 23) / size / columns + maker.integer(1, 70), 128);
    const bool is_left = maker.chance(0.5);
    const Shape shape = i % 4 == 2 ? Shape{2, rows / 2 + 1, columns} : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, !is_left, maker.integer(0, 9));
    if (HasFatalFailure()) return;
  }
}

/// Large matrices whose rows begin anywhere in lines of memory: warps that have whole rows, and that share
/// rows.
TEST_F(ThinGroupsCuda, RowsByLinesAgreeWithTheCpu) {
  constexpr int kDraws = 28;
  int by_lines = 0;
  for (int i = 0; i < kDraws; ++i) {
    SampleMaker maker(static_cast<uint64_t>(27000 + i), kDTypes[i % 3]);
    const auto size = static_cast<int64_t>(size_of(maker.dtype()));
    const bool is_shared = i % 7 == 6;
    const int64_t unit = int64_t{1} << maker.integer(0, size == 2 ? 3 : 2),
                  length = is_shared ? maker.integer(3000, 1 << 18) : 512 / size + maker.integer(0, 110);
    int64_t columns = (length + unit - 1) / unit * unit;
    if (columns * size % RowProductPlan::kStepBytes == 0) columns += unit;
    const int64_t least =
        is_shared ? RowProductPlan::kLeastSharedLineBytes : 3 * RowProductPlan::kLeastLineBytes / 2;
    const int64_t rows = least / size / columns + maker.integer(1, 70);
    const auto vectors = static_cast<int>(maker.integer(2, 16));
    const Shape shape = i % 4 == 2 ? Shape{2, rows / 2 + 1, columns} : Shape{rows, columns};
    by_lines += plan_row_products(static_cast<int>(size), 1, rows, columns, vectors).by_lines ? 1 : 0;
    const bool is_left = maker.chance(0.5);
    check_staged(maker, shape, vectors, is_left, !is_left, maker.integer(0, 9));
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(by_lines, kDraws / 2);
}

TEST_F(ThinGroupsCuda, BadValuesStayInRowsByLines) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int64_t columns : {259, 268, 291}) {
      // Whole units: compute-sanitizer 2025.3 takes a part of the last one for a whole one.
      const auto size = static_cast<int>(size_of(dtype));
      const int64_t rows = (int64_t{24} << 20) / columns / size / 8 * 8, vectors = columns % 2 == 0 ? 11 : 3;
      ASSERT_TRUE(plan_row_products(size, 1, rows, columns, static_cast<int>(vectors)).by_lines);
      expect_bad_values_stay_in_rows(dtype, rows, columns, vectors);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ThinGroupsCuda, BadValuesStayInRowsInSteps) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int64_t columns : {300, 301, 302, 608, 1024, 2047}) {
      const int64_t rows = (1 << 23) / columns / 2 + 130;
      expect_bad_values_stay_in_rows(dtype, rows, columns, columns % 2 == 0 ? 11 : 3);
      if (HasFatalFailure()) return;
    }
  }
}

/// Beyond what the halves of a float32 can be scaled to; and an infinity among the vectors.
TEST_F(ThinGroupsCuda, LargeValuesOfFloat32AreMultiplied) {
  for (const int64_t columns : {40, 999}) {
    const int64_t rows = many_rows(columns, DType::kFloat32) + 1;
    const Tensor a = Tensor::full({rows, columns}, 1e30);
    const Tensor x = Tensor::full({6, columns}, 1e-25);
    a.data<float>()[5 * columns + 3] = 3e38F;
    x.data<float>()[columns + 7] = 1e5F;
    x.data<float>()[2 * columns] = std::numeric_limits<float>::infinity();
    const Tensor y = matmul(on_gpu(a), on_gpu(x), {.transpose_b = true}).to(Device::cpu());
    const Tensor expected = matmul(as_double(a), as_double(x), {.transpose_b = true});
    for (int64_t i = 0; i < rows * 6; ++i) {
      const double value = y.data<float>()[i], wanted = expected.data<double>()[i];
      ASSERT_TRUE(value == wanted || std::abs(value - wanted) <= 1e-5 * wanted) << value << " at " << i;
    }
  }
}

/// Columns of float32 on tensor cores: see FloatColumnPlan.
TEST_F(ThinGroupsCuda, ColumnsOfFloat32AgreeWithTheCpu) {
  for (int i = 0; i < 48; ++i) {
    SampleMaker maker(static_cast<uint64_t>(24000 + i), DType::kFloat32);
    // Tiles that are full and a last one; matrices of which only some begin with units; rows that are whole
    // units, and others.
    const int64_t rows = maker.integer(14, i % 3 == 0 ? 64 : 24), batch = maker.chance(0.3) ? 3 : 1;
    const int64_t unit = maker.chance(0.3) ? 4 : 1,
                  columns = ((1 << 18) / batch + maker.integer(1, 300)) / unit * unit + unit;
    const bool is_left = maker.chance(0.5);
    const Shape shape = batch > 1 ? Shape{batch, rows, columns} : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, is_left, maker.integer(0, 1) * 3);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinGroupsCuda, BadValuesStayInColumnsOfFloat32) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t rows : {14, 16, 17, 40}) {
    const int64_t columns = (1 << 18) + 61 + rows % 3, vectors = rows % 2 == 0 ? 3 : 11;
    const Tensor host = Tensor::full({rows, columns}, 1.0);
    host.data<float>()[10] = host.data<float>()[rows * columns - 1] = nan;
    host.data<float>()[(rows - 1) * columns + 21] = inf;
    host.data<float>()[columns] = nan;
    const Tensor x = Tensor::full({vectors, rows}, 0.5);
    const Tensor y = matmul(on_gpu(x), on_gpu(host, 1)).to(Device::cpu());
    for (int64_t i = 0; i < columns * vectors; ++i) {
      const int64_t column = i % columns;
      const float value = y.data<float>()[i];
      const bool is_nan = column == 10 || column == columns - 1 || column == 0;
      ASSERT_TRUE(is_nan ? std::isnan(value) : value == (column == 21 ? inf : static_cast<float>(rows) / 2))
          << value << " in column " << column << " of " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace sinter::ops
