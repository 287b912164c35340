// Softmax, cross_entropy and l2_normalize: PyTorch's values and semantics in special cases, and errors.
#include <cmath>
#include <limits>

#include <sinter/autograd/backward.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/softmax/softmax.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;
using testing::Floats;
using testing::message_of;
using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14) << "element " << i;
}

Doubles row(const Tensor& x, size_t index) {
  const Doubles all = x.to_vector<double>();
  const auto width = static_cast<std::ptrdiff_t>(x.size(1));
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index) * width;
  return {begin, begin + width};
}

TEST(SoftmaxTest, NeitherOverflowsNorHidesNaN) {
  const Tensor x =
      Tensor::from_values(Floats{1e30f, 1e30f, -kInfinity, 0, 0, NAN, -1e30f, -1e30f, -1e30f}, {3, 3});
  for (int axis : {1, 0}) {
    const Tensor laid =
        axis == 1 ? x
                  : Tensor::from_values(Floats{1e30f, 0, -1e30f, 1e30f, 0, -1e30f, -kInfinity, NAN, -1e30f},
                                        {3, 3});
    const Floats y = softmax(laid, axis).to_vector<float>();
    const size_t step = axis == 1 ? 1 : 3, line = axis == 1 ? 3 : 1;
    EXPECT_EQ(y[0], 0.5f);
    EXPECT_EQ(y[step], 0.5f);
    EXPECT_EQ(y[2 * step], 0.0f);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[line + i * step]));
    EXPECT_FLOAT_EQ(y[2 * line], 1.0f / 3.0f);
    const Floats logs = log_softmax(laid, axis).to_vector<float>();
    EXPECT_FLOAT_EQ(logs[0], -std::log(2.0f));
    EXPECT_EQ(logs[2 * step], -kInfinity);
    EXPECT_TRUE(std::isnan(logs[line]));
  }
  // As in PyTorch: a row of nothing but -infinity has no softmax.
  EXPECT_TRUE(std::isnan(softmax(Tensor::full({1, 2}, -kInfinity)).to_vector<float>()[0]));
  EXPECT_EQ(softmax(counting({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(softmax(counting({1})).item(), 1.0);
}

TEST(SoftmaxTest, NamesWhatIsWrong) {
  EXPECT_EQ(message_of([&] { softmax(counting({2}), 1); }),
            "[softmax] axis 1 is out of range for a tensor of rank 1");
  EXPECT_EQ(message_of([&] { log_softmax(Tensor::scalar(1.0f)); }),
            "[log_softmax] axis -1 is out of range for a tensor of rank 0");
  EXPECT_EQ(message_of([&] { softmax(Tensor::zeros({2}, DType::kInt64)); }),
            "[softmax] expected x of a floating-point dtype but got int64");
  EXPECT_EQ(message_of([&] { vjp::softmax(counting({3}), counting({2})); }),
            "[softmax_grad] expected dy of shape (2,) but got (3,)");
}

Tensor logits() {
  return Tensor::from_values(Doubles{1, -2, .5, 0, 3, -1, 2, 2, 2, -1, 0, 1.5}, {4, 3})
      .set_requires_grad(true);
}

TEST(CrossEntropyTest, AgreesWithPyTorchOnIndices) {
  const Tensor target = Tensor::from_values(Ints{0, -100, 2, 1}, {4});
  const Tensor x = logits();
  const Tensor loss = cross_entropy(x, target);
  backward(loss);
  EXPECT_NEAR(loss.item(), 1.1231923636058423, 1e-14);
  expect_near(row(x.grad(), 0), {-0.13208370128379138, 0.010019629189858006, 0.1220640720939334});
  expect_near(row(x.grad(), 1), {0, 0, 0});
  const Tensor smoothed = logits();
  const Tensor smooth_loss = cross_entropy(smoothed, target, {.label_smoothing = 0.1});
  backward(smooth_loss);
  EXPECT_NEAR(smooth_loss.item(), 1.1565256969391755, 1e-14);
  expect_near(row(smoothed.grad(), 0), {-0.10986147906156915, -0.001091481921253103, 0.1109529609828223});
}

TEST(CrossEntropyTest, AgreesWithPyTorchOnProbabilities) {
  // Rows that do not sum to one are part of PyTorch's semantics.
  const Tensor p = Tensor::from_values(Doubles{.2, .3, .5, 0, 1, 0, .5, .5, .2, .1, .1, .1}, {4, 3});
  p.set_requires_grad(true);
  const Tensor x = logits();
  const Tensor loss = cross_entropy(x, p);
  backward(loss);
  EXPECT_NEAR(loss.item(), 0.879681480610896, 1e-14);
  expect_near(row(x.grad(), 3), {-0.020283249006559936, -0.01217854148516573, 0.03246179049172567});
  expect_near(row(p.grad(), 3), {0.6915919749517834, 0.44159197495178343, 0.06659197495178341});
  p.set_grad({});
  const Tensor smoothed = logits();
  const Tensor smooth_loss = cross_entropy(smoothed, p, {.label_smoothing = 0.1});
  backward(smooth_loss);
  EXPECT_NEAR(smooth_loss.item(), 0.9609331907475138, 1e-14);
  expect_near(row(smoothed.grad(), 3), {-0.025016007108090592, -0.015020201165037737, 0.04003620827312833});
  expect_near(row(p.grad(), 3), {0.6224327774566051, 0.3974327774566051, 0.05993277745660507});
}

TEST(CrossEntropyTest, MeanOverNoRowIsNaNAndItsGradientZero) {
  const Tensor ignored = Tensor::from_values(Ints{7, 7, 7, 7}, {4});
  for (double smoothing : {0.0, 0.1}) {
    const Tensor x = logits();
    const Tensor loss = cross_entropy(x, ignored, {.label_smoothing = smoothing, .ignore_index = 7});
    EXPECT_TRUE(std::isnan(loss.item()));
    backward(loss);
    EXPECT_EQ(x.grad().to_vector<double>(), Doubles(12, 0.0));
    EXPECT_EQ(cross_entropy(x, ignored, {.ignore_index = 7, .reduction = Reduction::kSum}).item(), 0.0);
    EXPECT_EQ(
        cross_entropy(x, ignored, {.ignore_index = 7, .reduction = Reduction::kNone}).to_vector<double>(),
        Doubles(4, 0.0));
  }
  const Tensor none = Tensor::zeros({0}, DType::kInt64);
  EXPECT_TRUE(std::isnan(cross_entropy(counting({0, 3}), none).item()));
  EXPECT_EQ(cross_entropy(counting({0, 3}), none, {.reduction = Reduction::kSum}).item(), 0.0);
}

TEST(CrossEntropyTest, KeepsLargeLogitsAndHalfsExact) {
  const Tensor target = Tensor::from_values(Ints{0, 1}, {2});
  const Tensor x = Tensor::from_values(Floats{1e6f, 1e6f + 1, 3e4f, -3e4f}, {2, 2});
  const Floats losses = cross_entropy(x, target, {.reduction = Reduction::kNone}).to_vector<float>();
  EXPECT_FLOAT_EQ(losses[0], 1.3132617f);
  EXPECT_FLOAT_EQ(losses[1], 6e4f);
  const Tensor half = Tensor::full({2, 10}, 0.5, DType::kFloat16);
  const Tensor loss = cross_entropy(half, target);
  EXPECT_EQ(loss.dtype(), DType::kFloat32);
  EXPECT_FLOAT_EQ(static_cast<float>(loss.item()), std::log(10.0f));
}

TEST(CrossEntropyTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  const auto with = [&](const Tensor& target, const CrossEntropyOptions& options = {}) {
    return message_of([&] { cross_entropy(x, target, options); });
  };
  const Tensor good = Tensor::from_values(Ints{0, 2}, {2});
  EXPECT_EQ(with(Tensor::from_values(Ints{0, 3}, {2})),
            "[cross_entropy] expected class indices in [0, 3) or ignore_index -100 but got 3 in row 1");
  EXPECT_EQ(with(Tensor::zeros({3}, DType::kInt64)),
            "[cross_entropy] expected target of shape (2,) but got (3,)");
  EXPECT_EQ(with(Tensor::zeros({2}, DType::kInt32)),
            "[cross_entropy] expected target of dtype int64 but got int32");
  EXPECT_EQ(with(Tensor::scalar(int64_t{0})),
            "[cross_entropy] expected target of rank 1 or 2 but got shape ()");
  EXPECT_EQ(with(Tensor::zeros({2, 3}, DType::kFloat64)),
            "[cross_entropy] expected target and logits of one dtype but got float64 and float32");
  EXPECT_EQ(with(Tensor::zeros({2, 3}), {.ignore_index = 1}),
            "[cross_entropy] ignore_index 1 has no meaning with target probabilities");
  EXPECT_EQ(with(good, {.label_smoothing = 1.5}),
            "[cross_entropy] expected label_smoothing in [0, 1] but got 1.5");
  EXPECT_EQ(message_of([&] {
              cross_entropy(counting({2, 0}), good);
            }),
            "[cross_entropy] expected at least one class but got logits of shape (2, 0)");
  EXPECT_EQ(message_of([&] { cross_entropy(counting({2}), good); }),
            "[cross_entropy] expected logits of rank 2 but got shape (2,)");
  EXPECT_EQ(message_of([&] { vjp::cross_entropy(Tensor::scalar(1.0f), x, good, counting({2}), {}, true); }),
            "[cross_entropy_grad] class indices have no gradient");
}

TEST(L2NormalizeTest, LeavesZeroVectorsAndRefusesEpsilonZero) {
  const Tensor x = Tensor::from_values(Floats{3, 4, 0, 0}, {2, 2}).set_requires_grad(true);
  const Tensor y = l2_normalize(x);
  EXPECT_EQ(y.to_vector<float>(), (Floats{0.6f, 0.8f, 0, 0}));
  backward(y, {.gradient = Tensor::full({2, 2}, 1.0)});
  for (float value : x.grad().to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(l2_normalize(counting({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(message_of([&] { l2_normalize(x, 0, 0.0); }), "[l2_normalize] expected epsilon > 0 but got 0");
  EXPECT_EQ(message_of([&] { l2_normalize(x, 2); }),
            "[l2_normalize] axis 2 is out of range for a tensor of rank 2");
}

}  // namespace
}  // namespace sinter::ops
