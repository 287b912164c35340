// LARS and LAMB against loops in double precision written from their formulas.
#include <cmath>
#include <functional>

#include <sinter/nn/nn.h>
#include <sinter/ops/cast/cast.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::message_of;
using Doubles = std::vector<double>;

/// A matrix, whose step has a trust ratio, and a bias, whose step has none.
struct Layer : Module {
  Parameter weight =
      parameter("weight", Tensor::from_values<double>({-0.625, -0.375, -0.125, 0.125, 0.375, 0.625}, {2, 3}));
  Parameter bias = parameter("bias", Tensor::from_values<double>({0.5, -0.25, 1.0}, {3}));
  Tensor forward(const Tensor& x) const override { return x; }
};

Doubles gradient_at(size_t count, int step) {
  Doubles values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((7 * static_cast<int>(i) + 3 * step) % 11 - 5) / 8);
  return values;
}

void take_step(Optimizer& optimizer, const Layer& layer, int step, double rate = 0.1) {
  for (const Parameter& p : layer.parameters()) {
    const auto gradient = gradient_at(static_cast<size_t>(p.tensor().numel()), step);
    p.tensor().set_grad(ops::cast(Tensor::from_values(gradient, p.shape()), p.tensor().dtype()));
  }
  optimizer.step(rate);
}

/// What a parameter becomes by one step, given its gradient, the number of the step from 1, and whether it
/// has a trust ratio.
using ByHand =
    std::function<Doubles(const Doubles& parameter, const Doubles& gradient, int step, bool adapts)>;

void expect_steps(Optimizer& optimizer, const Layer& layer, bool adapt_all,
                  const std::function<ByHand()>& make_by_hand) {
  struct Expected {
    Parameter parameter;
    Doubles values;
    ByHand by_hand;
  };
  std::vector<Expected> all;
  for (const Parameter& p : layer.parameters())
    all.push_back({p, p.tensor().to_vector<double>(), make_by_hand()});
  for (int step = 1; step <= 7; ++step) {
    take_step(optimizer, layer, step);
    for (auto& [parameter, values, by_hand] : all) {
      values =
          by_hand(values, gradient_at(values.size(), step), step, adapt_all || parameter.shape().rank() >= 2);
    }
  }
  for (const auto& [parameter, values, by_hand] : all) expect_near(parameter, values, 1e-12);
}

double norm(const Doubles& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

TEST(LarsTest, FollowsItsFormulas) {
  for (const bool nesterov : {false, true}) {
    for (const bool adapt_all : {false, true}) {
      for (const double momentum : {0.0, 0.9}) {
        const Layer layer;
        LARS optimizer(layer.parameters(), {.momentum = momentum,
                                            .weight_decay = 0.05,
                                            .trust_coefficient = 0.5,
                                            .epsilon = 1e-3,
                                            .nesterov = nesterov,
                                            .adapt_all = adapt_all});
        expect_steps(optimizer, layer, adapt_all, [&]() -> ByHand {
          return [=, buffer = Doubles(6)](Doubles w, const Doubles& g, int, bool adapts) mutable {
            const double ratio = adapts ? 0.5 * norm(w) / (norm(g) + 0.05 * norm(w) + 1e-3) : 1.0;
            for (size_t i = 0; i < w.size(); ++i) {
              const double direction = ratio * (g[i] + 0.05 * w[i]);
              buffer[i] = momentum * buffer[i] + direction;
              w[i] -= 0.1 * (nesterov ? direction + momentum * buffer[i] : buffer[i]);
            }
            return w;
          };
        });
      }
    }
  }
}

TEST(LambTest, FollowsItsFormulas) {
  for (const bool adapt_all : {false, true}) {
    for (const double weight_decay : {0.0, 0.05}) {
      const Layer layer;
      LAMB optimizer(layer.parameters(), {.beta1 = 0.8,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-4,
                                          .weight_decay = weight_decay,
                                          .adapt_all = adapt_all});
      expect_steps(optimizer, layer, adapt_all, [&]() -> ByHand {
        return [=, mean = Doubles(6), square = Doubles(6)](Doubles w, const Doubles& g, int step,
                                                           bool adapts) mutable {
          Doubles direction(w.size());
          for (size_t i = 0; i < w.size(); ++i) {
            mean[i] = 0.8 * mean[i] + 0.2 * g[i];
            square[i] = 0.95 * square[i] + 0.05 * g[i] * g[i];
            const double corrected = square[i] / (1 - std::pow(0.95, step));
            direction[i] =
                mean[i] / (1 - std::pow(0.8, step)) / (std::sqrt(corrected) + 1e-4) + weight_decay * w[i];
          }
          const double ratio = adapts ? norm(w) / norm(direction) : 1.0;
          for (size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * ratio * direction[i];
          return w;
        };
      });
    }
  }
}

/// Where a norm is 0 there is nothing to scale by: the step is that of SGD, or none.
TEST(LarsTest, ANormOfZeroGivesARatioOfOne) {
  const Layer layer;
  layer.weight.assign(Tensor::zeros({2, 3}, DType::kFloat64));
  LARS optimizer(layer.parameters(), {.momentum = 0.0});
  take_step(optimizer, layer, 1);
  Doubles expected = gradient_at(6, 1);
  for (double& value : expected) value *= -0.1;
  expect_near(layer.weight, expected, 1e-15);

  const Layer still;
  const Doubles before = still.weight.tensor().to_vector<double>();
  LARS other(still.parameters(), {});
  for (const Parameter& p : still.parameters())
    p.tensor().set_grad(Tensor::zeros(p.shape(), DType::kFloat64));
  other.step(0.1);
  EXPECT_EQ(still.weight.tensor().to_vector<double>(), before);
}

TEST(LambTest, ANormOfZeroGivesARatioOfOne) {
  const Layer layer;
  layer.weight.assign(Tensor::zeros({2, 3}, DType::kFloat64));
  LAMB optimizer(layer.parameters());
  take_step(optimizer, layer, 1);
  Doubles expected = gradient_at(6, 1);  // the first direction is about the sign of the gradient
  for (double& value : expected) value *= -0.1 / (std::abs(value) + 1e-6);
  expect_near(layer.weight, expected, 1e-12);
}

template <class Optim>
std::unique_ptr<Optimizer> make(const Layer& layer) {
  return std::make_unique<Optim>(parameter_groups(layer, {}, {.decay_vectors = false}));
}

const std::vector<std::function<std::unique_ptr<Optimizer>(const Layer&)>> kBoth = {make<LARS>, make<LAMB>};

TEST(LarsLambTest, TheirStateResumes) {
  for (const auto& make_optimizer : kBoth) {
    const Layer whole, parted;
    const auto a = make_optimizer(whole), b = make_optimizer(parted);
    for (int i = 0; i < 3; ++i) take_step(*a, whole, i), take_step(*b, parted, i);
    const auto resumed = make_optimizer(parted);
    resumed->load_state(b->state());
    for (int i = 3; i < 6; ++i) take_step(*a, whole, i), take_step(*resumed, parted, i);
    EXPECT_EQ(parted.weight.tensor().to_vector<double>(), whole.weight.tensor().to_vector<double>());
    EXPECT_EQ(parted.bias.tensor().to_vector<double>(), whole.bias.tensor().to_vector<double>());
  }
}

/// In mixed precision the float32 masters take the steps of a float32 model with rounded gradients.
TEST(LarsLambTest, MixedParametersFollowTheirMasters) {
  for (const auto& make_optimizer : kBoth) {
    const Layer plain, mixed;
    plain.to(DType::kFloat32);
    mixed.to_mixed(DType::kFloat16);
    const auto a = make_optimizer(plain), b = make_optimizer(mixed);
    for (int i = 0; i < 5; ++i) take_step(*a, plain, i), take_step(*b, mixed, i);
    const auto expected = plain.weight.tensor().to_vector<float>();
    EXPECT_EQ(mixed.weight.master().to_vector<float>(), expected) << "eighths have no rounding in float16";
    EXPECT_EQ(ops::cast(mixed.weight.working(), DType::kFloat64).to_vector<double>(),
              ops::cast(ops::cast(plain.weight.tensor().detach(), DType::kFloat16), DType::kFloat64)
                  .to_vector<double>());
  }
}

TEST(LarsLambTest, AStepThatIsNotFiniteChangesNothing) {
  for (const auto& make_optimizer : kBoth) {
    const Layer layer;
    const auto optimizer = make_optimizer(layer);
    take_step(*optimizer, layer, 1);
    const Doubles before = layer.weight.tensor().to_vector<double>();
    const State state = optimizer->state();
    optimizer->step(0.1, Tensor::scalar(INFINITY));
    EXPECT_EQ(layer.weight.tensor().to_vector<double>(), before);
    for (const auto& [name, value] : state)
      EXPECT_EQ(ops::cast(optimizer->state().at(name), DType::kFloat64).to_vector<double>(),
                ops::cast(value, DType::kFloat64).to_vector<double>())
          << name;
  }
}

TEST(LarsLambTest, MomentaMayFollowASchedule) {
  const Layer layer;
  LARS lars(layer.parameters(), {.momentum = 0.9});
  take_step(lars, layer, 1);
  const Doubles before = layer.bias.tensor().to_vector<double>();
  lars.set_momentum(0.0);
  take_step(lars, layer, 2);
  Doubles expected = gradient_at(3, 2);
  for (size_t i = 0; i < 3; ++i) expected[i] = before[i] - 0.1 * expected[i];
  expect_near(layer.bias, expected, 1e-15);
  LAMB lamb(layer.parameters());
  lamb.set_beta1(0.5);
  EXPECT_NO_THROW(take_step(lamb, layer, 3));
}

TEST(LarsLambTest, OptionsOutOfRangeAreRefused) {
  const Layer layer;
  EXPECT_EQ(message_of([&] { LARS(layer.parameters(), {.momentum = 1.0}); }),
            "[lars] expected a momentum in [0, 1) but got 1");
  EXPECT_EQ(message_of([&] { LARS(layer.parameters(), {.trust_coefficient = 0.0}); }),
            "[lars] expected a trust coefficient > 0 but got 0");
  EXPECT_EQ(message_of([&] { LAMB(layer.parameters(), {.beta2 = 1.0}); }),
            "[lamb] expected betas in [0, 1) but got 0.9 and 1");
  EXPECT_EQ(message_of([&] { LAMB(layer.parameters()).set_beta1(-1.0); }),
            "[lamb] expected beta1 in [0, 1) but got -1");
}

}  // namespace
}  // namespace sinter::nn
