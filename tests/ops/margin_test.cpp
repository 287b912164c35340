// combined_margin: values by hand, both gradients, safety at cosines of one, the filter, and errors.
#include <cmath>
#include <limits>
#include <numbers>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/margin/margin.h>
#include <sinter/ops/reduce/reduce.h>

#include "ops/large_tensor_support.h"
#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;
using testing::Floats;
using testing::message_of;
using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;

constexpr CombinedMarginOptions kArcFace{};
constexpr CombinedMarginOptions kCosFace{.m2 = 0.0, .m3 = 0.4};
constexpr CombinedMarginOptions kAll{.m1 = 0.9, .m2 = 0.4, .m3 = 0.15};

Tensor labels_of(const Ints& labels) {
  return Tensor::from_values(labels, {static_cast<int64_t>(labels.size())});
}

Tensor row_of(const Doubles& cosines, DType dtype = DType::kFloat64) {
  const Tensor row = Tensor::from_values(cosines, {1, static_cast<int64_t>(cosines.size())});
  return cast(row, dtype).detach();
}

/// The gradient of the sum of all logits.
Doubles gradient_of(const Tensor& cosine, const Tensor& labels, const CombinedMarginOptions& options) {
  const Tensor leaf = cosine.detach().set_requires_grad(true);
  const Tensor logits = combined_margin(leaf, labels, options);
  backward(logits, {.gradient = Tensor::full(logits.shape(), 1.0, logits.dtype())});
  return cast(leaf.grad(), DType::kFloat64).to_vector<double>();
}

TEST(CombinedMarginTest, AddsItsMarginsToTheOwnClassOnly) {
  const Tensor cosine = Tensor::from_values(Doubles{0.5, -0.25, 0.75, 0.125, 0.0, -1.0}, {2, 3});
  const Tensor labels = labels_of({0, 2});
  const auto logits = [&](const CombinedMarginOptions& options) {
    return combined_margin(cosine, labels, options).to_vector<double>();
  };
  constexpr double pi = std::numbers::pi;
  const Doubles arc = logits(kArcFace), cos = logits(kCosFace), all = logits(kAll);
  for (const Doubles& result : {arc, cos, all}) {
    EXPECT_EQ((Doubles{result[1], result[2], result[3], result[4]}), (Doubles{-16, 48, 8, 0}));
  }
  EXPECT_NEAR(arc[0], 64 * std::cos(pi / 3 + 0.5), 1e-13);
  EXPECT_NEAR(arc[5], 64 * std::cos(pi + 0.5), 1e-13) << "beyond pi the cosine rises again";
  EXPECT_NEAR(cos[0], 64 * 0.1, 1e-13);
  EXPECT_NEAR(cos[5], 64 * -1.4, 1e-13);
  EXPECT_NEAR(all[0], 64 * (std::cos(0.9 * pi / 3 + 0.4) - 0.15), 1e-13);
  EXPECT_EQ(logits({.scale = 1, .m2 = 0}), cosine.to_vector<double>()) << "no margin at all";
}

TEST(CombinedMarginTest, StraightThroughGradientIsTheScaleEverywhere) {
  const Tensor cosine = row_of({0.3, -0.6, 0.9, 1.0});
  for (CombinedMarginOptions options : {kArcFace, kCosFace, kAll}) {
    options.scale = 32.0;
    for (int64_t own = -1; own < 4; ++own) {
      EXPECT_EQ(gradient_of(cosine, labels_of({own}), options), Doubles(4, 32.0));
    }
    CombinedMarginOptions exact = options;
    exact.gradient = MarginGradient::kExact;
    EXPECT_EQ(combined_margin(cosine, labels_of({1}), options).to_vector<double>(),
              combined_margin(cosine, labels_of({1}), exact).to_vector<double>());
    const double angle = std::acos(-0.6);
    const double slope = options.m1 * std::sin(options.m1 * angle + options.m2) / std::sin(angle);
    const Doubles gradient = gradient_of(cosine, labels_of({1}), exact);
    EXPECT_EQ((Doubles{gradient[0], gradient[2], gradient[3]}), Doubles(3, 32.0));
    EXPECT_NEAR(gradient[1], 32.0 * slope, 1e-12);
  }
  // What the exact gradient costs: past pi - m2 it pushes away from the centre.
  EXPECT_LT(gradient_of(row_of({-0.95}), labels_of({0}), {.gradient = MarginGradient::kExact})[0], 0.0);
}

TEST(CombinedMarginTest, IsFiniteAtAndBeyondCosinesOfOne) {
  constexpr float above = 1.0f + std::numeric_limits<float>::epsilon();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 2e-5;
    for (CombinedMarginOptions options : {kArcFace, kCosFace, kAll}) {
      for (const MarginGradient gradient : {MarginGradient::kStraightThrough, MarginGradient::kExact}) {
        options.gradient = gradient;
        const auto at = [&](double cosine) {
          const Tensor logit = combined_margin(row_of({cosine}, dtype), labels_of({0}), options);
          return static_cast<double>(logit.item());
        };
        EXPECT_NEAR(at(1.0), 64 * (std::cos(options.m2) - options.m3), 64 * tolerance);
        EXPECT_NEAR(at(-1.0), 64 * (std::cos(options.m1 * std::numbers::pi + options.m2) - options.m3),
                    64 * tolerance);
        EXPECT_EQ(at(double{above}), at(1.0));
        EXPECT_EQ(at(-double{above}), at(-1.0));
        // The steepest angle is 2^-10; float16 holds the product of 64 and its slope.
        for (const double cosine : {1.0, -1.0, double{above}, -double{above}, 1.0 - 0x1p-23}) {
          const double slope = gradient_of(row_of({cosine}, dtype), labels_of({0}), options)[0];
          EXPECT_LE(std::abs(slope), 64 * 1025) << cosine;
        }
      }
    }
  }
  const CombinedMarginOptions exact{.scale = 1, .gradient = MarginGradient::kExact};
  const double angle = std::acos(1 - 0x1p-21);
  EXPECT_NEAR(gradient_of(row_of({1.0}), labels_of({0}), exact)[0], std::sin(angle + 0.5) / std::sin(angle),
              1e-6);
}

TEST(CombinedMarginTest, FilterTakesOtherClassesOutWithTheirGradient) {
  const Tensor cosine =
      Tensor::from_values(Doubles{0.5, 0.4, 0.39, -0.9, 0.9, 0.5, -0.0, 0.0, 0.5, 0.2, 0.41, 1.0}, {3, 4});
  const Tensor labels = labels_of({0, kNoPositive, 1});
  const CombinedMarginOptions options{.scale = 10, .m2 = 0, .m3 = 0.1, .interclass_filter = 0.4};
  EXPECT_EQ(combined_margin(cosine, labels, options).to_vector<double>(),
            (Doubles{4, 4, 10 * 0.39, -9, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(gradient_of(cosine, labels, options), (Doubles{10, 10, 10, 10, 0, 0, 10, 10, 0, 10, 0, 0}));
  // An own class whose logit is 0, or above the filter, is never taken out.
  const CombinedMarginOptions plain{.scale = 10, .m2 = 0, .interclass_filter = 0.4};
  EXPECT_EQ(gradient_of(row_of({-0.0, 0.9}), labels_of({0}), plain), (Doubles{10, 0}));
  EXPECT_EQ(gradient_of(row_of({-0.0, 0.9}), labels_of({1}), plain), (Doubles{10, 10}));
}

TEST(CombinedMarginTest, RowsWithoutPositiveAreOnlyScaled) {
  const Tensor cosine = Tensor::from_values(Doubles{0.5, -0.25, 1.0, 0.125}, {2, 2});
  const Tensor labels = labels_of({kNoPositive, 1});
  const std::vector<Tensor> outputs = call(builtin("combined_margin"), {cosine, labels, {}, {}}, kCosFace);
  const Doubles logits = outputs[0].to_vector<double>();
  EXPECT_EQ((Doubles{logits[0], logits[1], logits[2]}), (Doubles{32, -16, 64}));
  EXPECT_EQ(outputs[1].to_vector<double>(), (Doubles{0, 0.125}));
  EXPECT_EQ(combined_margin(Tensor::zeros({0, 3}), labels_of({})).shape(), (Shape{0, 3}));
}

// Angles and shifts of rows: AdaFace's margins of 0.4 at a cosine of 0.5, for faces below, at and above the
// mean quality.
TEST(CombinedMarginTest, RowsHaveMarginsOfTheirOwn) {
  const Tensor cosine = Tensor::from_values(Doubles{0.5, 0.25, 0.5, 0.25, 0.5, 0.25}, {3, 2});
  const Tensor angles = Tensor::from_values(Doubles{0.4, 0.0, -0.4}, {3}),
               shifts = Tensor::from_values(Doubles{0.0, 0.4, 0.8}, {3});
  const CombinedMarginOptions options{.gradient = MarginGradient::kExact, .epsilon = 1e-3};
  const Doubles logits =
      combined_margin(cosine, labels_of({0, 0, 0}), options, angles, shifts).to_vector<double>();
  EXPECT_NEAR(logits[0], 7.8902, 1e-4);
  EXPECT_NEAR(logits[2], 6.4, 1e-12);
  EXPECT_NEAR(logits[4], -0.1423, 1e-4);
  EXPECT_EQ((Doubles{logits[1], logits[3], logits[5]}), Doubles(3, 16.0));
  // Those of all rows are those of each.
  EXPECT_EQ(combined_margin(cosine, labels_of({0, 1, -1}), kAll).shape(), cosine.shape());
  const CombinedMarginOptions same{.m2 = 0.3, .m3 = 0.2};
  const Doubles common = combined_margin(cosine, labels_of({0, 1, -1}), same).to_vector<double>(),
                given = combined_margin(cosine, labels_of({0, 1, -1}), {},
                                        Tensor::full({3}, 0.3, DType::kFloat64),
                                        Tensor::full({3}, 0.2, DType::kFloat64))
                            .to_vector<double>();
  for (size_t i = 0; i < common.size(); ++i) EXPECT_NEAR(given[i], common[i], 1e-13);
}

TEST(CombinedMarginTest, GradientByMarginsOfRowsIsThatOfTheOwnLogitOnly) {
  const Tensor cosine = Tensor::from_values(Doubles{0.5, 0.25, 0.5, -0.75, 0.5, 0.25}, {3, 2});
  const Tensor angles = Tensor::from_values(Doubles{0.4, 0.2, 0.1}, {3}).set_requires_grad(true),
               shifts = Tensor::from_values(Doubles{0.1, 0.4, 0.8}, {3}).set_requires_grad(true);
  const Tensor logits = combined_margin(cosine, labels_of({0, 1, kNoPositive}), {}, angles, shifts);
  backward(logits, {.gradient = Tensor::from_values(Doubles{2, 3, 5, 7, 11, 13}, {3, 2})});
  const Doubles by_angle = angles.grad().to_vector<double>();
  EXPECT_NEAR(by_angle[0], -2 * 64 * std::sin(std::acos(0.5) + 0.4), 1e-11);
  EXPECT_NEAR(by_angle[1], -7 * 64 * std::sin(std::acos(-0.75) + 0.2), 1e-11);
  EXPECT_EQ(by_angle[2], 0.0);
  EXPECT_EQ(shifts.grad().to_vector<double>(), (Doubles{-128, -448, 0}));
}

TEST(CombinedMarginTest, EpsilonKeepsCosinesAndMovedAnglesOffTheirEnds) {
  constexpr double pi = std::numbers::pi, epsilon = 1e-3;
  const CombinedMarginOptions options{.scale = 1, .gradient = MarginGradient::kExact, .epsilon = epsilon};
  const auto logit = [&](double cosine, double angle) {
    const Tensor angles = Tensor::from_values(Doubles{angle}, {1});
    return combined_margin(row_of({cosine}), labels_of({0}), options, angles).to_vector<double>()[0];
  };
  const auto slope = [&](double cosine, double angle) {
    const Tensor leaf = row_of({cosine}).set_requires_grad(true);
    const Tensor angles = Tensor::from_values(Doubles{angle}, {1}).set_requires_grad(true);
    backward(ops::sum(combined_margin(leaf, labels_of({0}), options, angles)));
    return std::pair(leaf.grad().to_vector<double>()[0], angles.grad().to_vector<double>()[0]);
  };
  EXPECT_NEAR(logit(0.9999, 0.0), 0.999, 1e-12);  // the cosine is kept
  EXPECT_EQ(slope(0.9999, 0.0).first, 0.0);
  EXPECT_NEAR(logit(-1.0, -0.2), std::cos(std::acos(-0.999) - 0.2), 1e-12);
  EXPECT_NEAR(logit(std::cos(0.3), -0.4), std::cos(epsilon), 1e-12);  // the angle would be below 0
  EXPECT_EQ(slope(std::cos(0.3), -0.4), std::pair(0.0, 0.0));
  EXPECT_NEAR(logit(std::cos(2.9), 0.4), std::cos(pi - epsilon), 1e-12);  // and beyond pi
  EXPECT_EQ(slope(std::cos(2.9), 0.4), std::pair(0.0, 0.0));
  EXPECT_NEAR(slope(std::cos(2.0), 0.4).first, std::sin(2.4) / std::sin(2.0), 1e-12);
  EXPECT_NEAR(slope(std::cos(2.0), 0.4).second, -std::sin(2.4), 1e-12);
}

TEST(CombinedMarginTest, NaNStaysWhereItCame) {
  for (const double filter : {0.0, 0.3}) {
    for (const MarginGradient gradient : {MarginGradient::kStraightThrough, MarginGradient::kExact}) {
      const CombinedMarginOptions options{.interclass_filter = filter, .gradient = gradient};
      for (const int64_t own : {0, 1}) {
        const Tensor cosine = row_of({0.1, NAN, 0.2});
        const Doubles logits = combined_margin(cosine, labels_of({own}), options).to_vector<double>();
        EXPECT_TRUE(std::isfinite(logits[0]) && std::isnan(logits[1]) && std::isfinite(logits[2]));
        EXPECT_TRUE(std::isfinite(gradient_of(cosine, labels_of({own}), options)[0]));
      }
    }
  }
}

TEST(CombinedMarginTest, SixteenBitCosinesGiveFloat32Logits) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor cosine = row_of({0.123456, -0.7, 0.987654}, dtype);
    const Tensor leaf = cosine.detach().set_requires_grad(true);
    const Tensor logits = combined_margin(leaf, labels_of({2}));
    EXPECT_EQ(logits.dtype(), DType::kFloat32);
    EXPECT_EQ(logits.detach().to_vector<float>(),
              combined_margin(cast(cosine, DType::kFloat32), labels_of({2})).to_vector<float>())
        << "rounded only where the cosines were";
    backward(logits, {.gradient = Tensor::full(logits.shape(), 1.0)});
    EXPECT_EQ(leaf.grad().dtype(), dtype);
  }
}

TEST(CombinedMarginTest, NamesWhatIsWrong) {
  const Tensor cosine = Tensor::zeros({2, 3});
  const auto with = [&](const Tensor& labels, const CombinedMarginOptions& options = {}) {
    return message_of([&] { combined_margin(cosine, labels, options); });
  };
  const Tensor good = labels_of({0, -1});
  EXPECT_EQ(with(labels_of({0, 3})),
            "[combined_margin] expected labels in [0, 3), or -1 for none of these classes, but got 3 in row "
            "1");
  EXPECT_EQ(with(labels_of({-100, 0})),
            "[combined_margin] expected labels in [0, 3), or -1 for none of these classes, but got -100 in "
            "row 0");
  EXPECT_EQ(with(Tensor::zeros({2, 1}, DType::kInt64)),
            "[combined_margin] expected labels of shape (2,), one for each row, but got (2, 1); "
            "ops::squeeze(labels, 1) gives it");
  EXPECT_EQ(with(Tensor::zeros({3}, DType::kInt64)),
            "[combined_margin] expected labels of shape (2,) but got (3,)");
  EXPECT_EQ(with(Tensor::zeros({2})), "[combined_margin] expected labels of dtype int64 but got float32");
  EXPECT_EQ(message_of([&] {
              combined_margin(Tensor::zeros({2, 0}), good);
            }),
            "[combined_margin] expected at least one class but got shape (2, 0)");
  EXPECT_EQ(message_of([&] { combined_margin(Tensor::zeros({2}), good); }),
            "[combined_margin] expected cosine of rank 2 but got shape (2,)");
  EXPECT_EQ(with(good, {.scale = 0}), "[combined_margin] expected scale > 0 but got 0");
  EXPECT_EQ(with(good, {.m1 = NAN}), "[combined_margin] expected m1 > 0 but got nan");
  EXPECT_EQ(with(good, {.m2 = 4}), "[combined_margin] expected m2 in [0, pi) but got 4");
  EXPECT_EQ(with(good, {.m3 = -0.4}), "[combined_margin] expected m3 >= 0 but got -0.4");
  EXPECT_EQ(with(good, {.interclass_filter = 1}),
            "[combined_margin] expected interclass_filter in [0, 1) but got 1");
  EXPECT_EQ(with(good, {.epsilon = 1}), "[combined_margin] expected epsilon in [0, 1) but got 1");
  EXPECT_EQ(message_of([&] { combined_margin(cosine, good, {.m1 = 0.9}, Tensor::zeros({2})); }),
            "[combined_margin] expected m1 = 1 beside angles of each row but got 0.9");
  EXPECT_EQ(message_of([&] { combined_margin(cosine, good, {}, {}, Tensor::zeros({3})); }),
            "[combined_margin] expected shifts of shape (2,) but got (3,)");
  EXPECT_EQ(message_of([&] { own_elements(cosine, Tensor::zeros({3}, DType::kInt64)); }),
            "[own_elements] expected x (N, C) and labels (N) but got shapes (2, 3) and (3,)");
}

TEST(CombinedMarginTest, WrongLabelsOnAGpuGiveNaNInTheirRowsOnly) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  for (const int64_t classes : {3, 4, 1031}) {  // rows within a pack, of whole packs, and neither
    const Tensor labels = labels_of({0, classes, -2, classes - 1, kNoPositive}).to(Device::cuda());
    const Tensor leaf = Tensor::full({5, classes}, 0.25, DType::kFloat32, Device::cuda());
    leaf.set_requires_grad(true);
    const Tensor logits = combined_margin(leaf, labels);
    const Tensor losses = cross_entropy(logits, Tensor::zeros({5}, DType::kInt64, Device::cuda()),
                                        {.reduction = Reduction::kNone});
    backward(losses, {.gradient = Tensor::full({5}, 1.0, DType::kFloat32, Device::cuda())});
    const Floats each = losses.detach().to(Device::cpu()).to_vector<float>();
    const Floats gradient = leaf.grad().to(Device::cpu()).to_vector<float>();
    for (size_t row = 0; row < 5; ++row) {
      const bool wrong = row == 1 || row == 2;
      EXPECT_EQ(std::isnan(each[row]), wrong) << row;
      EXPECT_EQ(std::isnan(gradient[row * static_cast<size_t>(classes)]), wrong) << row;
      EXPECT_EQ(std::isnan(gradient[(row + 1) * static_cast<size_t>(classes) - 1]), wrong) << row;
    }
  }
}

class LargeMargin : public testing::LargeTensor {};
INSTANTIATE_TEST_SUITE_P(GpuLong, LargeMargin, ::testing::Values(testing::kLarge));
INSTANTIATE_TEST_SUITE_P(Small, LargeMargin, ::testing::Values(testing::kSmall));

// As the centres of millions of classes have them: more than 2^31 logits.
TEST_P(LargeMargin, LogitsAndGradientOfEveryRow) {
  const testing::Pattern cosine = matrix(DType::kFloat16, true, 0, 1.0 / 64),
                         dlogits = matrix(DType::kFloat32, true, 1, 1.0 / 64);
  std::vector<int64_t> own;
  for (int64_t row = 0; row < scale.rows; ++row)
    own.push_back(row % 5 == 0 ? kNoPositive : row * 7 % scale.columns);
  const Tensor labels = Tensor::from_values(own, {scale.rows}, scale.device);
  const CombinedMarginOptions options{.interclass_filter = 0.3, .gradient = MarginGradient::kExact};
  const auto forward = [&](const Tensor& x, const Tensor& rows) {
    return call(builtin("combined_margin"), {x, rows, {}, {}}, options);
  };
  // Neighbours differ by more than 0.5; the kernels for few and for many elements may differ in their last
  // bits, which of the gradients, up to 64 in float16, are 0.03.
  constexpr double kTolerance = 0.1;
  const std::vector<Tensor> outputs = forward(cosine.whole(), labels);
  EXPECT_EQ(wrong(
                outputs[0],
                [&](auto begin, auto end) {
                  return forward(cosine.piece(begin, end), testing::piece_of(labels, begin, end))[0];
                },
                kTolerance),
            0);
  const std::vector<float> found = outputs[1].to_vector<float>();
  for (size_t row = 0; row < found.size(); ++row) {
    const double expected =
        own[row] < 0 ? 0.0 : cosine.table(0)[row] + cosine.table(1)[static_cast<size_t>(own[row])];
    ASSERT_EQ(static_cast<double>(found[row]), expected) << row;
  }
  const Tensor dcosine =
      vjp::combined_margin(dlogits.whole(), labels, outputs[0], outputs[1], DType::kFloat16, options);
  EXPECT_EQ(wrong(
                dcosine,
                [&](auto begin, auto end) {
                  const auto part = [&](const Tensor& x) { return testing::piece_of(x, begin, end); };
                  return vjp::combined_margin(dlogits.piece(begin, end), part(labels), part(outputs[0]),
                                              part(outputs[1]), DType::kFloat16, options);
                },
                kTolerance),
            0);
}

}  // namespace
}  // namespace sinter::ops
