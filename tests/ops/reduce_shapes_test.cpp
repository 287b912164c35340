// Reductions, argmax and the gradients of max and min of many shapes, so that every loop of their kernels is
// reached: lines shorter and longer than the lanes, few and many columns, blocks side by side, cut blocks,
// NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

/// Small integers, so that sums are exact in every order, with many ties; and NaN if asked for.
template <class T>
std::vector<T> draw_values(int64_t count, bool with_nan, std::mt19937& random) {
  std::vector<T> values(static_cast<size_t>(count));
  const bool is_signed = static_cast<double>(static_cast<T>(-1)) < 0;
  for (T& value : values) value = static_cast<T>(static_cast<int>(random() % 9) - (is_signed ? 4 : 0));
  if (with_nan) {
    for (int64_t i = 0; i <= count / 50; ++i) {
      values[random() % values.size()] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    }
  }
  return values;
}

/// The outcomes for each output of a tensor [a, b, c, d] that is reduced over b, and over d too if `both`.
struct Expected {
  std::vector<double> sum, most, least;
  std::vector<int64_t> most_at, least_at;  // in the tensor
};

template <class T>
Expected reference(const std::vector<T>& x, const std::array<int64_t, 4>& shape, bool both) {
  const auto [a, b, c, d] = shape;
  Expected y;
  for (int64_t output = 0; output < a * c * (both ? 1 : d); ++output) {
    const int64_t kept_d = both ? 0 : output % d, line = both ? output : output / d;
    double sum = 0, most = 0, least = 0;
    int64_t most_at = -1, least_at = -1;
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = kept_d; k < (both ? d : kept_d + 1); ++k) {
        const int64_t at = ((line / c * b + j) * c + line % c) * d + k;
        const auto value = static_cast<double>(x[static_cast<size_t>(at)]);
        sum += value;
        if (most_at < 0 || (!std::isnan(most) && (std::isnan(value) || value > most)))
          most = value, most_at = at;
        if (least_at < 0 || (!std::isnan(least) && (std::isnan(value) || value < least)))
          least = value, least_at = at;
      }
    }
    y.sum.push_back(sum), y.most.push_back(most), y.least.push_back(least);
    y.most_at.push_back(most_at), y.least_at.push_back(least_at);
  }
  return y;
}

template <class Out>
void expect_values(const Tensor& y, const std::vector<double>& expected) {
  const std::vector<Out> values = y.to_vector<Out>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isnan(expected[i]) && std::isnan(value)) continue;
    ASSERT_EQ(value, static_cast<double>(static_cast<Out>(expected[i]))) << i;
  }
}

/// dx is dy where an extreme lies first, and 0 elsewhere.
template <class T>
void expect_gradient(const Tensor& dx, const std::vector<T>& dy, const std::vector<int64_t>& places) {
  std::vector<double> expected(static_cast<size_t>(dx.numel()), 0.0);
  for (size_t i = 0; i < places.size(); ++i) {
    expected[static_cast<size_t>(places[i])] = static_cast<double>(dy[i]);
  }
  expect_values<T>(dx, expected);
}

template <class T>
void check(const std::array<int64_t, 4>& shape, bool both, bool with_nan, std::mt19937& random) {
  constexpr bool kIsFloat = !std::is_integral_v<T>;
  const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  const std::vector<T> values = draw_values<T>(count, with_nan && kIsFloat, random);
  const Expected expected = reference(values, shape, both);
  const Tensor x = Tensor::from_values(values, {shape[0], shape[1], shape[2], shape[3]});
  const ReduceAttributes axes{both ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1}, false};
  expect_values<T>(max(x, axes.axes), expected.most);
  expect_values<T>(min(x, axes.axes), expected.least);
  expect_values<std::conditional_t<kIsFloat, T, int64_t>>(sum(x, axes.axes), expected.sum);
  if (!both) {
    std::vector<double> rows;
    for (int64_t at : expected.most_at) {
      rows.push_back(static_cast<double>(at / (shape[2] * shape[3]) % shape[1]));
    }
    expect_values<int64_t>(argmax(x, 1), rows);
  }
  if constexpr (kIsFloat) {
    const std::vector<T> dy = draw_values<T>(static_cast<int64_t>(expected.sum.size()), false, random);
    const Tensor dy_tensor = Tensor::from_values(dy, max(x, axes.axes).shape());
    expect_gradient(vjp::max(dy_tensor, x, axes), dy, expected.most_at);
    expect_gradient(vjp::min(dy_tensor, x, axes), dy, expected.least_at);
  }
}

TEST(ReduceShapes, AgreeWithPlainLoops) {
  std::mt19937 random(static_cast<uint32_t>(std::random_device{}()));
  const auto pick = [&](std::vector<int64_t> extents) { return extents[random() % extents.size()]; };
  for (int i = 0; i < 150; ++i) {
    std::array<int64_t, 4> shape = {pick({1, 2, 3, 33, 70}), pick({1, 2, 5, 16, 31, 64, 100, 257, 700, 3000}),
                                    pick({1, 1, 2, 3, 17}), pick({1, 1, 1, 2, 3, 8, 21, 65, 600, 1100})};
    while (shape[0] * shape[1] * shape[2] * shape[3] > 400000) {
      int64_t& largest = *std::max_element(shape.begin(), shape.end());
      largest = (largest + 2) / 3;
    }
    SCOPED_TRACE(testing::Message() << shape[0] << " x " << shape[1] << " x " << shape[2] << " x "
                                    << shape[3]);
    const bool both = random() % 2 == 0, with_nan = random() % 3 == 0;
    check<float>(shape, both, with_nan, random);
    switch (random() % 6) {
      case 0:
        check<double>(shape, both, with_nan, random);
        break;
      case 1:
        check<float16>(shape, both, with_nan, random);
        break;
      case 2:
        check<bfloat16>(shape, both, with_nan, random);
        break;
      case 3:
        check<int64_t>(shape, both, with_nan, random);
        break;
      case 4:
        check<int32_t>(shape, both, with_nan, random);
        break;
      default:
        check<uint8_t>(shape, both, with_nan, random);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(ReduceShapes, RowsAreRepeatedFromWhereverAThreadBegins) {
  const int threads = num_threads();
  set_num_threads(3);
  for (int64_t columns : {2, 3, 17, 1000, 5001, 40000}) {
    const int64_t rows = 100000 / columns + 1;
    std::vector<uint8_t> small;
    std::vector<float> large;
    for (int64_t c = 0; c < columns; ++c) {
      small.push_back(static_cast<uint8_t>(c * 7 % 251));
      large.push_back(static_cast<float>(c));
    }
    const auto bytes =
        broadcast_to(Tensor::from_values(small, {columns}), {rows, columns}).to_vector<uint8_t>();
    const auto floats =
        broadcast_to(Tensor::from_values(large, {columns}), {rows, columns}).to_vector<float>();
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(bytes[i], small[i % small.size()]) << columns << " " << i;
      ASSERT_EQ(floats[i], large[i % large.size()]) << columns << " " << i;
    }
  }
  set_num_threads(threads);
}

TEST(ReduceShapes, WorstValuesArePlacesToo) {
  const float kInf = std::numeric_limits<float>::infinity();
  for (int64_t length : {1, 7, 64, 65, 600}) {
    for (int64_t columns : {1, 3, 70}) {
      const Tensor lowest = Tensor::full({2, length, columns}, -kInf);
      const Tensor dy = Tensor::full({2, columns}, 1.0);
      for (int64_t place : argmax(lowest, 1).to_vector<int64_t>()) ASSERT_EQ(place, 0);
      ASSERT_EQ(sum(vjp::max(dy, lowest, {{1}, false})).item(), static_cast<double>(2 * columns));
      ASSERT_EQ(max(lowest, {1}).to_vector<float>()[0], -kInf);
    }
  }
}

}  // namespace
}  // namespace sinter::ops
