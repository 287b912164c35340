// Functions made of several ops: variance, norms, logarithms of sums, questions about all elements, argmin,
// stacks and parts, against plain loops; and what NaN, infinities and empty tensors give.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/where/where.h>

#include "common/error_message.h"
#include "common/test_cases.h"
#include "ops/float_places.h"

namespace sinter::ops {
namespace {

using test::message_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Doubles = std::vector<double>;
using Flags = std::vector<uint8_t>;

Flags flags(const Tensor& x) {
  EXPECT_EQ(x.dtype(), DType::kBool);
  return cast(x, DType::kUInt8).to_vector<uint8_t>();
}

/// Of rows of one matrix (rows, columns), by plain loops.
using RowFunction = double (*)(const Doubles& row);

double mean_of(const Doubles& row) {
  double sum = 0;
  for (const double value : row) sum += value;
  return sum / static_cast<double>(row.size());
}

double squares_from(const Doubles& row, double center) {
  double sum = 0;
  for (const double value : row) sum += (value - center) * (value - center);
  return sum;
}

class Statistics : public FloatPlaceTest {
 protected:
  Tensor tensor(const Doubles& values, const Shape& shape) const {
    return cast(Tensor::from_values(values, shape), GetParam().dtype).to(GetParam().device);
  }
  Doubles values_of(const Tensor& x) const {
    return cast(x.to(Device::cpu()), DType::kFloat64).to_vector<double>();
  }
  /// The results of 16-bit dtypes are rounded once.
  double tolerance() const {
    switch (GetParam().dtype) {
      case DType::kFloat64:
        return 1e-13;
      case DType::kFloat32:
        return 2e-6;
      default:
        return GetParam().dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
    }
  }

  /// Of random matrices, over their rows and over their columns.
  void expect_rows(const std::function<Tensor(const Tensor&, std::vector<int64_t>, bool)>& function,
                   RowFunction expected, int64_t least_columns) const {
    const uint64_t seed = test::random_seed(std::random_device{}());
    SCOPED_TRACE(fmt::format("SINTER_TEST_SEED={}", seed));
    Generator generator(seed);
    for (int trial = 0; trial < 20; ++trial) {
      const auto rows = 1 + static_cast<int64_t>(generator.below(5)),
                 columns = least_columns + static_cast<int64_t>(generator.below(70));
      Doubles all(static_cast<size_t>(rows * columns));
      for (double& value : all) value = 1.0 + 3.0 * (double{generator.uniform()} - 0.5);
      const Tensor x = tensor(all, {rows, columns});
      all = values_of(x);  // as they are rounded
      Doubles want;
      for (int64_t r = 0; r < rows; ++r)
        want.push_back(expected(Doubles(all.begin() + r * columns, all.begin() + (r + 1) * columns)));
      const Tensor kept = function(x, {-1}, true);
      ASSERT_EQ(kept.shape(), (Shape{rows, 1}));
      ASSERT_EQ(kept.dtype(), GetParam().dtype);
      const Doubles got = values_of(function(x, {1}, false)), whole = values_of(function(x, {}, false));
      for (size_t r = 0; r < want.size(); ++r)
        ASSERT_NEAR(got[r], want[r], tolerance() * std::max(1.0, std::abs(want[r])));
      ASSERT_NEAR(whole[0], expected(all), tolerance() * std::max(1.0, std::abs(expected(all))));
    }
  }
};

TEST_P(Statistics, Variance) {
  expect_rows([](const Tensor& x, auto axes, bool keep) { return var(x, axes, {.keep_dims = keep}); },
              [](const Doubles& row) {
                return squares_from(row, mean_of(row)) / static_cast<double>(row.size() - 1);
              },
              2);
  expect_rows(
      [](const Tensor& x, auto axes, bool keep) {
        return var(x, axes, {.unbiased = false, .keep_dims = keep});
      },
      [](const Doubles& row) { return squares_from(row, mean_of(row)) / static_cast<double>(row.size()); },
      1);
}

TEST_P(Statistics, StandardDeviation) {
  expect_rows([](const Tensor& x, auto axes, bool keep) { return std(x, axes, {.keep_dims = keep}); },
              [](const Doubles& row) {
                return std::sqrt(squares_from(row, mean_of(row)) / static_cast<double>(row.size() - 1));
              },
              2);
}

TEST_P(Statistics, Norm) {
  expect_rows([](const Tensor& x, auto axes, bool keep) { return norm(x, axes, {.keep_dims = keep}); },
              [](const Doubles& row) { return std::sqrt(squares_from(row, 0.0)); }, 1);
}

TEST_P(Statistics, LogSumExp) {
  expect_rows([](const Tensor& x, auto axes, bool keep) { return logsumexp(x, axes, {.keep_dims = keep}); },
              [](const Doubles& row) {
                double sum = 0;
                for (const double value : row) sum += std::exp(value);
                return std::log(sum);
              },
              1);
}

TEST_P(Statistics, WhatIsNotFinite) {
  const Tensor x = tensor({kInfinity, 1, -kInfinity, -kInfinity, kNan, 2, -kInfinity, 3}, {4, 2});
  const Doubles sums = values_of(logsumexp(x, {1})), norms = values_of(norm(x, {1}));
  EXPECT_EQ(sums[0], kInfinity);
  EXPECT_EQ(sums[1], -kInfinity);
  EXPECT_TRUE(std::isnan(sums[2]));
  EXPECT_EQ(sums[3], 3.0);
  EXPECT_EQ(norms[0], kInfinity);
  EXPECT_TRUE(std::isnan(norms[2]));
  // Large elements, whose exponentials or squares 16 bits cannot hold.
  EXPECT_NEAR(values_of(logsumexp(tensor({200, 200}, {2})))[0], 200 + std::log(2.0), 200 * tolerance());
  EXPECT_NEAR(values_of(norm(tensor({3000, 4000}, {2})))[0], 5000, 5000 * tolerance());
  // What is masked throughout has no part in the gradient.
  Tensor masked = tensor({-kInfinity, -kInfinity, 1, 1}, {2, 2}).set_requires_grad(true);
  backward(sum(logsumexp(masked, {1})));
  EXPECT_EQ(values_of(masked.grad()), (Doubles{0, 0, 0.5, 0.5}));
  EXPECT_TRUE(std::isnan(values_of(var(tensor({4}, {1})))[0]));  // of one element, unbiased
  EXPECT_EQ(values_of(var(tensor({4}, {1}), {}, {.unbiased = false}))[0], 0.0);
  EXPECT_TRUE(std::isnan(values_of(var(tensor({}, {0})))[0]));
  EXPECT_EQ(values_of(norm(tensor({}, {0})))[0], 0.0);
  EXPECT_EQ(values_of(logsumexp(tensor({}, {0}))), Doubles{-kInfinity});
  EXPECT_EQ(values_of(logsumexp(tensor({}, {2, 0}), {1})), (Doubles{-kInfinity, -kInfinity}));
  EXPECT_EQ(logsumexp(tensor({}, {2, 0}), {0}, {.keep_dims = true}).shape(), (Shape{1, 0}));
  Tensor empty = tensor({}, {2, 0}).set_requires_grad(true);
  backward(sum(logsumexp(empty, {1})));
  EXPECT_EQ(empty.grad().shape(), (Shape{2, 0}));
}

TEST_P(Statistics, AllAndAny) {
  const Tensor x = tensor({0, 1, kNan, 2, 0, 0}, {3, 2});
  EXPECT_EQ(flags(all(x, {1})), (Flags{false, true, false}));
  EXPECT_EQ(flags(any(x, {1}, {.keep_dims = true})), (Flags{true, true, false}));
  EXPECT_EQ(any(x, {1}, {.keep_dims = true}).shape(), (Shape{3, 1}));
  EXPECT_EQ(flags(all(x)), Flags{false});
  EXPECT_EQ(flags(all(tensor({}, {0}))), Flags{true});
  EXPECT_EQ(flags(any(tensor({}, {0}))), Flags{false});
}

TEST_P(Statistics, ComparisonsOfNan) {
  const Tensor a = tensor({kNan, 1, 2}, {3}), b = tensor({kNan, 2, 2}, {3});
  EXPECT_EQ(flags(not_equal(a, b)), (Flags{true, true, false}));
  EXPECT_EQ(flags(less_equal(a, b)), (Flags{false, true, true}));
  EXPECT_EQ(flags(greater_equal(a, b)), (Flags{false, false, true}));
  const Tensor zero = tensor({0, 0, 3}, {3});
  EXPECT_EQ(flags(logical_and(a, zero)), (Flags{false, false, true}));
  EXPECT_EQ(flags(logical_or(a, zero)), (Flags{true, true, true}));
  EXPECT_EQ(flags(logical_xor(a, zero)), (Flags{true, true, false}));
  EXPECT_EQ(flags(logical_not(a)), (Flags{false, false, false}));
}

TEST_P(Statistics, SmallestElements) {
  const Tensor x = tensor({3, 1, 1, 2, kNan, 0}, {2, 3});
  EXPECT_EQ(argmin(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(argmin(x, 0, {.keep_dims = true}).shape(), (Shape{1, 3}));
  EXPECT_EQ(argmin(x).to_vector<int64_t>(), std::vector<int64_t>{4});
}

TEST_P(Statistics, WhereTakesNothingFromWhatIsNotChosen) {
  const Tensor mask = Tensor::from_values<bool>({true, false}, {2}).to(GetParam().device);
  const Tensor x = tensor({1, 2, 3, kNan}, {2, 2}).set_requires_grad(true);
  const Tensor y = where(mask, x, -kInfinity);
  EXPECT_EQ(values_of(y), (Doubles{1, -kInfinity, 3, -kInfinity}));
  EXPECT_EQ(values_of(masked_fill(x, mask, 7.0)).front(), 7.0);
  EXPECT_TRUE(std::isnan(values_of(masked_fill(x, mask, 7.0)).back()));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Statistics, testing::ValuesIn(float_places()), float_place_name);

TEST(StatisticsTest, WhereOfEveryDType) {
  const Tensor mask = Tensor::from_values<bool>({true, false, true}, {3});
  const Tensor a = Tensor::from_values(std::vector<int64_t>{1, 0, 1}, {3});
  const Tensor b = Tensor::from_values(std::vector<int64_t>{0, 1, 0}, {3});
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor y = where(mask, cast(a, dtype), cast(b, dtype));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(cast(y, DType::kInt64).to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1}));
  }
  EXPECT_EQ(message_of([&] { where(a, a, b); }), "[where] expected condition of dtype bool but got int64");
}

TEST(StatisticsTest, SmallestIntegers) {
  const auto lowest = std::numeric_limits<int64_t>::lowest();
  EXPECT_EQ(argmin(Tensor::from_values(std::vector<int64_t>{5, lowest, -1}, {3})).to_vector<int64_t>(),
            std::vector<int64_t>{1});
  EXPECT_EQ(argmin(Tensor::from_values(std::vector<uint8_t>{255, 0, 1}, {3})).to_vector<int64_t>(),
            std::vector<int64_t>{1});
  EXPECT_EQ(argmin(Tensor::from_values<bool>({true, false}, {2})).to_vector<int64_t>(),
            std::vector<int64_t>{1});
}

TEST(StatisticsTest, StacksAndParts) {
  const Tensor a = Tensor::from_values(std::vector<float>{1, 2, 3}, {3}), b = a.to(Device::cpu());
  EXPECT_EQ(stack({a, b}).shape(), (Shape{2, 3}));
  EXPECT_EQ(stack({a, b}, -1).to_vector<float>(), (std::vector<float>{1, 1, 2, 2, 3, 3}));
  const auto extents = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> found;
    for (const Tensor& part : parts) found.push_back(part.size(0));
    return found;
  };
  const Tensor x = Tensor::zeros({7, 2});
  EXPECT_EQ(extents(split(x, 3)), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(extents(split(x, {0, 5, 2})), (std::vector<int64_t>{0, 5, 2}));
  EXPECT_EQ(extents(chunk(x, 3)), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(extents(chunk(x, 6)), (std::vector<int64_t>{2, 2, 2, 1}));  // as torch.chunk
  EXPECT_EQ(extents(chunk(Tensor::zeros({0, 2}), 3)), (std::vector<int64_t>{0}));
  EXPECT_EQ(split(x, 1, -1).size(), 2u);
  EXPECT_EQ(concat(split(x, 3), 0).shape(), x.shape());
  EXPECT_EQ(message_of([&] {
              split(x, {3, 3});
            }),
            "[split] expected extents that fill axis 0 of (7, 2) but got 3, 3");
  EXPECT_EQ(message_of([&] {
              split(x, {3, 5});
            }),
            "[split] expected extents that fill axis 0 of (7, 2) but got 3, 5");
  EXPECT_EQ(message_of([&] { chunk(x, 0); }), "[chunk] expected at least one chunk but got 0");
  EXPECT_EQ(message_of([&] {
              stack({a, x});
            }),
            "[stack] expected tensors of one shape but got (3,) and (7, 2)");
  EXPECT_EQ(message_of([&] { stack({}); }), "[stack] expected at least one tensor but got none");
}

TEST(StatisticsTest, Gradients) {
  Generator generator(test::random_seed(7));
  const Tensor x = Tensor::empty({4, 5}, DType::kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = 2 * double{generator.uniform()} - 1;
  const auto expect = [&](const std::function<Tensor(const Tensor&)>& function) {
    const GradcheckResult result =
        gradcheck([&](const auto& in) { return std::vector<Tensor>{function(in[0])}; },
                  {x.detach().set_requires_grad(true)});
    EXPECT_TRUE(result) << result.message;
  };
  expect([](const Tensor& t) { return var(t, {1}); });
  expect([](const Tensor& t) { return std(t, {0}, {.unbiased = false}); });
  expect([](const Tensor& t) { return norm(t, {1}); });
  expect([](const Tensor& t) { return logsumexp(t, {1}, {.keep_dims = true}); });
  expect([](const Tensor& t) { return stack(chunk(t, 2), 1); });
  expect([](const Tensor& t) { return split(t, {1, 2, 2}, 1)[1]; });
  expect([](const Tensor& t) { return masked_fill(t, greater(t, Tensor::scalar(0.0)), 3.0); });
}

TEST(StatisticsTest, ANormOfZeroHasNoGradient) {
  const Tensor x = Tensor::zeros({2, 3}, DType::kFloat64).set_requires_grad(true);
  backward(norm(x));
  EXPECT_EQ(x.grad().to_vector<double>(), Doubles(6, 0.0));
}

}  // namespace
}  // namespace sinter::ops
