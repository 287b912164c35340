// Tensors of more than 2^31 elements whose values are known everywhere without a tensor as large on the host:
// made and checked piece by piece, each piece small enough for what the other tests have shown to be right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops::testing {

/// How large a run of these tests is. The same bodies run with small tensors on the CPU, which shows that the
/// tests themselves are right.
struct Scale {
  Device device;
  int64_t rows, columns;  ///< of matrices
  int64_t images;         ///< of tensors of images with kChannels channels of kHeight by kWidth pixels
  int64_t piece;          ///< elements that are made and checked at a time

  static constexpr int64_t kChannels = 8, kHeight = 57, kWidth = 59;
};

/// The elements [begin, end) of the leading axis, sharing x's memory.
inline Tensor piece_of(const Tensor& x, int64_t begin, int64_t end) {
  const auto step = static_cast<size_t>(x.shape().stride(0)) * size_of(x.dtype());
  return Tensor::over(x.storage(), x.offset_bytes() + static_cast<size_t>(begin) * step,
                      {x.shape().with(0, end - begin), x.dtype(), x.device()});
}

/// Calls visit(begin, end) for pieces of the leading axis of about `scale.piece` elements: multiples of four,
/// but for the last.
inline void for_each_piece(const Shape& shape, const Scale& scale,
                           const std::function<void(int64_t, int64_t)>& visit) {
  const int64_t step = std::max<int64_t>(scale.piece / shape.stride(0) / 4 * 4, 4);
  for (int64_t begin = 0; begin < shape[0]; begin += step) visit(begin, std::min(begin + step, shape[0]));
}

/// A tensor whose element (i, j, ...) is the sum of a small number for i, one for j, ..., times `unit`. The
/// numbers repeat with different primes along the axes, so that an element that was read or written 2^31 or
/// 2^32 elements away is wrong. Sums are integers in [0, 72), or in [-36, 36) if `is_signed`.
class Pattern {
 public:
  Pattern(const Shape& shape, const Scale& scale, DType dtype, bool is_signed = true, int64_t salt = 0,
          double unit = 1.0)
      : shape_(shape), scale_(scale), dtype_(dtype) {
    constexpr int64_t primes[] = {23, 19, 17, 13};
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int64_t prime = primes[axis];
      std::vector<double> table(static_cast<size_t>(shape[axis]));
      for (int64_t i = 0; i < shape[axis]; ++i) {
        const int64_t value = (i * (5 + salt) + salt) % prime - (is_signed ? prime / 2 : 0);
        table[static_cast<size_t>(i)] = static_cast<double>(value) * unit;
      }
      tables_.push_back(std::move(table));
    }
  }

  const Shape& shape() const { return shape_; }
  /// The numbers for the elements of an axis.
  const std::vector<double>& table(int axis) const { return tables_[static_cast<size_t>(axis)]; }

  /// The elements [begin, end) of the leading axis.
  Tensor piece(int64_t begin, int64_t end) const {
    Tensor sum;
    for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
      const auto& all = table(axis);
      const std::vector<double> values(all.begin() + (axis == 0 ? begin : 0),
                                       axis == 0 ? all.begin() + end : all.end());
      std::vector<int64_t> extents(static_cast<size_t>(shape_.rank()), 1);
      extents[static_cast<size_t>(axis)] = static_cast<int64_t>(values.size());
      const Tensor numbers =
          cast(Tensor::from_values(values, Shape(std::span<const int64_t>(extents)), scale_.device), dtype_);
      sum = sum.defined() ? add(numbers, sum) : numbers;
    }
    return sum;
  }

  /// All of it, put together by plain copies.
  Tensor whole() const {
    Tensor x = Tensor::empty(shape_, dtype_, scale_.device);
    for_each_piece(shape_, scale_, [&](int64_t begin, int64_t end) {
      const Tensor part = piece(begin, end);
      copy_bytes(piece_of(x, begin, end).raw_data(), x.device(), part.raw_data(), part.device(),
                 part.spec().bytes());
    });
    return x;
  }

 private:
  Shape shape_;
  Scale scale_;
  DType dtype_;
  std::vector<std::vector<double>> tables_;
};

/// How many elements of y are not as `expected(begin, end)` has them for that range of the leading axis:
/// exactly, or within `tolerance`.
inline int64_t wrong_elements(const Tensor& y, const Scale& scale,
                              const std::function<Tensor(int64_t, int64_t)>& expected,
                              double tolerance = 0.0) {
  EXPECT_EQ(y.device(), scale.device);
  int64_t right = 0;
  for_each_piece(y.shape(), scale, [&](int64_t begin, int64_t end) {
    const Tensor got = piece_of(y, begin, end), want = expected(begin, end);
    ASSERT_EQ(got.spec(), want.spec());
    const Tensor is_right = tolerance == 0.0
                                ? equal(got, want)
                                : less(abs(sub(got, want)), full({1}, tolerance, y.dtype(), y.device()));
    right += static_cast<int64_t>(sum(is_right).item());
  });
  return y.numel() - right;
}

/// The test bodies take their sizes from here.
class LargeTensor : public ::testing::TestWithParam<Scale> {
 protected:
  void SetUp() override {
    if (!is_available(scale.device)) GTEST_SKIP() << "no GPU";
    if (scale.device.is_cpu()) return;
    try {
      Tensor::empty({int64_t{56} << 30}, DType::kUInt8, scale.device);
    } catch (const OutOfMemory& error) {
      GTEST_SKIP() << "needs 56 GiB: " << error.what();
    }
  }
  void TearDown() override {
    if (is_available(scale.device)) backend_of(scale.device).memory_pool(scale.device.index).trim();
  }

  Pattern matrix(DType dtype, bool is_signed = true, int64_t salt = 0, double unit = 1.0) const {
    return Pattern({scale.rows, scale.columns}, scale, dtype, is_signed, salt, unit);
  }
  Shape images(Layout layout) const {
    if (layout == Layout::kNCHW) return {scale.images, Scale::kChannels, Scale::kHeight, Scale::kWidth};
    return {scale.images, Scale::kHeight, Scale::kWidth, Scale::kChannels};
  }
  int64_t wrong(const Tensor& y, const std::function<Tensor(int64_t, int64_t)>& expected,
                double tolerance = 0.0) const {
    return wrong_elements(y, scale, expected, tolerance);
  }

  const Scale scale = GetParam();
};

/// More than 2^31 elements, an odd number for matrices.
inline constexpr Scale kLarge{{DeviceType::kCuda, 0}, 65'599, 32'771, 80'021, int64_t{1} << 26};
inline constexpr Scale kSmall{{DeviceType::kCpu, 0}, 67, 35, 9, 700};
static_assert(kLarge.rows * kLarge.columns > (int64_t{1} << 31));
static_assert(kLarge.images * Scale::kChannels * Scale::kHeight * Scale::kWidth > (int64_t{1} << 31));

}  // namespace sinter::ops::testing
