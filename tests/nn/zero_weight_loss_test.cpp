// Terms of losses that weigh nothing have no part in them, nor a gradient, however far they are; and averages
// of models whose decay leaves one side out. Finite values and gradients are PyTorch 2.15's.
#include <cmath>
#include <limits>

#include <sinter/autograd/backward.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/ops/cast/cast.h>

#include "nn/device_test_support.h"

namespace sinter::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Doubles = std::vector<double>;

class ZeroWeightLoss : public testing::OnEachDevice {
 protected:
  Tensor tensor(const Doubles& values, const Shape& shape, DType dtype = DType::kFloat32) const {
    return ops::cast(Tensor::from_values(values, shape), dtype).to(device());
  }
  Tensor labels(const std::vector<int64_t>& values) const {
    return Tensor::from_values(values, {static_cast<int64_t>(values.size())}).to(device());
  }
  static void expect_near(const Tensor& got, const Doubles& expected) {
    const Doubles values = ops::cast(got.to(Device::cpu()), DType::kFloat64).to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isinf(expected[i]) || expected[i] == 0) {
        EXPECT_EQ(values[i], expected[i]) << i;
      } else {
        EXPECT_NEAR(values[i], expected[i], 2e-6 * std::max(1.0, std::abs(expected[i]))) << i;
      }
    }
  }
  /// The loss, and the gradients of its sum with respect to both arguments; that of the second unless it is
  /// empty.
  template <class Loss>
  void expect_loss(const Loss& loss, const Tensor& a, const Tensor& b, const Doubles& value,
                   const Doubles& da, const Doubles& db = {}) const {
    const Tensor x = a.detach().set_requires_grad(true), y = b.detach();
    if (!db.empty()) y.set_requires_grad(true);
    const Tensor y_of_loss = loss(x, y);
    backward(y_of_loss, {.gradient = Tensor::full(y_of_loss.shape(), 1.0, y_of_loss.dtype(), device())});
    expect_near(y_of_loss, value);
    expect_near(x.grad(), da);
    if (!db.empty()) expect_near(y.grad(), db);
  }
};

TEST_P(ZeroWeightLoss, WeightedCrossEntropy) {
  const Tensor gap = tensor({1, 2, 3, 1, -kInfinity, 2}, {2, 3}), nan = tensor({1, 2, 3, 1, kNan, 2}, {2, 3});
  const Tensor middle_counts_double = tensor({1, 2, 1}, {3}), middle_is_out = tensor({1, 0, 1}, {3});
  const Doubles own{-0.9099694268296196, 0.24472847105479764, 0.6652409557748218, 0, 0, 0};
  for (const Tensor& x : {gap, nan}) {
    expect_loss(CrossEntropyLoss{.label_smoothing = 0.1}, x, labels({0, -100}), {2.3076059644443805},
                {-0.8433027601629529, 0.21139513772146432, 0.6319076224414885, 0, 0, 0});
    expect_loss(CrossEntropyLoss{.label_smoothing = 0.1, .weight = middle_counts_double}, x,
                labels({0, -100}), {2.354526163259193},
                {-0.8403017410572735, 0.1862194200899576, 0.6540823209673159, 0, 0, 0});
    expect_loss(CrossEntropyLoss{.weight = middle_counts_double}, x, labels({0, -100}), {2.4076059644443806},
                own);
    // PyTorch's value is that of a large, finite logit.
    expect_loss(CrossEntropyLoss{.weight = middle_is_out}, x, labels({0, 1}), {2.4076059644443806}, own);
  }
  expect_loss(CrossEntropyLoss{.label_smoothing = 0.1, .weight = middle_is_out}, gap, labels({0, 2}),
              {1.2984193651152585},
              {-0.4231518896343161, 0.11828542767648553, 0.3048664619578305, 0.11332168699549763, 0,
               -0.11332168699549763});
  // Nothing but smoothing: the target's own term is out, however far it is.
  expect_loss(CrossEntropyLoss{.label_smoothing = 1.0, .reduction = Reduction::kSum, .weight = middle_is_out},
              tensor({1, -kInfinity, 1}, {1, 3}), labels({1}), {2 * std::log(2.0) / 3}, {0, 0, 0});
}

TEST_P(ZeroWeightLoss, CrossEntropyOfProbabilities) {
  const Tensor x = tensor({1, -kInfinity, 2}, {1, 3});
  const double far = 1.3132616875182228, near = 0.31326168751822286, likely = 0.7310585786300049;
  expect_loss(CrossEntropyLoss{}, x, tensor({1, 0, 0}, {1, 3}), {far}, {-likely, 0, likely}, {far, 0, near});
  expect_loss(CrossEntropyLoss{.weight = tensor({2, 1, 1}, {3})}, x, tensor({1, 0, 0}, {1, 3}), {2 * far},
              {-2 * likely, 0, 2 * likely}, {2 * far, 0, near});
  expect_loss(CrossEntropyLoss{.weight = tensor({2, 0, 1}, {3})}, x, tensor({.5, .5, 0}, {1, 3}), {far},
              {-likely, 0, likely}, {2 * far, 0, near});
}

TEST_P(ZeroWeightLoss, KlDivergenceAtProbabilityZero) {
  const double least = std::log(double{std::numeric_limits<float>::min()});
  expect_loss(KLDivLoss{}, tensor({-kInfinity, 0}, {1, 2}), tensor({0, 1}, {1, 2}), {0}, {0, -1}, {0, 1});
  expect_loss(KLDivLoss{}, tensor({-1, -0.5}, {1, 2}), tensor({0, 1}, {1, 2}), {0.5}, {0, -1},
              {least + 1, 1.5});
  expect_loss(KLDivLoss{}, tensor({-kInfinity, 0}, {1, 2}), tensor({0.5, 0.5}, {1, 2}), {kInfinity},
              {-0.5, -0.5});
  expect_loss(KLDivLoss{.log_target = true}, tensor({-0.7, -0.7}, {1, 2}), tensor({-kInfinity, 0}, {1, 2}),
              {0.7}, {0, -1}, {0, 1.7});
  expect_loss(KLDivLoss{.log_target = true}, tensor({-kInfinity, 0}, {1, 2}), tensor({-kInfinity, 0}, {1, 2}),
              {0}, {0, -1}, {0, 1});
}

TEST_P(ZeroWeightLoss, BinaryCrossEntropyOfInfiniteLogits) {
  const Tensor x = tensor({kInfinity, -kInfinity, kInfinity, -kInfinity, 200}, {5});
  const Tensor t = tensor({1, 0, 0, 1, 1}, {5});
  expect_loss(BCEWithLogitsLoss{.reduction = Reduction::kNone}, x, t, {0, 0, kInfinity, kInfinity, 0},
              {0, 0, 1, -1, 0});
  expect_loss(BCEWithLogitsLoss{.pos_weight = 0, .reduction = Reduction::kNone}, tensor({-kInfinity, 1}, {2}),
              tensor({1, 1}, {2}), {0, 0}, {0, 0});
  const Tensor half = tensor({kInfinity, -kInfinity}, {2}, DType::kFloat16);
  expect_loss(BCEWithLogitsLoss{}, half, tensor({1, 0}, {2}, DType::kFloat16), {0}, {0, 0});
}

struct Weights : Module {
  Parameter value = parameter("value", Tensor::zeros({3}));
  Tensor forward(const Tensor& x) const override { return x; }
};

TEST_P(ZeroWeightLoss, AveragesThatKeepNothingOrAll) {
  Weights model;
  model.to(device());
  const auto set = [&](const Doubles& values) { model.value.assign(tensor(values, {3})); };
  Lookahead lookahead(model);
  set({kInfinity, kNan, 5});
  lookahead.update(1.0);
  expect_near(model.value.tensor(), {0, 0, 0});
  set({1e8, 1, 5});
  lookahead.update(0.0);
  set({kNan, 1, 5});
  lookahead.update(1.0);
  expect_near(model.value.tensor(), {1e8, 1, 5});
  EMA ema(model, {.decay = 0.0});
  set({kInfinity, 2, 3});
  ema.update();
  set({1, 2, 3});
  ema.update();
  expect_near(ema.averaged_state().at("value"), {1, 2, 3});
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ZeroWeightLoss, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

}  // namespace
}  // namespace sinter::nn
