// Products with one or a few vectors on a GPU beyond the small samples: every pack and number of lanes, rows
// that are cut into parts, views that are not aligned, hard values, the same bits from run to run. Compared
// with the CPU in double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/dispatch.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/gemv/gemv_problem.h>
#include <sinter/ops/matmul/matmul.h>

#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class GemvCuda : public GpuTest {};

bool same_bytes(const Tensor& first, const Tensor& second) {
  const Tensor a = first.to(Device::cpu()), b = second.to(Device::cpu());
  const auto *left = static_cast<const std::byte*>(a.raw_data()),
             *right = static_cast<const std::byte*>(b.raw_data());
  return std::equal(left, left + a.spec().bytes(), right);
}

/// `terms`: how many each sum has; its rounding errors add up, in float32 at least.
void expect_close(const Tensor& value, const Tensor& expected, int64_t terms) {
  ASSERT_EQ(value.shape(), expected.shape());
  const std::vector<double> got = as_double(value).to_vector<double>(), want = expected.to_vector<double>();
  const double rounding = value.dtype() == DType::kFloat64 ? 1e-15 : 1.2e-7;
  for (size_t i = 0; i < got.size(); ++i) {
    const double tolerance =
        default_tolerance(value.dtype()) * (0.01 + std::abs(want[i])) + rounding * static_cast<double>(terms);
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance) << "element " << i;
  }
}

/// A copy on the GPU, `offset` elements behind an address that is aligned, between elements that are NaN.
Tensor between_nans(const Tensor& tensor, int64_t offset) {
  constexpr int64_t kBehind = 64;
  const size_t size = size_of(tensor.dtype()), skipped = static_cast<size_t>(offset) * size;
  const Tensor host = Tensor::empty({offset + tensor.numel() + kBehind}, tensor.dtype(), Device::cpu());
  auto* const bytes = static_cast<std::byte*>(host.raw_data());
  std::memset(bytes, 0xFF, host.spec().bytes());
  std::memcpy(bytes + skipped, tensor.raw_data(), tensor.spec().bytes());
  const Tensor room = on_gpu(host);
  return Tensor::over(room.storage(), room.offset_bytes() + skipped,
                      {tensor.shape(), tensor.dtype(), Device::cuda()});
}

/// On the kernels under test, whatever is faster.
Tensor gemv(const Tensor& a, const Tensor& x, bool transpose = false) {
  const ForcedKernel forced("matvec", "gemv");
  return matvec(a, x, {.transpose_a = transpose});
}

void check_matvec(SampleMaker& maker, const Shape& shape, bool transpose, int64_t offset) {
  SCOPED_TRACE(fmt::format("{} {} transpose {} offset {}", shape, maker.dtype(), transpose, offset));
  const int64_t in = shape[transpose ? -2 : -1];
  const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor({in}, -1, 1);
  const Tensor a_gpu = on_gpu(a, offset), x_gpu = on_gpu(x, offset);
  const Tensor y = gemv(a_gpu, x_gpu, transpose);
  expect_close(y, matvec(as_double(a), as_double(x), {.transpose_a = transpose}), in);
  ASSERT_TRUE(same_bytes(y, gemv(a_gpu, x_gpu, transpose))) << "differs from run to run";
}

TEST_F(GemvCuda, EveryNumberOfColumns) {
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

TEST_F(GemvCuda, FewLongRowsAndColumns) {
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

/// Products that are read in units of 16 bytes, wherever rows begin: see UnitRowPlan.
TEST_F(GemvCuda, RowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(12000 + i), kDTypes[i % 4]);
    // Rows of one span of 8 and of 16 lanes, of two units to a lane, of several spans, and of parts.
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t most[] = {16, 32, 64, 200, 3000}, units = maker.integer(8, most[i / 4 % 5]);
    const int64_t columns = units * pack + maker.integer(0, pack - 1);
    const int64_t rows = std::max<int64_t>(70000 / units, 8) + maker.integer(0, 70);
    const Shape shape = maker.chance(0.3) ? Shape{maker.integer(1, 3), rows, columns} : Shape{rows, columns};
    check_matvec(maker, shape, false, maker.integer(0, 8));
    if (HasFatalFailure()) return;
  }
}

/// Several rows to a group of lanes, the next of which are loaded while it multiplies: every plan's lanes and
/// units, blocks of whole turns and of some rows more.
TEST_F(GemvCuda, ManyRowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 48; ++i) {
    SampleMaker maker(static_cast<uint64_t>(12500 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t least[] = {8, 17, 25, 33, 49, 65}, most[] = {16, 24, 32, 48, 64, 400};
    const int64_t units = maker.integer(least[i / 4 % 6], most[i / 4 % 6]);
    const int64_t columns = units * pack + maker.integer(1, pack - 1);
    const int64_t rows = 700000 / units + maker.integer(0, 300);
    const Shape shape = maker.chance(0.3) ? Shape{3, rows / 3, columns} : Shape{rows, columns};
    check_matvec(maker, shape, false, maker.integer(0, 8));
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemvCuda, ColumnsOfFoldedRows) {
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

/// Very few columns: matrices that begin anywhere, of one part and of several, with rows that are in no fold.
TEST_F(GemvCuda, VeryFewColumns) {
  for (int i = 0; i < 168; ++i) {
    SampleMaker maker(static_cast<uint64_t>(15000 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t columns = i / 4 % 14 + 2, batch = i % 3 == 0 ? maker.integer(2, 20) : 1;
    const int64_t rows = 70000 * pack * maker.integer(1, 8) / columns / batch + maker.integer(0, 99);
    const Shape shape = batch > 1 ? Shape{batch, rows, columns} : Shape{rows, columns};
    const int64_t offset = maker.chance(0.5) ? 0 : maker.integer(1, 9);
    SCOPED_TRACE(fmt::format("{} {} offset {}", shape, maker.dtype(), offset));
    const Shape x_shape = batch > 1 && maker.chance(0.5) ? Shape{batch, rows} : Shape{rows};
    const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor(x_shape, -1, 1);
    const Tensor a_gpu = between_nans(a, offset), x_gpu = between_nans(x, maker.integer(0, 3));
    const Tensor y = gemv(a_gpu, x_gpu, true);
    expect_close(y, matvec(as_double(a), as_double(x), {.transpose_a = true}), rows);
    ASSERT_TRUE(same_bytes(y, gemv(a_gpu, x_gpu, true))) << "differs from run to run";
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemvCuda, ColumnsOfLongFoldedRows) {
  // Stripes that are wider than a block has threads for the sums, of a last stripe that may be narrower.
  for (int i = 0; i < 12; ++i) {
    SampleMaker maker(static_cast<uint64_t>(14500 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const bool pairs = maker.chance(0.5);  // two rows are whole units
    const int64_t columns = pack * maker.integer(1500, 3500) + (pairs ? pack / 2 : 1);
    const int64_t rows = (pairs ? 2 : pack) * maker.integer(64, 90) + maker.integer(0, 1);
    check_matvec(maker, {rows, columns}, true, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemvCuda, FewRowsOfAnyLengthAndAlignment) {
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

/// Up to 16 rows in small matrices too, whose neighbours are NaN: every number of packs to a thread and to a
/// lane, rows that begin in every place of a unit, y that does in a batch.
TEST_F(GemvCuda, ColumnsOfVeryFewRows) {
  for (int i = 0; i < 240; ++i) {
    SampleMaker maker(static_cast<uint64_t>(13500 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t rows = i / 4 % 16 + 1, most[] = {600, 3000, 20000, 200000};
    const int64_t units = maker.integer(256, most[i / 64]) / (rows > 4 && i >= 192 ? 4 : 1);
    const int64_t columns = units * pack + (maker.chance(0.2) ? 0 : maker.integer(0, pack - 1));
    const Shape shape = maker.chance(0.4) ? Shape{maker.integer(2, 3), rows, columns} : Shape{rows, columns};
    const int64_t offset = maker.chance(0.3) ? 0 : maker.integer(1, 8);
    SCOPED_TRACE(fmt::format("{} {} offset {}", shape, maker.dtype(), offset));
    const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor({rows}, -1, 1);
    const Tensor a_gpu = between_nans(a, offset), x_gpu = between_nans(x, maker.integer(0, 3));
    const Tensor expected = matvec(as_double(a), as_double(x), {.transpose_a = true});
    // What the pool gives to y next: sums that are not written stay NaN.
    between_nans(Tensor::full({1}, 0.0, a.dtype()), expected.numel());
    const Tensor y = gemv(a_gpu, x_gpu, true);
    expect_close(y, expected, rows);
    ASSERT_TRUE(same_bytes(y, gemv(a_gpu, x_gpu, true))) << "differs from run to run";
    if (HasFatalFailure()) return;
  }
}

/// Matrices of one column: a product that scales each.
TEST_F(GemvCuda, LongColumnsAreScaled) {
  for (int i = 0; i < 40; ++i) {
    SampleMaker maker(static_cast<uint64_t>(13800 + i), kDTypes[i % 4]);
    const int64_t rows = maker.integer(1, 1 << (10 + i / 4)), batch = maker.integer(1, 3);
    const Shape shape = i / 4 < 8 && maker.chance(0.4) ? Shape{batch, rows, 1} : Shape{rows, 1};
    check_matvec(maker, shape, false, maker.chance(0.5) ? 0 : maker.integer(1, 8));
    if (HasFatalFailure()) return;
  }
}

void check_long_rows(SampleMaker& maker, const Shape& shape, bool is_column) {
  // Both begin alike, or at places of a unit that differ.
  const int64_t offset = maker.integer(0, 9), x_offset = maker.chance(0.5) ? offset : maker.integer(0, 9);
  SCOPED_TRACE(fmt::format("{} {} offsets {} and {}", shape, maker.dtype(), offset, x_offset));
  const int64_t in = is_column ? shape[0] : shape[-1];
  const Tensor a = maker.tensor(shape, -1, 1), x = maker.tensor({in}, -1, 1);
  const Tensor a_gpu = on_gpu(a, offset), x_gpu = on_gpu(x, x_offset);
  const Tensor y = gemv(a_gpu, x_gpu, is_column);
  expect_close(y, matvec(as_double(a), as_double(x), {.transpose_a = is_column}), in);
  ASSERT_TRUE(same_bytes(y, gemv(a_gpu, x_gpu, is_column))) << "differs from run to run";
}

/// Rows and the vector begin at places of a unit that differ: see LongRowPlan.
TEST_F(GemvCuda, FewLongRowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 200; ++i) {
    SampleMaker maker(static_cast<uint64_t>(16000 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t rows = maker.integer(1, i % 3 == 0 ? 64 : 11), batch = maker.integer(1, 3);
    const int64_t rest = maker.chance(0.4) ? 0 : maker.integer(0, pack - 1),
                  columns = pack * maker.integer(2048, 40000 / rows + 5000) + rest;
    const bool is_column = maker.chance(0.2), is_batch = rows * batch <= 64 && maker.chance(0.3);
    const Shape shape = is_column  ? Shape{columns * 4, 1}
                        : is_batch ? Shape{batch, rows, columns}
                                   : Shape{rows, columns};
    check_long_rows(maker, shape, is_column);
    if (HasFatalFailure()) return;
  }
}

/// The same, with several units of a row for each thread: every number of rows of a group, each dtype.
TEST_F(GemvCuda, FewVeryLongRowsOfAnyLengthAndAlignment) {
  for (int i = 0; i < 20; ++i) {
    SampleMaker maker(static_cast<uint64_t>(16500 + i), kDTypes[i % 4]);
    const int64_t pack = 16 / static_cast<int64_t>(size_of(maker.dtype()));
    const int64_t rows = i < 16 ? i / 4 + 1 : maker.integer(5, 11);
    const int64_t rest = maker.chance(0.4) ? 0 : maker.integer(0, pack - 1),
                  columns = pack * (maker.integer(1000000, 2000000) / rows) + rest;
    check_long_rows(maker, {rows, columns}, false);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemvCuda, ShortRowsOfHalves) {
  for (int i = 0; i < 62; ++i) {
    const int64_t columns = 2 + i;
    SampleMaker maker(static_cast<uint64_t>(17000 + i), i % 2 == 0 ? DType::kFloat16 : DType::kBFloat16);
    const int64_t rows = (int64_t{9} << 19) / columns + maker.integer(0, 300);
    check_matvec(maker, {rows, columns}, false, 0);
    if (i % 4 == 0) check_matvec(maker, {rows, columns}, false, maker.integer(1, 8));
    if (i % 5 == 0) check_matvec(maker, {2, rows / 2 + 1, columns}, false, 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemvCuda, BadValuesStayInShortAndLongRows) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{400001, 13}, {430000, 12}, {9, 17003}}) {
    const Tensor host = Tensor::full({rows, columns}, 1.0);
    host.data<float>()[4 * columns] = nan;
    host.data<float>()[7 * columns - 1] = inf;
    host.data<float>()[rows * columns - 1] = nan;
    const Tensor y = gemv(on_gpu(cast(host, DType::kBFloat16)),
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

TEST_F(GemvCuda, BadValuesStayWhereTheyAreInUnits) {
  // What a unit holds of the rows beside a row may not get into its sums.
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kDTypes) {
    for (const int64_t columns : {131, 299, 997, 4001}) {
      const int64_t rows = 700000 / columns;
      const Tensor host = Tensor::full({rows, columns}, 1.0, DType::kFloat64);
      host.data<double>()[10 * columns] = nan;
      host.data<double>()[21 * columns - 1] = inf;
      const Tensor x = cast(Tensor::full({columns}, 0.5), dtype);
      const auto sums = as_double(gemv(on_gpu(cast(host, dtype), 1), on_gpu(x))).to_vector<double>();
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
    const auto sums = as_double(gemv(on_gpu(cast(host, dtype), 1), on_gpu(x), true)).to_vector<double>();
    for (int64_t i = 0; i < columns; ++i) {
      const double value = sums[static_cast<size_t>(i)];
      const bool is_infinite = i == 0 || i == columns - 1, is_bad = i == 1 || i == columns - 2;
      ASSERT_TRUE(is_bad ? std::isnan(value) : value == (is_infinite ? inf : 1.5)) << value << " at " << i;
    }
  }
}

/// Small integers are summed exactly whatever the order: an element that is taken twice, or not at all,
/// shows. Random shapes of every kernel, wherever operands begin, between NaN, with y full of NaN before.
TEST_F(GemvCuda, SmallIntegersAreSummedExactly) {
  const int cases = test::share_of_cases(600);
  const uint64_t seed = test::random_seed(18000);
  for (int i = 0; i < cases; ++i) {
    SampleMaker maker(seed + static_cast<uint64_t>(i), kDTypes[i % 4]);
    const int64_t vectors = maker.chance(0.5) ? 1 : maker.integer(2, kMostGemvVectors);
    // float16 holds integers up to 2048, bfloat16 up to 256: so many terms are not 0.
    const int64_t shorter = maker.integer(1, 1 << maker.integer(1, 8)),
                  longer = maker.integer(1, 1 << maker.integer(6, 19)),
                  other = std::min<int64_t>(longer, std::max<int64_t>((1 << 20) / shorter, 1));
    const bool transpose = maker.chance(0.5), tall = maker.chance(0.5), batched = maker.chance(0.3);
    Shape shape = tall ? Shape{other, shorter} : Shape{shorter, other};
    if (batched) shape = shape.inserted(0, maker.integer(2, 4));
    const int64_t in = shape[transpose ? -2 : -1], offset = maker.integer(0, 8);
    SCOPED_TRACE(fmt::format("seed {} {} {} transpose {} vectors {} offset {}", seed, shape, maker.dtype(),
                             transpose, vectors, offset));
    Tensor a = Tensor::empty(shape, DType::kFloat64, Device::cpu()),
           x = Tensor::zeros({in, vectors}, DType::kFloat64, Device::cpu());
    for (int64_t e = 0; e < a.numel(); ++e) a.data<double>()[e] = static_cast<double>(maker.integer(-1, 1));
    for (int64_t e = 0; e < std::min<int64_t>(200, in) * vectors; ++e) {
      x.data<double>()[maker.integer(0, x.numel() - 1)] = static_cast<double>(maker.integer(-1, 1));
    }
    const bool dense = maker.chance(0.5) && shape[transpose ? -1 : -2] >= vectors;  // one after another
    if (dense) x = x.reshape({vectors, in});
    const MatmulOptions options{.transpose_a = transpose, .transpose_b = dense};
    const Tensor expected = matmul(a, x, options);
    const Tensor a_gpu = between_nans(cast(a, maker.dtype()), offset),
                 x_gpu = between_nans(cast(x, maker.dtype()), maker.integer(0, 3));
    const auto product = [&](const Tensor& left, const Tensor& right) {
      const ForcedKernel forced("matmul", "gemv");
      return matmul(left, right, options);
    };
    const bool reads = (transpose || dense || std::has_single_bit(static_cast<uint64_t>(vectors))) &&
                       (maker.dtype() == DType::kFloat32 || vectors <= kMostOtherVectors);
    between_nans(Tensor::full({1}, 0.0, maker.dtype()), expected.numel());  // what y has before
    const Tensor y = reads ? product(a_gpu, x_gpu) : matmul(a_gpu, x_gpu, options);
    ASSERT_EQ(as_double(y).to_vector<double>(), expected.to_vector<double>());
  }
}

/// Three to eight vectors of float32, in groups of rows and without: few and many lanes, several parts, ends
/// of groups, batches, vectors that lie one after another and side by side.
TEST_F(GemvCuda, SeveralVectorsOfFloat32AgreeWithTheCpu) {
  int64_t runs = 0;
  for (int i = 0; i < 160; ++i) {
    SampleMaker maker(static_cast<uint64_t>(19000 + i), DType::kFloat32);
    const int64_t most[] = {16, 64, 260, 1100, 9000};
    const int64_t columns = i % 4 == 0 ? maker.integer(130, 260) : maker.integer(8, most[i % 5]);
    const bool many = i % 4 == 0;  // so that three and four are taken in groups
    const int64_t rows =
        many ? maker.integer(4300, 9000) : maker.integer(8, 9000) * 300 / (300 + 2 * columns) + 8;
    const bool side_by_side = maker.chance(0.3), transpose = maker.chance(0.2), batched = maker.chance(0.2);
    const int64_t vectors = side_by_side && !transpose ? (maker.chance(0.5) ? 4 : 8) : maker.integer(3, 8);
    const Shape shape =
        batched ? Shape{maker.integer(2, 3), (rows + 3) / 4 * 4, columns} : Shape{rows, columns};
    const int64_t in = shape[transpose ? -2 : -1];
    const Tensor a = maker.tensor(shape, -1, 1);
    Shape x_shape = side_by_side ? Shape{in, vectors} : Shape{vectors, in};
    if (batched) x_shape = x_shape.inserted(0, shape[0]);
    const Tensor x = maker.tensor(x_shape, -1, 1);
    const MatmulOptions options{.transpose_a = transpose, .transpose_b = !side_by_side};
    const int64_t offset = maker.chance(0.5) ? 0 : maker.integer(1, 3);
    SCOPED_TRACE(fmt::format("case {}: {} x {} {} offset {}", i, shape, x_shape, to_string(options), offset));
    const Tensor a_gpu = between_nans(a, offset), x_gpu = between_nans(x, maker.chance(0.5) ? 0 : 1);
    const Tensor expected = matmul(as_double(a), as_double(x), options);
    between_nans(Tensor::full({1}, 0.0), expected.numel());  // what y has before
    const ForcedKernel forced("matmul", "gemv");
    const Tensor y = matmul(a_gpu, x_gpu, options);
    runs += forced.runs();
    expect_close(y, expected, in);
    ASSERT_TRUE(same_bytes(y, matmul(a_gpu, x_gpu, options))) << "differs from run to run";
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(runs, 160);
}

/// What is not a number stays in its row and in its vector.
TEST_F(GemvCuda, BadValuesStayInTheirRowAndVector) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {7, 100, 128, 1029}) {
    constexpr int64_t kRows = 4801, kVectors = 8;
    const Tensor a = Tensor::full({kRows, columns}, 1.0), x = Tensor::full({kVectors, columns}, 0.5);
    a.data<float>()[5 * columns] = a.data<float>()[kRows * columns - 1] = nan;
    x.data<float>()[3 * columns - 1] = nan;
    const ForcedKernel forced("matmul", "gemv");
    const Tensor y = matmul(on_gpu(a), on_gpu(x), {.transpose_b = true}).to(Device::cpu());
    EXPECT_EQ(forced.runs(), 1);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t v = 0; v < kVectors; ++v) {
        const float value = y.data<float>()[row * kVectors + v];
        const bool is_nan = row == 5 || row == kRows - 1 || v == 2;
        ASSERT_TRUE(is_nan ? std::isnan(value) : value == static_cast<float>(columns) / 2)
            << value << " in row " << row << " of vector " << v;
      }
    }
  }
}

TEST_F(GemvCuda, EmptySumsAreZero) {
  for (const bool transpose : {false, true}) {
    const Tensor a = Tensor::empty(transpose ? Shape{0, 5} : Shape{5, 0}, DType::kFloat32, Device::cuda());
    const Tensor x = Tensor::empty({0}, DType::kFloat32, Device::cuda());
    EXPECT_EQ(gemv(a, x, transpose).to(Device::cpu()).to_vector<float>(), std::vector<float>(5, 0.0F));
  }
}

TEST_F(GemvCuda, BadValuesStayInTheirRow) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t columns : {3, 16, 17, 100, 1000}) {
    const Tensor host = Tensor::full({64, columns}, 1.0);
    host.data<float>()[10 * columns] = nan;
    host.data<float>()[21 * columns - 1] = inf;
    const Tensor y = gemv(on_gpu(host), on_gpu(Tensor::full({columns}, 0.5))).to(Device::cpu());
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

TEST_F(GemvCuda, HalvesAreSummedInFloat32) {
  // 0.001 added 60000 times to a float16 stops growing at about 2.
  const Tensor a = on_gpu(cast(Tensor::full({3, 60000}, 0.001), DType::kFloat16));
  const Tensor ones = on_gpu(cast(Tensor::full({60000}, 1.0), DType::kFloat16));
  for (const double sum : as_double(gemv(a, ones)).to_vector<double>()) EXPECT_NEAR(sum, 60.0, 0.06);
}

TEST_F(GemvCuda, MatricesWithFewRowsOrColumnsAgreeWithTheCpu) {
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

}  // namespace
}  // namespace sinter::ops
