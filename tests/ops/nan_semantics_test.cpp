// Where NaN goes, and what a gradient is at a corner: as in PyTorch 2.11, on every device and in every dtype,
// so that no rewrite of one op into another changes it.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/unary/unary.h>

#include "ops/float_places.h"

namespace sinter::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class NanSemantics : public FloatPlaceTest {
 protected:
  /// Enough copies of the values for vectors and for what is left beside them.
  Tensor tensor(const std::vector<double>& values) const {
    std::vector<double> all;
    for (size_t i = 0; i < kCopies; ++i) all.insert(all.end(), values.begin(), values.end());
    const auto count = static_cast<int64_t>(all.size());
    return cast(Tensor::from_values(all, {count}), GetParam().dtype).to(GetParam().device);
  }
  /// `value` rounded to the dtype.
  double rounded(double value) const { return cast(Tensor::scalar(value), GetParam().dtype).item(); }

  static void expect(const Tensor& got, const std::vector<double>& expected) {
    const auto values = cast(got.to(Device::cpu()), DType::kFloat64).to_vector<double>();
    ASSERT_EQ(values.size(), expected.size() * kCopies);
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = expected[i % expected.size()];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(values[i])) << "element " << i << ": " << values[i];
      } else {
        ASSERT_EQ(values[i], want) << "element " << i;
      }
    }
  }

  static constexpr size_t kCopies = 7;
};

TEST_P(NanSemantics, ReluKeepsIt) {
  expect(relu(tensor({kNan, -1, 2, -kInfinity, kInfinity})), {kNan, 0, 2, 0, kInfinity});
}

TEST_P(NanSemantics, ReluPassesTheGradientWhereItsOutputIsNan) {
  expect(vjp::relu(tensor({3, 3, 3, kNan, kNan}), tensor({kNan, 0, 2, kNan, 0})), {3, 0, 3, kNan, 0});
}

TEST_P(NanSemantics, ClipKeepsItAndPassesNoGradient) {
  const Tensor x = tensor({kNan, -3, 0, 3});
  expect(clip(x, -1, 1), {kNan, -1, 0, 1});
  expect(vjp::clip(tensor({5, 5, 5, 5}), x, -1, 1), {0, 0, 5, 0});
}

TEST_P(NanSemantics, ClipPassesTheGradientAtItsBounds) {
  // Neither bound is a number of any dtype; an element at a bound is one that clip gave.
  const double low = rounded(-0.1), high = rounded(0.7);
  const Tensor x = tensor({low, high, -0.2, 0.8, 0.3});
  expect(clip(x, -0.1, 0.7), {low, high, low, high, rounded(0.3)});
  expect(vjp::clip(tensor({2, 2, 2, 2, 2}), x, -0.1, 0.7), {2, 2, 0, 0, 2});
}

TEST_P(NanSemantics, PReluTakesItForNegative) {
  const Tensor x = tensor({kNan, 4, -2, 0});
  const Tensor alpha = cast(Tensor::from_values<double>({0.25}, {1}), GetParam().dtype).to(GetParam().device);
  expect(prelu(x, alpha), {kNan, 4, -0.5, 0});
  const Tensor dy = tensor({8, 8, 8, 8});
  const auto [dx, dalpha] = vjp::prelu(dy, x, alpha);
  expect(dx, {2, 8, 2, 2});
  expect(vjp::prelu_x(dy, x, alpha), {2, 8, 2, 2});
  EXPECT_TRUE(std::isnan(cast(dalpha.to(Device::cpu()), DType::kFloat64).item()));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, NanSemantics, testing::ValuesIn(float_places()), float_place_name);

}  // namespace
}  // namespace sinter::ops
