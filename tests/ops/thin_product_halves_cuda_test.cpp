// Products of the 16-bit types with several vectors that go to tensor cores without tiles in shared memory:
// any extents, alignment and strides, and values that are not finite beside what is summed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/cast/cast.h>

#include "ops/gpu_test_support.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class ThinHalvesCuda : public GpuTest {};

/// Rows that a warp multiplies as they lie: see PackedProductPlan.
TEST_F(ThinHalvesCuda, ShortRowsAndSeveralVectorsAgreeWithTheCpu) {
  for (int64_t columns = 1; columns <= 65; ++columns) {
    for (int i = 0; i < 3; ++i) {
      SampleMaker maker(static_cast<uint64_t>(19000 + 3 * columns + i),
                        (columns + i) % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
      // Full groups and a last one of any number of rows; a batch whose lines of y are not aligned.
      const int64_t rows = std::min<int64_t>((1 << 21) / columns, 1 << 17) + maker.integer(1, 300);
      const bool is_left = maker.chance(0.5);
      const Shape shape = i == 2 ? Shape{2, rows / 8 * 8 + 8, columns} : Shape{rows, columns};
      check_staged(maker, shape, maker.integer(2, 16), is_left, !is_left, i == 1 ? maker.integer(0, 1) : 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ThinHalvesCuda, BadValuesStayInShortRowsOfSeveralVectors) {
  for (const int64_t columns : {1, 3, 12, 15, 16, 17, 24, 31, 32, 33, 47, 63}) {
    const int64_t rows = std::min<int64_t>((1 << 21) / columns, 1 << 17) + 5,
                  vectors = columns % 2 == 0 ? 11 : 3;
    expect_bad_values_stay_in_rows(DType::kBFloat16, rows, columns, vectors);
    if (HasFatalFailure()) return;
  }
}

/// Columns that go straight to tensor cores: rows and lines of y that are whole units, and others.
TEST_F(ThinHalvesCuda, FewRowsAndSeveralVectorsAgreeWithTheCpu) {
  for (int64_t rows = 1; rows <= 65; rows += rows < 20 ? 1 : 5) {
    for (int i = 0; i < 6; ++i) {
      SampleMaker maker(static_cast<uint64_t>(20000 + 6 * rows + i),
                        (rows + i) % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
      const int64_t least = std::min<int64_t>((1 << 21) / rows, 1 << 17) + 1;
      const int64_t unit = i < 2   ? 64
                           : i < 4 ? 8
                                   : 1,
                    columns = (least + maker.integer(0, 300)) / unit * unit + unit;
      const bool is_left = i % 2 == 0;
      const Shape shape = maker.chance(0.25) ? Shape{2, rows, columns} : Shape{rows, columns};
      check_staged(maker, shape, maker.integer(2, 16), is_left, is_left, maker.chance(0.3) ? 1 : 0);
      if (HasFatalFailure()) return;
    }
  }
  // Warps that take several groups, one after the other.
  SampleMaker maker(37, DType::kBFloat16);
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{6, 1700003}, {3, 1700000}, {14, 1300007}, {70, 270003}, {97, 270008}}) {
    check_staged(maker, {rows, columns}, 13, false, false, 0);
    check_staged(maker, {rows, columns}, 7, true, true, 1);
    check_staged(maker, {rows, columns}, 16, true, true, 0);
  }
}

TEST_F(ThinHalvesCuda, BadValuesStayInColumnsOfFewRows) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t rows : {1, 3, 7, 8, 9, 16, 17, 40}) {
    for (const int64_t extra : {0, 5}) {
      const int64_t columns = (1 << 17) + 64 + extra, vectors = rows % 2 == 0 ? 11 : 3;
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10] = host.data<float>()[rows * columns - 1] = nan;
      host.data<float>()[(rows - 1) * columns + 21] = inf;
      if (rows > 1) host.data<float>()[columns] = nan;
      const Tensor x = Tensor::full({vectors, rows}, 0.5);
      const Tensor y = matmul(on_gpu(cast(x, DType::kFloat16)), on_gpu(cast(host, DType::kFloat16), 1));
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

/// Many rows whose columns go straight to tensor cores: see ManyTermPlan.
TEST_F(ThinHalvesCuda, ManyRowsAndSeveralVectorsAgreeWithTheCpu) {
  for (int i = 0; i < 96; ++i) {
    SampleMaker maker(static_cast<uint64_t>(21000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    // One tile and many, one part and many; rows that are whole units, and others.
    const int64_t most[] = {64, 192, 1500, 40000}, unit = maker.chance(0.4) ? 8 : 1;
    const int64_t columns = maker.integer(48, most[i / 2 % 4]) / unit * unit + (maker.chance(0.2) ? 64 : 0);
    const int64_t rows = std::max<int64_t>((int64_t{1} << 22) / columns + 1, 65) + maker.integer(0, 200);
    const bool is_left = maker.chance(0.5), is_batch = maker.chance(0.25);
    const Shape shape = is_batch ? Shape{2, rows / 2 + 40, columns} : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, is_left, maker.integer(0, 1) * 3);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinHalvesCuda, BadValuesStayInColumnsOfManyRows) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {56, 61, 128, 333}) {
    const int64_t rows = (1 << 22) / columns + 3, vectors = columns % 2 == 0 ? 3 : 11;
    const Tensor host = Tensor::full({rows, columns}, 1.0);
    host.data<float>()[10] = host.data<float>()[rows * columns - 1] = nan;
    host.data<float>()[(rows - 1) * columns + 21] = inf;
    host.data<float>()[columns] = nan;
    // Whatever follows the terms' vectors: as many zeros as ones leave sums that float16 holds.
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
      const bool is_nan = column == 10 || column == columns - 1 || column == 0;
      ASSERT_TRUE(is_nan         ? std::isnan(value)
                  : column == 21 ? value == static_cast<double>(inf)
                                 : std::abs(value - whole) <= 0.01 * whole)
          << value << " in column " << column << " of " << rows << " rows";
    }
  }
}

/// Long rows that go straight to tensor cores, wherever they begin in their units: see RowProductPlan.
TEST_F(ThinHalvesCuda, LongRowsAndSeveralVectorsAgreeWithTheCpu) {
  for (int i = 0; i < 128; ++i) {
    SampleMaker maker(static_cast<uint64_t>(22000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    // All classes of rows, which fill 16 or not; one part and many.
    const int64_t unit = int64_t{1} << maker.integer(0, 3), most[] = {16, 70, 300, 2500};
    const int64_t rows = std::max<int64_t>(maker.integer(8, most[i / 2 % 4]), 64 / unit);
    const int64_t columns = ((1 << 22) / rows / unit + 1 + maker.integer(0, 20)) * unit;
    const bool is_left = maker.chance(0.5);
    const Shape shape = maker.chance(0.25) ? Shape{2, rows, std::max<int64_t>(columns / unit / 2 * unit, 512)}
                                           : Shape{rows, columns};
    check_staged(maker, shape, maker.integer(2, 16), is_left, !is_left, maker.integer(0, 9));
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinHalvesCuda, BadValuesStayInLongRowsOfSeveralVectors) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{8, 524288}, {33, 131076}, {130, 32771}}) {
    for (const int64_t vectors : {3, 11}) {
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[4 * columns] = host.data<float>()[rows * columns - 1] = nan;
      host.data<float>()[6 * columns - 1] = inf;
      // Vectors whose neighbours in memory are not finite where their own terms end.
      const Tensor x = Tensor::full({vectors, columns}, 0.0);
      for (int64_t v = 0; v < vectors; ++v) {
        for (int64_t i = 0; i < columns; i += 256) x.data<float>()[v * columns + i] = 0.5;
        x.data<float>()[(v + 1) * columns - 1] = 0.5;
      }
      x.data<float>()[columns] = nan;
      const Tensor y = matmul(on_gpu(cast(host, DType::kBFloat16), 1), on_gpu(cast(x, DType::kBFloat16)),
                              {.transpose_b = true});
      const std::vector<double> values = as_double(y).to_vector<double>();
      const double whole =
          0.5 * static_cast<double>((columns - 1) / 256 + 1 + ((columns - 1) % 256 != 0 ? 1 : 0));
      for (int64_t i = 0; i < rows * vectors; ++i) {
        const int64_t row = i / vectors;
        const double value = values[static_cast<size_t>(i)];
        const bool is_nan = row == 4 || row == rows - 1 || i % vectors == 1;
        ASSERT_TRUE(is_nan     ? std::isnan(value)
                    : row == 5 ? value == static_cast<double>(inf)
                               : std::abs(value - whole) <= 0.01 * whole)
            << value << " in row " << row << " of " << columns << " columns";
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
