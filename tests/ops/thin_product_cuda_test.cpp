// Products with one or a few vectors on a GPU beyond the small samples: every pack and number of lanes, rows
// that are cut into parts, views that are not aligned, hard values, the same bits from run to run. Compared
// with the CPU in double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/matvec/matvec.h>

#include "ops/gpu_test_support.h"
#include "ops/thin_product_checks.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class ThinProductCuda : public GpuTest {};

void check_matvec(SampleMaker& maker, const Shape& shape, bool transpose, int64_t offset) {
  SCOPED_TRACE(fmt::format("{} {} transpose {} offset {}", shape, maker.dtype(), transpose, offset));
  const int64_t in = shape[transpose ? -2 : -1];
  const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor({in}, -1, 1);
  const Tensor a_gpu = on_gpu(a, offset), x_gpu = on_gpu(x, offset);
  const Tensor y = matvec(a_gpu, x_gpu, transpose);
  expect_close(y, matvec(as_double(a), as_double(x), transpose), in);
  ASSERT_TRUE(same_bytes(y, matvec(a_gpu, x_gpu, transpose))) << "differs from run to run";
}

TEST_F(ThinProductCuda, EveryNumberOfColumns) {
  for (const DType dtype : kDTypes) {
    SampleMaker maker(31, dtype);
    for (int64_t columns = 1; columns <= 300; columns += columns < 70 ? 1 : 13) {
      for (const bool transpose : {false, true}) {
        check_matvec(maker, {maker.integer(1, 600), columns}, transpose, columns % 3 == 0 ? 1 : 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ThinProductCuda, FewLongRowsAndColumns) {
  const Shape shapes[] = {{1, 100003},   {2, 65536},   {17, 20000},  {100003, 1},    {65536, 3},
                          {20000, 40},   {5, 3, 9000}, {300, 70, 5}, {13, 17231},    {82, 27847},
                          {999, 4100},   {2, 5, 9001}, {9, 116507},  {1023, 1029},   {2049, 513},
                          {2, 700, 801}, {600, 2002},  {512, 9000},  {2, 1100, 4096}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(32, dtype);
    for (const Shape& shape : shapes) {
      for (const bool transpose : {false, true}) {
        for (const int64_t offset : {0, 1}) {
          check_matvec(maker, shape, transpose, offset);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Products that are read in units of 16 bytes, wherever rows begin: see ops/matvec/unit_plan.h.
TEST_F(ThinProductCuda, RowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(12000 + i), kDTypes[i % 4]);
    // Rows of one span of 16 and of 32 lanes, of two units to a lane, of several spans, and of parts.
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t most[] = {16, 32, 64, 200, 3000}, units = maker.integer(8, most[i / 4 % 5]);
    const int64_t columns = units * pack + maker.integer(0, pack - 1);
    const int64_t rows = std::max<int64_t>(70000 / units, 8) + maker.integer(0, 70);
    const Shape shape = maker.chance(0.3) ? Shape{maker.integer(1, 3), rows, columns} : Shape{rows, columns};
    check_matvec(maker, shape, false, maker.integer(0, 8));
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, ColumnsOfFoldedRows) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(14000 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t most[] = {2 * pack, 40, 300, 2000, 9000},
                  columns = maker.integer(pack - 1, most[i / 4 % 5]);
    const int64_t rows = std::max<int64_t>(70000 * pack / columns, 64 * pack) + maker.integer(0, 30);
    const bool batch = maker.chance(0.3);
    const Shape shape = batch ? Shape{maker.integer(1, 3), rows / 8 * 8, columns} : Shape{rows, columns};
    check_matvec(maker, shape, true, maker.chance(0.8) ? 0 : 8 * maker.integer(0, 1) + maker.integer(0, 1));
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, FewRowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 80; ++i) {
    SampleMaker maker(static_cast<uint64_t>(13000 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t rows = maker.integer(1, i % 3 == 0 ? 24 : 5), loads = std::min<int64_t>(rows, 8);
    const bool whole = maker.chance(0.3);
    const int64_t units = (whole ? 270000 : 135000) / loads + maker.integer(0, 900);
    const int64_t columns = units * pack + (whole ? 0 : maker.integer(1, pack - 1));
    const Shape shape = maker.chance(0.3) ? Shape{2, rows, columns} : Shape{rows, columns};
    check_matvec(maker, shape, true, maker.chance(0.5) ? 0 : maker.integer(1, 8));
    if (HasFatalFailure()) return;
  }
}

/// Rows and the vector begin at places of a unit that differ: see LongRowPlan.
TEST_F(ThinProductCuda, FewLongRowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(16000 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t rows = maker.integer(1, i % 3 == 0 ? 64 : 9), batch = maker.integer(1, 3);
    const int64_t columns = pack * maker.integer(2048, 40000 / rows + 5000) + maker.integer(0, pack - 1);
    const bool is_column = maker.chance(0.2), is_batch = rows * batch <= 64 && maker.chance(0.3);
    const Shape shape = is_column  ? Shape{columns * 4, 1}
                        : is_batch ? Shape{batch, rows, columns}
                                   : Shape{rows, columns};
    const int64_t in = is_column ? columns * 4 : columns, offset = maker.integer(0, 9);
    SCOPED_TRACE(fmt::format("{} {} offset {}", shape, maker.dtype(), offset));
    const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor({in}, -1, 1);
    const Tensor a_gpu = on_gpu(a, offset), x_gpu = on_gpu(x, maker.integer(0, 9));
    const Tensor y = matvec(a_gpu, x_gpu, is_column);
    expect_close(y, matvec(as_double(a), as_double(x), is_column), in);
    ASSERT_TRUE(same_bytes(y, matvec(a_gpu, x_gpu, is_column))) << "differs from run to run";
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, ShortRowsOfHalvesThroughSharedMemory) {
  for (int i = 0; i < 62; ++i) {
    const int64_t columns = 2 + i;
    SampleMaker maker(static_cast<uint64_t>(17000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    // Groups that are full, and a last one of any number of rows; several groups to a warp where rows are
    // short.
    const int64_t rows = (int64_t{9} << 19) / columns + maker.integer(0, 300);
    check_matvec(maker, {rows, columns}, false, 0);
    if (i % 4 == 0) check_matvec(maker, {rows, columns}, false, maker.integer(1, 8));
    if (i % 5 == 0) check_matvec(maker, {2, rows / 2 + 1, columns}, false, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, BadValuesStayInShortAndLongRows) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{400001, 13}, {430000, 12}, {9, 17003}}) {
    const Tensor host = Tensor::full({rows, columns}, 1.0);
    host.data<float>()[4 * columns] = nan;
    host.data<float>()[7 * columns - 1] = inf;
    host.data<float>()[rows * columns - 1] = nan;
    const Tensor y = matvec(on_gpu(cast(host, DType::kBFloat16)),
                            on_gpu(cast(Tensor::full({columns}, 0.5), DType::kBFloat16)));
    const std::vector<double> sums = as_double(y).to_vector<double>();
    const double half = static_cast<double>(columns) / 2;
    for (int64_t row = 0; row < rows; ++row) {
      const double value = sums[static_cast<size_t>(row)];
      const bool is_nan = row == 4 || row == rows - 1;
      ASSERT_TRUE(is_nan     ? std::isnan(value)
                  : row == 6 ? value == static_cast<double>(inf)
                             : std::abs(value - half) <= 0.01 * half)
          << value << " in row " << row << " of " << columns << " columns";
    }
  }
}

TEST_F(ThinProductCuda, BadValuesStayWhereTheyAreInUnits) {
  // What a unit holds of the rows beside a row may not get into its sums.
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kDTypes) {
    for (const int64_t columns : {131, 299, 997, 4001}) {
      const int64_t rows = 700000 / columns;
      const Tensor host = Tensor::full({rows, columns}, 1.0, DType::kFloat64);
      host.data<double>()[10 * columns] = nan;
      host.data<double>()[21 * columns - 1] = inf;
      const Tensor x = cast(Tensor::full({columns}, 0.5), dtype);
      const auto sums = as_double(matvec(on_gpu(cast(host, dtype), 1), on_gpu(x))).to_vector<double>();
      for (int64_t row = 0; row < rows; ++row) {
        const double value = sums[static_cast<size_t>(row)];
        if (row == 10) {
          EXPECT_TRUE(std::isnan(value));
        } else {
          const double half = static_cast<double>(columns) / 2, slack = default_tolerance(dtype) * half;
          ASSERT_TRUE(row == 20 ? value == inf : std::abs(value - half) <= slack)
              << value << " in row " << row << " of " << columns << " columns";
        }
      }
    }
    const int64_t rows = 3, columns = 400003;
    const Tensor host = Tensor::full({rows, columns}, 1.0, DType::kFloat64);
    host.data<double>()[0] = host.data<double>()[columns - 1] = inf;
    host.data<double>()[columns + 1] = host.data<double>()[3 * columns - 2] = nan;
    const Tensor x = cast(Tensor::full({rows}, 0.5), dtype);
    const auto sums = as_double(matvec(on_gpu(cast(host, dtype), 1), on_gpu(x), true)).to_vector<double>();
    for (int64_t i = 0; i < columns; ++i) {
      const double value = sums[static_cast<size_t>(i)];
      const bool is_infinite = i == 0 || i == columns - 1, is_bad = i == 1 || i == columns - 2;
      ASSERT_TRUE(is_bad ? std::isnan(value) : value == (is_infinite ? inf : 1.5)) << value << " at " << i;
    }
  }
}

TEST_F(ThinProductCuda, EmptySumsAreZero) {
  for (const bool transpose : {false, true}) {
    const Tensor a = Tensor::empty(transpose ? Shape{0, 5} : Shape{5, 0}, DType::kFloat32, Device::cuda());
    const Tensor x = Tensor::empty({0}, DType::kFloat32, Device::cuda());
    EXPECT_EQ(matvec(a, x, transpose).to(Device::cpu()).to_vector<float>(), std::vector<float>(5, 0.0F));
  }
}

TEST_F(ThinProductCuda, BadValuesStayInTheirRow) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {3, 16, 17, 100, 1000}) {
    const Tensor host = Tensor::full({64, columns}, 1.0);
    host.data<float>()[10 * columns] = nan;
    host.data<float>()[21 * columns - 1] = inf;
    const Tensor y = matvec(on_gpu(host), on_gpu(Tensor::full({columns}, 0.5))).to(Device::cpu());
    for (int64_t row = 0; row < 64; ++row) {
      const float value = y.data<float>()[row];
      if (row == 10) {
        EXPECT_TRUE(std::isnan(value));
      } else if (row == 20) {
        EXPECT_EQ(value, inf);
      } else {
        EXPECT_EQ(value, static_cast<float>(columns) / 2) << "row " << row << " of " << columns << " columns";
      }
    }
  }
}

TEST_F(ThinProductCuda, HalvesAreSummedInFloat32) {
  // 0.001 added 60000 times to a float16 stops growing at about 2.
  const Tensor a = on_gpu(cast(Tensor::full({3, 60000}, 0.001), DType::kFloat16));
  const Tensor ones = on_gpu(cast(Tensor::full({60000}, 1.0), DType::kFloat16));
  for (const double sum : as_double(matvec(a, ones)).to_vector<double>()) EXPECT_NEAR(sum, 60.0, 0.06);
}

TEST_F(ThinProductCuda, ThinMatricesAgreeWithTheCpu) {
  for (int i = 0; i < 400; ++i) {
    SampleMaker maker(static_cast<uint64_t>(5000 + i), kDTypes[i % 4]);
    const MatmulOptions options{maker.chance(0.5), maker.chance(0.5)};
    const bool thin_left = maker.chance(0.5);
    const int64_t thin = maker.integer(1, 9), thick = maker.integer(1, maker.chance(0.3) ? 700 : 40);
    const int64_t m = thin_left ? thin : thick, n = thin_left ? thick : thin;
    const int64_t k = maker.chance(0.3) ? 8 * maker.integer(1, 100) : maker.integer(1, 300);
    Shape a_shape = options.transpose_a ? Shape{k, m} : Shape{m, k},
          b_shape = options.transpose_b ? Shape{n, k} : Shape{k, n};
    const int64_t batch = maker.integer(1, 4);
    if (maker.chance(0.3)) a_shape = a_shape.inserted(0, batch);
    if (maker.chance(0.3)) b_shape = b_shape.inserted(0, batch);
    const int64_t offset = maker.integer(0, 1);
    SCOPED_TRACE(fmt::format("case {}: {} x {} {} {} offset {}", i, a_shape, b_shape, to_string(options),
                             maker.dtype(), offset));
    const Tensor a = maker.tensor(a_shape, -1, 1), b = maker.tensor(b_shape, -1, 1);
    const Tensor a_gpu = on_gpu(a, offset), b_gpu = on_gpu(b, offset);
    const Tensor y = matmul(a_gpu, b_gpu, options);
    expect_close(y, matmul(as_double(a), as_double(b), options), k);
    ASSERT_TRUE(same_bytes(y, matmul(a_gpu, b_gpu, options))) << "differs from run to run";
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, StagedProductsAgreeWithTheCpu) {
  for (int i = 0; i < 600; ++i) {
    SampleMaker maker(static_cast<uint64_t>(9000 + i), kDTypes[i % 4]);
    // Few terms and few outs, both beyond a tile and a chunk, with tails; whole units of memory and others.
    const int64_t thin = maker.chance(0.5) ? maker.integer(1, 16) : maker.integer(17, 300);
    const int64_t thick = 40000 / thin + maker.integer(0, maker.chance(0.5) ? 40000 / thin : 8);
    const int64_t unit = maker.chance(0.4) ? 8 : 1, other = (thick + unit - 1) / unit * unit;
    Shape matrix = maker.chance(0.5) ? Shape{thin, other} : Shape{other, thin};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, maker.integer(2, 16), maker.chance(0.5), maker.chance(0.5),
                 maker.integer(0, 3));
    if (HasFatalFailure()) return;
  }
}

TEST_F(ThinProductCuda, StagedTilesThatAreNotCutAgreeWithTheCpu) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(18000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    // All widths of a tile, one chunk of terms and several.
    const int64_t terms = maker.integer(65, maker.chance(0.3) ? 1500 : 500), unit = maker.chance(0.5) ? 8 : 1;
    const int64_t outs = (maker.integer(100000, 700000) / terms + unit - 1) / unit * unit;
    const bool is_left = maker.chance(0.5), transpose = maker.chance(0.5);
    Shape matrix = is_left == transpose ? Shape{terms, outs} : Shape{outs, terms};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, maker.integer(2, 16), is_left, transpose, maker.integer(0, 1) * 3);
    if (HasFatalFailure()) return;
  }
  // Tiles of one chunk, several to a block.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SampleMaker maker(36, dtype);
    check_staged(maker, {30001, 120}, 12, false, true, 0);
    check_staged(maker, {30001, 99}, 5, true, false, 1);
    check_staged(maker, {200003, 28}, 5, true, false, 0);
    check_staged(maker, {24, 150000}, 3, true, true, 0);
  }
}

TEST_F(ThinProductCuda, StagedSumsInManyPartsAgreeWithTheCpu) {
  const Shape shapes[] = {{12, 300007}, {300007, 5}, {2, 60000, 32}, {100, 30011}, {30008, 136}, {1, 70001}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(33, dtype);
    for (const Shape& shape : shapes) {
      for (const int64_t vectors : {2, 5, 10, 16}) {
        for (const bool is_left : {false, true}) {
          for (const bool transpose : {false, true}) {
            check_staged(maker, shape, vectors, is_left, transpose, vectors % 2);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(ThinProductCuda, StagedTilesInTurnAgreeWithTheCpu) {
  // So few terms that a block takes several tiles, with a last one that is shorter.
  for (const DType dtype : kDTypes) {
    SampleMaker maker(34, dtype);
    for (const auto& [outs, terms] : {std::pair<int64_t, int64_t>{1700003, 1}, {900007, 3}, {410008, 21}}) {
      for (const bool transpose : {false, true}) {
        const Shape shape = transpose ? Shape{terms, outs} : Shape{outs, terms};
        for (const auto& [vectors, offset] : {std::pair<int64_t, int64_t>{8, 0}, {3, 1}, {13, 0}}) {
          check_staged(maker, shape, vectors, true, transpose, offset);
          check_staged(maker, shape, vectors, false, !transpose, offset);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(ThinProductCuda, FewTermsAndSeveralVectorsAgreeWithTheCpu) {
  for (int i = 0; i < 120; ++i) {
    SampleMaker maker(static_cast<uint64_t>(15000 + i), kDTypes[i % 3]);
    const int64_t terms = maker.integer(1, 14), vectors = maker.integer(2, 16);
    const int64_t outs = 131072 + maker.integer(0, 3000);
    const bool transpose = maker.chance(0.5);
    Shape matrix = transpose ? Shape{terms, outs} : Shape{outs, terms};
    if (maker.chance(0.25)) matrix = matrix.inserted(0, maker.integer(1, 3));
    check_staged(maker, matrix, vectors, maker.chance(0.5), transpose, maker.chance(0.7) ? 0 : 1);
    if (HasFatalFailure()) return;
  }
  // Warps that take several groups, one after the other.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    SampleMaker maker(35, dtype);
    for (const int64_t vectors : {7, 12}) {
      check_staged(maker, {1700003, 5}, vectors, true, false, 0);
      check_staged(maker, {5, 1700003}, vectors, false, false, 1);
    }
  }
}

/// Types and numbers of vectors, of which tensor cores multiply some and plain arithmetic others.
const std::pair<DType, int64_t> kBadValueCases[] = {
    {DType::kFloat32, 3},  {DType::kFloat32, 7}, {DType::kFloat32, 12}, {DType::kFloat16, 3},
    {DType::kBFloat16, 3}, {DType::kFloat64, 3}, {DType::kFloat64, 12}};

TEST_F(ThinProductCuda, BadValuesStayInTheirSum) {
  // Shared memory holds what lies beside a row, too: none of it may get into the row's sums.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, vectors] : kBadValueCases) {
    for (const int64_t columns : {3, 5, 16, 17, 100, 1000, 7168}) {
      const int64_t rows = std::max<int64_t>(70000 / columns, 24);
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10 * columns] = nan;
      host.data<float>()[21 * columns - 1] = inf;
      const Tensor y =
          matmul(on_gpu(cast(host, dtype)), on_gpu(cast(Tensor::full({columns, vectors}, 0.5), dtype)));
      const std::vector<double> values = as_double(y).to_vector<double>();
      for (int64_t i = 0; i < rows * vectors; ++i) {
        const double value = values[static_cast<size_t>(i)];
        if (i / vectors == 10) {
          EXPECT_TRUE(std::isnan(value));
        } else {
          EXPECT_EQ(value, i / vectors == 20 ? static_cast<double>(inf) : static_cast<double>(columns) / 2)
              << "sum " << i << " of " << columns << " columns";
        }
      }
    }
  }
}

TEST_F(ThinProductCuda, BadValuesStayInTheirColumn) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, vectors] : kBadValueCases) {
    for (const int64_t rows : {3, 5, 16, 17, 100, 1000}) {
      const int64_t columns = 70000 / rows / 2 * 2;  // pairs of a word, too
      const Tensor host = Tensor::full({rows, columns}, 1.0);
      host.data<float>()[10] = nan;
      host.data<float>()[(rows - 1) * columns + 21] = inf;
      const Tensor x = cast(Tensor::full({rows, vectors}, 0.5), dtype);
      const Tensor y = matmul(on_gpu(cast(host, dtype)), on_gpu(x), {.transpose_a = true});
      const std::vector<double> values = as_double(y).to_vector<double>();
      for (int64_t i = 0; i < columns * vectors; ++i) {
        const double value = values[static_cast<size_t>(i)];
        if (i / vectors == 10) {
          EXPECT_TRUE(std::isnan(value));
        } else {
          EXPECT_EQ(value, i / vectors == 21 ? static_cast<double>(inf) : static_cast<double>(rows) / 2)
              << "sum " << i << " of " << rows << " rows";
        }
      }
    }
  }
}

/// The largest error of a (outs, terms) times x (terms, vectors), as a share of the sum of what the terms are
/// without signs; and that of the first `few` vectors, which another kernel multiplies.
std::pair<double, double> errors_of(const Tensor& a, const Tensor& x, const Tensor& few) {
  const auto without_signs = [](const Tensor& t) {
    const Tensor copy = as_double(t);
    for (double& value : std::span(copy.data<double>(), static_cast<size_t>(copy.numel())))
      value = std::abs(value);
    return copy;
  };
  const auto error = [&](const Tensor& vectors) {
    const auto got = as_double(matmul(on_gpu(a), on_gpu(vectors))).to_vector<double>(),
               want = matmul(as_double(a), as_double(vectors)).to_vector<double>(),
               size = matmul(without_signs(a), without_signs(vectors)).to_vector<double>();
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      // Not std::max, which a NaN would not get through.
      if (const double share = std::abs(got[i] - want[i]) / size[i]; !(share <= largest)) largest = share;
    }
    return largest;
  };
  return {error(x), error(few)};
}

TEST_F(ThinProductCuda, ManyVectorsAreAsExactAsFew) {
  // Tensor cores multiply halves of a float32, and cut where float32 rounds.
  struct Range {
    const char* name;
    double low, high, scale, x_scale;
  };
  const Range ranges[] = {{"of both signs", -1, 1, 1, 1},
                          {"positive", 0, 1, 1, 1},
                          {"tiny", 0.5, 1, 1.2e-38, 1e30},
                          {"denormal", -1, 1, 1e-39, 1e30},
                          {"vectors of denormals", -1, 1, 1e30, 1e-39},
                          {"huge", -1, 1, 1e19, 1e12},
                          {"equal", 0.333, 0.333, 1, 1}};
  for (const Range& range : ranges) {
    for (const int64_t terms : {1000, 1 << 20}) {
      SCOPED_TRACE(fmt::format("{} terms, {}", terms, range.name));
      const int64_t outs = terms == 1000 ? 300 : 12;
      SampleMaker maker(36, DType::kFloat64);
      const auto make = [&](const Shape& shape, double scale) {
        const Tensor values = maker.tensor(shape, range.low, range.high);
        for (double& value : std::span(values.data<double>(), static_cast<size_t>(values.numel())))
          value *= scale;
        return cast(values, DType::kFloat32);
      };
      const Tensor a = make({outs, terms}, range.scale);
      const auto [many, few] =
          errors_of(a, make({terms, 12}, range.x_scale), make({terms, 3}, range.x_scale));
      RecordProperty(fmt::format("{}_{}", range.name, terms), fmt::format("{:.2e} few {:.2e}", many, few));
      EXPECT_LE(many, 3 * few + 4e-7) << "few vectors: " << few;
    }
  }
}

TEST_F(ThinProductCuda, HardValuesOfManyVectorsAreMultipliedAsAlways) {
  const float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::pair<float, float> terms[] = {{inf, 1},
                                           {inf, -2},
                                           {inf, 0},
                                           {-inf, 3},
                                           {most, 1},
                                           {most, 2},
                                           {most, -1},
                                           {most, least},
                                           {least, 1},
                                           {least, 0.25F},
                                           {0x1p-100F, 0x1p-45F},
                                           {inf, least},
                                           {0x1p66F, 0x1p60F},
                                           {least, most}};
  constexpr int64_t kTerms = 4000, kVectors = 11, kPlace = 1234;
  const int64_t outs = std::ssize(terms);
  for (const bool is_in_matrix : {true, false}) {
    // Each out has one term that is not zero.
    const Tensor a = Tensor::full({outs, kTerms}, 0.0), x = Tensor::full({kTerms, kVectors}, 0.0);
    for (int64_t i = 0; i < outs; ++i) {
      const auto& [first, second] = terms[i];
      a.data<float>()[i * kTerms + kPlace + i] = is_in_matrix ? first : second;
      for (int64_t v = 0; v < kVectors; ++v)
        x.data<float>()[(kPlace + i) * kVectors + v] = is_in_matrix ? second : first;
    }
    const Tensor y = matmul(on_gpu(a), on_gpu(x)).to(Device::cpu());
    for (int64_t i = 0; i < outs * kVectors; ++i) {
      const int64_t out = i / kVectors;
      // 0 times the infinities of the other outs' terms, where the vectors have them.
      float want = terms[out].first * terms[out].second;
      if (!is_in_matrix) want = std::numeric_limits<float>::quiet_NaN();
      const float got = y.data<float>()[i];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << terms[out].first << " times " << terms[out].second << " is " << got;
    }
  }
}

}  // namespace
}  // namespace sinter::ops
