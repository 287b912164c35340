// What tests of thin products on a GPU share: comparisons with the CPU in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/matmul/matmul.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops::testing_gpu {

inline bool same_bytes(const Tensor& first, const Tensor& second) {
  const Tensor a = first.to(Device::cpu()), b = second.to(Device::cpu());
  const auto *left = static_cast<const std::byte*>(a.raw_data()),
             *right = static_cast<const std::byte*>(b.raw_data());
  return std::equal(left, left + a.spec().bytes(), right);
}

/// `terms`: how many each sum has; its rounding errors add up, in float32 at least.
inline void expect_close(const Tensor& value, const Tensor& expected, int64_t terms) {
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
inline Tensor between_nans(const Tensor& tensor, int64_t offset) {
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

/// A product of a matrix (rows, columns) that is large enough to be staged, times `vectors`, in one of the
/// four ways in which a user writes it.
inline void check_staged(SampleMaker& maker, const Shape& matrix, int64_t vectors, bool is_left,
                         bool transpose, int64_t offset) {
  SCOPED_TRACE(fmt::format("{} {} {} vectors {} transpose {} offset {}", matrix, maker.dtype(), vectors,
                           is_left ? "left" : "right", transpose, offset));
  const int64_t length = matrix[is_left == transpose ? -2 : -1], batch_axes = matrix.rank() - 2;
  Shape x_shape = is_left ? Shape{length, vectors} : Shape{vectors, length};
  if (batch_axes > 0 && maker.chance(0.7)) x_shape = x_shape.inserted(0, matrix[0]);
  const Tensor a = maker.tensor(matrix, -1, 1), x = maker.tensor(x_shape, -1, 1);
  const Tensor a_gpu = between_nans(a, offset), x_gpu = between_nans(x, maker.integer(0, 1) * offset);
  const auto product = [&](const Tensor& left, const Tensor& right) {
    return is_left ? matmul(left, right, {.transpose_a = transpose})
                   : matmul(right, left, {.transpose_b = transpose});
  };
  const Tensor expected = product(as_double(a), as_double(x));
  // What the pool gives to y next: sums that are not written stay NaN.
  between_nans(Tensor::full({1}, 0.0, a.dtype()), expected.numel());
  const Tensor y = product(a_gpu, x_gpu);
  expect_close(y, expected, length);
  ASSERT_TRUE(same_bytes(y, product(a_gpu, x_gpu))) << "differs from run to run";
}

/// Ones by halves, with NaN in rows 10, 13 and the last one and an infinity in row 20, at the ends of these
/// rows: no other row of the product may show it.
inline void expect_bad_values_stay_in_rows(DType dtype, int64_t rows, int64_t columns, int64_t vectors) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor host = Tensor::full({rows, columns}, 1.0);
  host.data<float>()[10 * columns] = host.data<float>()[rows * columns - 1] = kNan;
  host.data<float>()[13 * columns + columns - 1] = kNan;
  host.data<float>()[21 * columns - 1] = kInf;
  const Tensor x = Tensor::full({columns, vectors}, 0.5);
  const Tensor y = matmul(on_gpu(cast(host, dtype)), on_gpu(cast(x, dtype)));
  const std::vector<double> values = as_double(y).to_vector<double>();
  for (int64_t i = 0; i < rows * vectors; ++i) {
    const double value = values[static_cast<size_t>(i)], whole = static_cast<double>(columns) / 2;
    const int64_t row = i / vectors;
    const bool is_nan = row == 10 || row == 13 || row == rows - 1;
    ASSERT_TRUE(is_nan ? std::isnan(value) : value == (row == 20 ? static_cast<double>(kInf) : whole))
        << value << " in row " << row << " of " << columns << " columns";
  }
}

}  // namespace sinter::ops::testing_gpu
