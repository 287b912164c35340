// The CPU's own elementary functions of float: errors beside the standard library's in double precision, and
// its special values.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/wide_math.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

/// In units in the last place of the exact value. Equal infinities and NaN have none.
double error(float value, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isinf(rounded)) {
    const bool agrees = std::isnan(rounded) ? std::isnan(value) : value == rounded;
    return agrees ? 0 : kInf;
  }
  const float magnitude = std::abs(rounded);
  return std::abs(value - exact) / (std::nextafter(magnitude, kInf) - magnitude);
}

/// Calls body(x) for numbers of every exponent and sign, subnormal ones too, NaN and infinities.
template <class Body>
void for_floats(Body body) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) body(std::bit_cast<float>(uint32_t(bits)));
  for (const float x : {0.0F, kSmallest, 1.0F, kInf, kNaN, std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::min()}) {
    body(x);
    body(-x);
  }
}

TEST(ElementaryMath, StaysWithinItsErrorBounds) {
  for (float x = -103.5F; x < 88.7F; x += 0.00173F)
    ASSERT_LE(error(math::exp(x), std::exp(double{x})), 1.0) << x;
  for (float x = 1e-6F; x < 12.0F; x *= 1.0003F) {
    ASSERT_LE(error(math::tanh(x), std::tanh(double{x})), 2.5) << x;
    ASSERT_EQ(math::tanh(-x), -math::tanh(x));
  }
  for (float e = 1e-37F; e <= 1.0F; e *= 1.0007F)
    ASSERT_LE(error(math::log1p_of_unit(e), std::log1p(double{e})), 3.0) << e;
  EXPECT_EQ(math::log1p_of_unit(0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(math::log1p_of_unit(kNaN)));
}

TEST(ElementaryMath, ErfOfEveryMagnitude) {
  for_floats([](float x) { ASSERT_LE(error(math::erf(x), std::erf(double{x})), 2.0) << x; });
  for (float x = 0.25F; x < 4.5F; x += 0.0000717F) {
    ASSERT_LE(error(math::erf(x), std::erf(double{x})), 2.0) << x;
    ASSERT_EQ(math::erf(-x), -math::erf(x));
  }
  EXPECT_TRUE(std::signbit(math::erf(-0.0F)));
}

TEST(WideMath, LogOfEveryMagnitude) {
  for_floats([](float x) { ASSERT_LE(error(math::log(x), std::log(double{x})), 0.501) << x; });
  for (float x = 0.5F; x < 2.0F; x += 0.0000117F)
    ASSERT_LE(error(math::log(x), std::log(double{x})), 0.501) << x;
  EXPECT_EQ(math::log(1.0F), 0.0F);
}

TEST(WideMath, SineAndCosineUpToTheirBound) {
  for_floats([](float x) {
    if (std::abs(x) > math::kMostBoundedAngle) return;
    ASSERT_LE(error(math::bounded_sin(x), std::sin(double{x})), 0.51) << x;
    ASSERT_LE(error(math::bounded_cos(x), std::cos(double{x})), 0.51) << x;
  });
  // Near multiples of pi / 2 what is left of the angle has few digits.
  for (int i = 1; i < 600000; i += 7) {
    const float x = static_cast<float>(i * 1.57079632679489662);
    ASSERT_LE(error(math::bounded_sin(x), std::sin(double{x})), 0.51) << x;
    ASSERT_LE(error(math::bounded_cos(-x), std::cos(double{x})), 0.51) << x;
  }
  EXPECT_TRUE(std::signbit(math::bounded_sin(-0.0F)));
  EXPECT_TRUE(std::isnan(math::bounded_sin(kNaN)) && std::isnan(math::bounded_cos(kNaN)));
}

TEST(WideMath, PowOfAnyBaseAndExponent) {
  const auto check = [](float x, float exponent) {
    const double exact = std::pow(double{x}, double{exponent});
    const float value = math::pow(x, exponent);
    ASSERT_LE(error(value, exact), 0.51) << x << " to the power of " << exponent;
    if (!std::isnan(value)) {
      ASSERT_EQ(std::signbit(value), std::signbit(exact)) << x << " " << exponent;
    }
  };
  const float specials[] = {0.0F, 1.0F,  2.0F,  3.0F, 0.5F, 1.5F, 7.0F,   1e-3F,       0.1F,
                            8.0F, 16.0F, 1e10F, 1e3F, kInf, kNaN, 1e-30F, 16777217.0F, kSmallest};
  for (const float exponent : specials) {
    for (const float x : specials) {
      for (const float sign : {1.0F, -1.0F}) {
        check(x, sign * exponent);
        check(-x, sign * exponent);
      }
    }
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 262147)
      check(std::bit_cast<float>(uint32_t(bits)), exponent);
  }
  std::mt19937 random(11);
  std::uniform_real_distribution<float> base(0.0F, 20.0F), power(-30.0F, 30.0F);
  for (int i = 0; i < 300000; ++i) check(base(random), power(random));
}

/// Long angles among short ones: a block that has one takes another way.
TEST(Unary, AnglesOfAnySize) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> small(-10.0F, 10.0F), exponent(0.0F, 38.0F);
  std::vector<float> values(5000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i > 2000 && i % 37 == 0 ? std::pow(10.0F, exponent(random)) : small(random);
  values[3000] = kInf;
  values[4000] = kNaN;
  const auto check = [](const Tensor& y, auto function, const std::vector<float>& x) {
    const std::vector<float> got = y.to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(error(got[i], function(double{x[i]})), 1.0) << "of " << x[i];
  };
  const auto sine = [](double x) { return std::sin(x); };
  const auto cosine = [](double x) { return std::cos(x); };
  const Tensor x = Tensor::from_values(values, {static_cast<int64_t>(values.size())});
  check(sin(x), sine, values);
  check(cos(x), cosine, values);
}

}  // namespace
}  // namespace sinter::ops
