// EMA, Lookahead, RMSprop, restarted optimisers, and the options of SGD and Adam that came with them, against
// loops in double precision.
#include <functional>

#include <sinter/nn/nn.h>
#include <sinter/ops/cast/cast.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;
using Doubles = std::vector<double>;

struct Six : Module {
  Parameter value =
      parameter("value", Tensor::from_values<double>({-0.625, -0.375, -0.125, 0.125, 0.375, 0.625}, {6}));
  Tensor forward(const Tensor& x) const override { return x; }
};

Doubles gradient_at(int64_t step) {
  Doubles values;
  for (int64_t i = 0; i < 6; ++i) values.push_back(static_cast<double>((7 * i + 3 * step) % 11 - 5) / 8);
  return values;
}

/// Seven steps of an optimiser, and of `by_hand`, which changes a parameter given its gradient and the number
/// of the step from 1.
void expect_steps(
    Optimizer& optimizer, const Six& module,
    const std::function<double(size_t i, double parameter, double gradient, int step)>& by_hand) {
  Doubles expected = module.value.tensor().to_vector<double>();
  for (int step = 1; step <= 7; ++step) {
    const Doubles gradient = gradient_at(step);
    module.value.tensor().set_grad(Tensor::from_values(gradient, {6}));
    optimizer.step(0.1);
    for (size_t i = 0; i < 6; ++i) expected[i] = by_hand(i, expected[i], gradient[i], step);
  }
  expect_near(module.value, expected, 1e-13);
}

TEST(RmsPropTest, FollowsItsFormulas) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool maximize : {false, true}) {
        const Six module;
        RMSprop optimizer(module.parameters(), {.alpha = 0.8,
                                                .epsilon = 1e-3,
                                                .momentum = momentum,
                                                .weight_decay = 0.05,
                                                .centered = centered,
                                                .maximize = maximize});
        Doubles square(6), mean(6), buffer(6);
        expect_steps(optimizer, module, [&](size_t i, double p, double gradient, int) {
          const double g = (maximize ? -gradient : gradient) + 0.05 * p;
          square[i] = 0.8 * square[i] + 0.2 * g * g;
          mean[i] = 0.8 * mean[i] + 0.2 * g;
          const double variance = centered ? square[i] - mean[i] * mean[i] : square[i];
          buffer[i] = momentum * buffer[i] + g / (std::sqrt(variance) + 1e-3);
          return p - 0.1 * buffer[i];
        });
      }
    }
  }
  EXPECT_EQ(message_of([] { RMSprop(Six().parameters(), {.alpha = 1.0}); }),
            "[rmsprop] expected alpha in [0, 1) but got 1");
}

TEST(RmsPropTest, ItsStateResumes) {
  const RMSpropOptions options{.momentum = 0.9, .centered = true};
  const Six whole, parted;
  RMSprop a(whole.parameters(), options), b(parted.parameters(), options);
  const auto step = [](Optimizer& optimizer, const Six& module, int64_t i) {
    module.value.tensor().set_grad(Tensor::from_values(gradient_at(i), {6}));
    optimizer.step(0.1);
  };
  for (int64_t i = 0; i < 3; ++i) {
    step(a, whole, i);
    step(b, parted, i);
  }
  EXPECT_EQ(b.state().size(), 4u) << "step, square_avg, grad_avg and momentum";
  RMSprop resumed(parted.parameters(), options);
  resumed.load_state(b.state());
  for (int64_t i = 3; i < 6; ++i) {
    step(a, whole, i);
    step(resumed, parted, i);
  }
  EXPECT_EQ(parted.value.tensor().to_vector<double>(), whole.value.tensor().to_vector<double>());
}

TEST(AdamTest, AmsgradDividesByTheLargestSquare) {
  for (const bool maximize : {false, true}) {
    const Six module;
    Adam optimizer(module.parameters(), {.beta1 = 0.8, .beta2 = 0.5, .amsgrad = true, .maximize = maximize});
    Doubles mean(6), square(6), largest(6);
    bool fell = false;
    expect_steps(optimizer, module, [&](size_t i, double p, double gradient, int step) {
      const double g = maximize ? -gradient : gradient;
      mean[i] = 0.8 * mean[i] + 0.2 * g;
      square[i] = 0.5 * square[i] + 0.5 * g * g;
      fell = fell || square[i] < largest[i];
      largest[i] = std::max(largest[i], square[i]);
      const double step_size = 0.1 / (1 - std::pow(0.8, step));
      return p - step_size * mean[i] / (std::sqrt(largest[i]) / std::sqrt(1 - std::pow(0.5, step)) + 1e-8);
    });
    EXPECT_TRUE(fell) << "otherwise this would be plain Adam";
    EXPECT_TRUE(optimizer.state().contains("max_exp_avg_sq.value"));
  }
  const Six module;
  AdamW decoupled(module.parameters(), {.weight_decay = 0.1, .amsgrad = true});
  module.value.tensor().set_grad(Tensor::from_values(gradient_at(0), {6}));
  EXPECT_NO_THROW(decoupled.step(0.1));
}

TEST(SgdTest, MaximizeClimbsAgainstTheDecay) {
  const Six module;
  SGD optimizer(module.parameters(), {.momentum = 0.9, .weight_decay = 0.05, .maximize = true});
  Doubles buffer(6);
  expect_steps(optimizer, module, [&](size_t i, double p, double gradient, int step) {
    const double g = -gradient + 0.05 * p;
    buffer[i] = step == 1 ? g : 0.9 * buffer[i] + g;
    return p - 0.1 * buffer[i];
  });
}

TEST(SgdTest, TheMomentumMayFollowASchedule) {
  const Six module;
  SGD optimizer(module.parameters(), {.momentum = 0.9});
  Doubles buffer(6);
  expect_steps(optimizer, module, [&, next = 2](size_t i, double p, double gradient, int step) mutable {
    const double momentum = step < 2 ? 0.9 : 0.5;
    buffer[i] = step == 1 ? gradient : momentum * buffer[i] + gradient;
    if (i == 5 && step + 1 == next) {
      optimizer.set_momentum(0.5);
      ++next;
    }
    return p - 0.1 * buffer[i];
  });
  EXPECT_EQ(message_of([&] { optimizer.set_momentum(1.0); }),
            "[sgd] expected a momentum in (0, 1) in place of one but got 1 in place of 0.5");
  SGD plain(module.parameters());
  EXPECT_EQ(message_of([&] { plain.set_momentum(0.5); }),
            "[sgd] expected a momentum in (0, 1) in place of one but got 0.5 in place of 0");
}

TEST(AdamTest, Beta1MayFollowASchedule) {
  const Six module;
  Adam optimizer(module.parameters(), {.beta1 = 0.9});
  const auto beta1 = [](int step) { return step < 3 ? 0.9 : 1.0 - 0.1 * step; };
  Doubles mean(6), square(6);
  expect_steps(optimizer, module, [&](size_t i, double p, double gradient, int step) {
    const double beta = beta1(step);
    mean[i] = beta * mean[i] + (1 - beta) * gradient;
    square[i] = 0.999 * square[i] + 0.001 * gradient * gradient;
    if (i == 5) optimizer.set_beta1(beta1(step + 1));
    const double root = std::sqrt(square[i] / (1 - std::pow(0.999, step)));
    return p - 0.1 * mean[i] / (1 - std::pow(beta, step)) / (root + 1e-8);
  });
}

// ---- EMA

TEST(EmaTest, AveragesParameters) {
  const Six module;
  EMA ema(module, {.decay = 0.75});
  Doubles average = module.value.tensor().to_vector<double>();
  for (int step = 0; step < 5; ++step) {
    const Doubles next = gradient_at(step);
    module.value.assign(Tensor::from_values(next, {6}));
    ema.update();
    for (size_t i = 0; i < 6; ++i) average[i] = 0.75 * average[i] + 0.25 * next[i];
  }
  EXPECT_EQ(ema.updates(), 5);
  expect_near<double>(ema.averaged_state().at("value"), average, 1e-14);
  EXPECT_EQ(module.value.tensor().to_vector<double>(), gradient_at(4)) << "the model itself is left alone";
  const Six copy = clone(module);
  ema.copy_to(copy);
  expect_near<double>(copy.value, average, 1e-14);
}

TEST(EmaTest, WarmsUp) {
  const Six module;
  EMA ema(module, {.decay = 0.3, .warmup = true});
  Doubles average = module.value.tensor().to_vector<double>();
  for (int update = 1; update <= 8; ++update) {
    const Doubles next = gradient_at(update);
    module.value.assign(Tensor::from_values(next, {6}));
    ema.update();
    const double decay = std::min(0.3, (1.0 + update) / (10.0 + update));
    for (size_t i = 0; i < 6; ++i) average[i] = decay * average[i] + (1 - decay) * next[i];
  }
  expect_near<double>(ema.averaged_state().at("value"), average, 1e-14);
}

TEST(EmaTest, KeepsLayoutsBuffersAndNames) {
  const Sequential model(Conv2d(2, 3, 3, {.layout = Layout::kNHWC}),
                         BatchNorm2d(3, {.layout = Layout::kNHWC}));
  EMA ema(model);
  model(floats({2, 5, 5, 2}, 0));
  ema.update();
  const State averaged = ema.averaged_state(), own = model.state();
  ASSERT_EQ(averaged.size(), own.size());
  for (const auto& [name, value] : own) {
    EXPECT_EQ(averaged.at(name).shape(), value.shape()) << name;
  }
  EXPECT_EQ(averaged.at("1.running_mean").to_vector<float>(), own.at("1.running_mean").to_vector<float>())
      << "buffers are those of the model";
  EXPECT_EQ(averaged.at("0.weight").to_vector<float>(), own.at("0.weight").to_vector<float>())
      << "an average of one value is that value";
}

TEST(EmaTest, AveragesSixteenBitParametersInFloat32) {
  const Linear layer(4, 4);
  layer.to(DType::kBFloat16);
  EMA ema(layer, {.decay = 0.999});
  const std::vector<float> start = ema.averaged_state().at("weight").to_vector<float>();
  layer.weight.assign(Tensor::full({4, 4}, 1.0));
  for (int i = 0; i < 10; ++i) ema.update();
  const Tensor weight = ema.averaged_state().at("weight");
  EXPECT_EQ(weight.dtype(), DType::kFloat32);
  // In bfloat16 a thousandth of the way would be lost in rounding.
  std::vector<float> expected;
  const double share = std::pow(0.999, 10.0);
  for (const float value : start) expected.push_back(static_cast<float>(share * value + (1 - share)));
  expect_near<float>(weight, expected, 1e-6);
}

TEST(EmaTest, ItsStateResumes) {
  const Six module;
  EMA whole(module, {.decay = 0.9, .warmup = true}), first(module, {.decay = 0.9, .warmup = true});
  const auto move = [&](int step) { module.value.assign(Tensor::from_values(gradient_at(step), {6})); };
  for (int step = 0; step < 3; ++step) {
    move(step);
    whole.update();
    first.update();
  }
  EMA resumed(module, {.decay = 0.9, .warmup = true});
  resumed.load_state(first.state());
  for (int step = 3; step < 6; ++step) {
    move(step);
    whole.update();
    resumed.update();
  }
  EXPECT_EQ(resumed.averaged_state().at("value").to_vector<double>(),
            whole.averaged_state().at("value").to_vector<double>());
  State wrong = first.state();
  wrong["average.value"] = Tensor::zeros({5}, DType::kFloat64);
  EXPECT_EQ(message_of([&] { resumed.load_state(wrong); }),
            "[ema] expected an average 'value' of float64 (6,) in the state");
  EXPECT_EQ(message_of([&] { EMA(module, {.decay = 1.0}); }), "[ema] expected a decay in [0, 1) but got 1");
  module.to(DType::kFloat32);
  EXPECT_EQ(message_of([&] { resumed.update(); }),
            "[ema] parameter 'value' is float32 (6,) on cpu but its average float64 (6,) on cpu; make the "
            "EMA after "
            "the model has been moved");
}

std::vector<float> to_floats(const Tensor& tensor) {
  return tensor.to_vector<float>();
}

TEST(LookaheadTest, TheModelGoesBackToTheAverage) {
  const Sequential model(Linear(2, 3), BatchNorm1d(3));
  Lookahead lookahead(model);
  std::map<std::string, Doubles> averages;
  const auto doubles = [](const Tensor& tensor) {
    return ops::cast(tensor, DType::kFloat64).to_vector<double>();
  };
  for (const auto& [name, value] : model.state()) averages[name] = doubles(value);
  for (const double decay : {0.25, 0.0, 0.75, 1.0}) {
    State moved = model.state();
    for (auto& [name, value] : moved) {
      if (!is_float(value.dtype())) continue;
      value = value * 1.5 + 0.25;
      const Doubles now = doubles(value);
      for (size_t i = 0; i < now.size(); ++i)
        averages[name][i] = decay * averages[name][i] + (1 - decay) * now[i];
    }
    model.load_state(moved);
    lookahead.update(decay);
    for (const auto& [name, value] : model.state())
      expect_near(ops::cast(value, DType::kFloat64), averages[name], 1e-6);
  }
  EXPECT_EQ(model.state().at("1.num_batches_tracked").item(), 0.0) << "counters are no part of it";

  State moved = model.state();
  for (auto& [name, value] : moved) {
    if (is_float(value.dtype())) value = value + 1.0;
  }
  model.load_state(moved);
  lookahead.reset();
  lookahead.update(1.0);
  for (const auto& [name, value] : model.state())
    expect_near(ops::cast(value, DType::kFloat64), doubles(moved.at(name)), 1e-6);
}

TEST(LookaheadTest, GoesOnFromItsState) {
  const Sequential model(Conv2d(2, 3, 3), BatchNorm2d(3));
  Lookahead lookahead(model);
  const auto doubles = [](const Tensor& tensor) {
    return ops::cast(tensor, DType::kFloat64).to_vector<double>();
  };
  const auto move = [](const Sequential& of, double by) {
    State moved = of.state();
    for (auto& [name, value] : moved) {
      if (is_float(value.dtype())) value = value * 1.5 + by;
    }
    of.load_state(moved);
  };
  move(model, 0.25);
  lookahead.update(0.75);
  const Sequential other = clone(model);
  other.to(Layout::kNHWC);
  Lookahead resumed(other);
  move(model, 0.5);
  const State state = lookahead.state();
  move(other, 0.5);
  resumed.load_state(state);
  lookahead.update(0.75);
  resumed.update(0.75);
  for (const auto& [name, value] : model.state())
    EXPECT_EQ(doubles(value), doubles(other.state().at(name))) << name;
  EXPECT_EQ(state.size(), 6U) << "weights, scale and shift, running statistics";

  State wrong = state;
  wrong["average.0.weight"] = Tensor::zeros({3});
  EXPECT_EQ(message_of([&] { resumed.load_state(wrong); }),
            "[lookahead] expected an average '0.weight' of float32 (3, 2, 3, 3) in the state");
  wrong.erase("average.0.weight");
  EXPECT_EQ(message_of([&] { resumed.load_state(wrong); }),
            "[lookahead] expected a state of 6 averages but got 5");
}

TEST(LookaheadTest, WorkingCopiesFollow) {
  const Linear model(3, 2);
  model.to_mixed(DType::kBFloat16);
  Lookahead lookahead(model);
  model.weight.assign(Tensor::full({2, 3}, 1.0));
  lookahead.update(0.5);
  EXPECT_NE(to_floats(model.weight.master()), std::vector<float>(6, 1.0f));
  EXPECT_EQ(to_floats(ops::cast(model.weight.working(), DType::kFloat32)),
            to_floats(ops::cast(ops::cast(model.weight.master(), DType::kBFloat16), DType::kFloat32)));
}

TEST(LookaheadTest, JobsGoOnWithTheirGraph) {
  const Linear model(3, 2);
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, MSELoss{}, sgd);
  Lookahead lookahead(model);
  for (int i = 0; i < 4; ++i) {
    job.step(Tensor::full({4, 3}, 1.0), Tensor::zeros({4, 2}), 0.1);
    lookahead.update(0.5);
  }
  EXPECT_EQ(job.compilations(), 1) << job.report();
}

TEST(LookaheadTest, RefusesWhatItCannotAverage) {
  EXPECT_EQ(message_of([] { Lookahead lookahead{ReLU()}; }), "[lookahead] expected a model with parameters");
  const Linear half(3, 2);
  half.to(DType::kFloat16);
  EXPECT_EQ(message_of([&] { Lookahead lookahead(half); }),
            "[lookahead] expected float32 or float64 but 'weight' is float16; make the model mixed instead");
  const Linear model(3, 2);
  Lookahead lookahead(model);
  EXPECT_EQ(message_of([&] { lookahead.update(1.5); }), "[lookahead] expected a decay in [0, 1] but got 1.5");
  model.to(DType::kFloat64);
  EXPECT_EQ(message_of([&] { lookahead.update(0.5); }),
            "[lookahead] 'weight' is float64 (2, 3) on cpu but its average float32 (2, 3) on cpu; make the "
            "Lookahead after the model has been moved");
}

TEST(OptimizerTest, RestartedItStepsAsAFreshOneAndJobsGoOn) {
  const auto start = [] { return std::pair(Tensor::full({2, 3}, 0.5), Tensor::full({2}, 0.25)); };
  const auto set = [&](const Linear& model) {
    model.weight.assign(start().first);
    model.bias.assign(start().second);
  };
  const Tensor x = Tensor::full({4, 3}, 1.0), y = Tensor::zeros({4, 2});
  const auto train = [&](TrainJob& job) {
    for (int i = 0; i < 3; ++i) job.step(x, y, 0.1);
  };
  const Linear model(3, 2), fresh_model(3, 2);
  AdamW adam(model.parameters()), fresh_adam(fresh_model.parameters());
  TrainJob job(model, MSELoss{}, adam), fresh(fresh_model, MSELoss{}, fresh_adam);
  adam.reset();  // before the first step, nothing
  set(model);
  train(job);
  set(model);
  adam.reset();
  EXPECT_TRUE(adam.state().empty());
  train(job);
  set(fresh_model);
  train(fresh);
  EXPECT_EQ(to_floats(model.weight), to_floats(fresh_model.weight));
  EXPECT_EQ(job.compilations(), 1) << job.report();
}

}  // namespace
}  // namespace sinter::nn
