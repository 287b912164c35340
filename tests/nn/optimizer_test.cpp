// Optimisers against PyTorch's values, from tests/reference/nn_values.py, and their groups and states.
#include <cmath>
#include <functional>
#include <memory>

#include <sinter/nn/nn.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::message_of;

/// A module with one float64 parameter of 6 elements.
struct Six : Module {
  explicit Six(const VariableOptions& options = {}, const Shape& shape = {6})
      : value(parameter("value",
                        Tensor::from_values<double>({-0.625, -0.375, -0.125, 0.125, 0.375, 0.625}, shape),
                        options)) {}
  Tensor forward(const Tensor& x) const override { return x; }
  Parameter value;
};

void set_gradient(const Parameter& parameter, int64_t step) {
  std::vector<double> values;
  for (int64_t i = 0; i < 6; ++i) values.push_back(static_cast<double>((7 * i + 3 * step) % 11 - 5) / 8);
  parameter.tensor().set_grad(Tensor::from_values(values, parameter.shape()));
}

void expect_five_steps(Optimizer& optimizer, const Six& module, double rate,
                       const std::vector<double>& expected) {
  for (int64_t step = 0; step < 5; ++step) {
    set_gradient(module.value, step);
    optimizer.step(rate);
  }
  expect_near(module.value, expected, 1e-14);
}

TEST(SgdTest, FiveStepsAgreeWithPyTorch) {
  const Six plain, momentum, dampening, nesterov;
  SGD a(plain.parameters());
  expect_five_steps(a, plain, 0.1, {-0.5499999999999999, -0.4625, -0.1, 0.125, 0.35, 0.7125});
  SGD b(momentum.parameters(), {.momentum = 0.9, .weight_decay = 0.05});
  expect_five_steps(b, momentum, 0.1,
                    {-0.32733934238085927, -0.5995977051550782, -0.08636525940585935, -0.01501217061757813,
                     0.2640622610691406, 0.7772947068183593});
  SGD c(dampening.parameters(), {.momentum = 0.9, .dampening = 0.3});
  expect_five_steps(c, dampening, 0.1,
                    {-0.36408625000000006, -0.58294625, -0.07231375, -0.04679500000000003,
                     0.29742124999999997, 0.80805375});
  SGD d(nesterov.parameters(), {.momentum = 0.9, .weight_decay = 0.05, .nesterov = true});
  expect_five_steps(d, nesterov, 0.1,
                    {-0.2732834785249047, -0.6508178028246379, -0.06273861926562944, -2.2610585831268833e-05,
                     0.2434693178061458, 0.831548501365154});
}

TEST(AdamTest, FiveStepsAgreeWithPyTorch) {
  const Six adam, adamw;
  Adam a(adam.parameters(), {.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
  expect_five_steps(a, adam, 0.01,
                    {-0.5955987679004786, -0.40073715140902944, -0.11341253122559924, 0.1095282009243567,
                     0.3532147391338679, 0.6424035245904011});
  AdamW b(adamw.parameters(), {.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
  expect_five_steps(b, adamw, 0.01,
                    {-0.5963233736074768, -0.40159952754063416, -0.11427604428385599, 0.1099357810878015,
                     0.35446368132225575, 0.6456941256425399});
}

TEST(OptimizerTest, GroupsHaveTheirOwnRateAndDecay) {
  const Six slow, still;
  SGD sgd({{.parameters = add_prefix("slow.", slow.parameters()), .lr_scale = 0.5, .weight_decay = 0.0},
           {.parameters = add_prefix("still.", still.parameters())}},
          {.weight_decay = 0.1});
  const Tensor zeros = Tensor::zeros({6}, DType::kFloat64);
  slow.value.tensor().set_grad(Tensor::full({6}, 1.0, DType::kFloat64));
  still.value.tensor().set_grad(zeros);
  sgd.step(0.5);
  EXPECT_NEAR(slow.value.tensor().to_vector<double>()[0], -0.625 - 0.5 * 0.5 * 1.0, 1e-15);
  EXPECT_NEAR(still.value.tensor().to_vector<double>()[0], -0.625 * (1 - 0.5 * 0.1), 1e-15);
}

TEST(OptimizerTest, ParametersWithoutGradientAreLeftAlone) {
  const Linear layer(2, 2);
  const std::vector<float> before = layer.bias.tensor().to_vector<float>();
  AdamW adamw(layer.parameters());
  layer.weight.tensor().set_grad(Tensor::full({2, 2}, 1.0));
  adamw.step(0.1);
  EXPECT_EQ(layer.bias.tensor().to_vector<float>(), before);
  const State state = adamw.state();
  EXPECT_EQ(state.size(), 4u);
  EXPECT_EQ(state.at("step.weight").item(), 1);
  EXPECT_EQ(state.at("step.bias").item(), 0);
  // A parameter that joins later starts with its own count, as in PyTorch: the first step of Adam has length
  // lr.
  layer.weight.tensor().set_grad({});
  layer.bias.tensor().set_grad(Tensor::full({2}, 3.0));
  adamw.step(0.1);
  EXPECT_EQ(adamw.state().at("step.bias").item(), 1);
  EXPECT_NEAR(layer.bias.tensor().to_vector<float>()[0], before[0] * (1 - 0.1f * 0.01f) - 0.1f, 1e-6);
}

TEST(OptimizerTest, ZeroGradDropsGradients) {
  const Six module;
  SGD sgd(module.parameters());
  set_gradient(module.value, 0);
  sgd.zero_grad();
  EXPECT_FALSE(module.value.grad().defined());
}

/// Runs five steps in one go, and with a save and a fresh optimiser after three.
void expect_exact_resume(const std::function<std::unique_ptr<Optimizer>(const Module&)>& make) {
  const Six whole, parts;
  const auto run = [](Optimizer& optimizer, const Six& module, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      set_gradient(module.value, step);
      optimizer.step(0.1);
    }
  };
  const auto uninterrupted = make(whole);
  run(*uninterrupted, whole, 0, 5);
  const auto first = make(parts);
  run(*first, parts, 0, 3);
  const State state = first->state();
  run(*first, parts, 3, 4);  // must not reach the saved state
  parts.value.assign(Tensor::from_values(
      [&] {
        const Six again;
        const auto replay = make(again);
        run(*replay, again, 0, 3);
        return again.value.tensor().to_vector<double>();
      }(),
      {6}));
  const auto second = make(parts);
  second->load_state(state);
  run(*second, parts, 3, 5);
  EXPECT_EQ(parts.value.tensor().to_vector<double>(), whole.value.tensor().to_vector<double>());
}

TEST(OptimizerTest, StateResumesBitForBit) {
  expect_exact_resume([](const Module& module) { return std::make_unique<SGD>(module.parameters()); });
  expect_exact_resume([](const Module& module) {
    return std::make_unique<SGD>(module.parameters(), SGDOptions{.momentum = 0.9, .dampening = 0.5});
  });
  expect_exact_resume([](const Module& module) { return std::make_unique<AdamW>(module.parameters()); });
}

TEST(OptimizerTest, StateIsCanonicalWhateverTheLayout) {
  const Six first({}, {1, 3, 1, 2}), last({.layout = Layout::kNHWC}, {1, 3, 1, 2});
  ASSERT_EQ(last.value.shape(), (Shape{1, 1, 2, 3}));
  SGD from(first.parameters(), {.momentum = 0.9}), to(last.parameters(), {.momentum = 0.9});
  set_gradient(first.value, 0);
  from.step(0.1);
  to.load_state(from.state());
  EXPECT_EQ(to.state().at("momentum.value").to_vector<double>(),
            from.state().at("momentum.value").to_vector<double>());
  // Another step with the same gradient, given in each layout, ends at the same parameters.
  last.load_state(first.state());
  last.value.tensor().set_grad(last.value.from_canonical(first.value.grad()));
  from.step(0.1);
  to.step(0.1);
  EXPECT_EQ(last.state().at("value").to_vector<double>(), first.state().at("value").to_vector<double>());
}

TEST(OptimizerTest, LoadStateReportsEverythingThatDoesNotFit) {
  const Six module;
  AdamW adamw(module.parameters());
  const State state{{"step.value", Tensor::scalar(int64_t{3})},
                    {"exp_avg.value", Tensor::zeros({5}, DType::kFloat64)},
                    {"momentum.value", Tensor::zeros({6}, DType::kFloat64)}};
  EXPECT_EQ(message_of([&] { adamw.load_state(state); }),
            "[adamw] the state does not fit the optimiser: 1 missing: exp_avg_sq.value; 1 unexpected: "
            "momentum.value; "
            "1 mismatched: exp_avg.value (expected float64 (6,) but got float64 (5,))");
  EXPECT_TRUE(adamw.state().empty()) << "a failed load changes nothing";
  const State negative{{"step.value", Tensor::scalar(int64_t{-1})},
                       {"exp_avg.value", Tensor::zeros({6}, DType::kFloat64)},
                       {"exp_avg_sq.value", Tensor::zeros({6}, DType::kFloat64)}};
  EXPECT_EQ(message_of([&] { adamw.load_state(negative); }),
            "[adamw] the state does not fit the optimiser: 1 mismatched: step.value (expected a count >= 0 "
            "but got -1)");
}

TEST(OptimizerTest, StateOfAnotherModelIsRefused) {
  const auto trained = [](const ResNet& model) {
    SGD sgd(model.parameters(), {.momentum = 0.9});
    for (const Parameter& parameter : model.parameters())
      parameter.tensor().set_grad(Tensor::zeros(parameter.shape()));
    sgd.step(0.1);
    return sgd.state();
  };
  const ResNet small = resnet20({.classes = 10}), large = resnet32({.classes = 10});
  SGD sgd(large.parameters(), {.momentum = 0.9});
  const std::string message = message_of([&] { sgd.load_state(trained(small)); });
  EXPECT_TRUE(message.starts_with("[sgd] the state does not fit the optimiser: 36 missing: step.layer1.3."))
      << message;
  EXPECT_TRUE(message.ends_with(" and 16 more")) << message;
  EXPECT_TRUE(sgd.state().empty()) << "a failed load changes nothing";
  sgd.load_state(trained(small), {.strict = false});
  EXPECT_EQ(sgd.state().at("step.layer1.0.conv1.weight").item(), 1);
  EXPECT_EQ(sgd.state().at("step.layer1.3.conv1.weight").item(), 0);

  // The other way round, the larger model's state mentions too much.
  SGD other(small.parameters(), {.momentum = 0.9});
  EXPECT_TRUE(message_of([&] { other.load_state(trained(large)); }).find("72 unexpected: ") !=
              std::string::npos);
  other.load_state(trained(large), {.strict = false});
  EXPECT_EQ(other.state().size(), trained(small).size());
}

TEST(OptimizerTest, StateMentionsParametersThatWereNeverUpdated) {
  const Linear layer(2, 2);
  SGD sgd(layer.parameters(), {.momentum = 0.9});
  EXPECT_TRUE(sgd.state().empty());
  layer.weight.tensor().set_grad(Tensor::full({2, 2}, 1.0));
  sgd.step(0.1);
  const State state = sgd.state();
  EXPECT_EQ(state.at("step.weight").item(), 1);
  EXPECT_EQ(state.at("step.bias").item(), 0);
  EXPECT_FALSE(state.contains("momentum.bias"));
  SGD again(layer.parameters(), {.momentum = 0.9});
  again.load_state(state);
  again.load_state({});  // an optimiser that has not stepped yet
  EXPECT_TRUE(again.state().empty());
  again.load_state(state);
  layer.bias.tensor().set_grad(Tensor::full({2}, 1.0));
  again.step(0.1);
  EXPECT_EQ(again.state().at("step.weight").item(), 2);
  EXPECT_EQ(again.state().at("step.bias").item(), 1);
}

TEST(OptimizerTest, MistakesAreNamed) {
  const Six module;
  const std::vector<Parameter> parameters = module.parameters();
  EXPECT_EQ(
      message_of([] { SGD(std::vector<Parameter>{}); }),
      "[sgd] expected at least one parameter but got none; the modules that are members of a module belong "
      "to it, with their parameters, when child(\"name\", ...) has registered them");
  EXPECT_EQ(message_of([] { SGD(std::vector<Parameter>{Parameter()}); }), "[sgd] a parameter is undefined");
  EXPECT_EQ(message_of([&] {
              SGD(std::vector<Parameter>{parameters[0], parameters[0]});
            }),
            "[sgd] parameter 'value' is listed twice");
  EXPECT_EQ(message_of([&] {
              SGD(std::vector<Parameter>{parameters[0], Six().parameters()[0]});
            }),
            "[sgd] two parameters are named 'value'; tell them apart with nn::add_prefix");
  EXPECT_EQ(
      message_of([&] { SGD(parameters, {.nesterov = true}); }),
      "[sgd] Nesterov momentum needs a momentum > 0 and no dampening but got momentum 0 and dampening 0");
  const double nan = std::nan(""), infinity = HUGE_VAL;
  for (const double momentum : {-0.1, 1.0, 2.0, nan, infinity}) {
    EXPECT_EQ(message_of([&] { SGD(parameters, {.momentum = momentum}); }),
              fmt::format("[sgd] expected a momentum in [0, 1) but got {}", momentum));
  }
  for (const double bad : {nan, infinity}) {
    EXPECT_EQ(message_of([&] { SGD(parameters, {.weight_decay = bad}); }),
              fmt::format("[sgd] expected a weight decay >= 0 but got {}", bad));
    EXPECT_EQ(message_of([&] { AdamW(parameters, {.epsilon = bad}); }),
              fmt::format("[adamw] expected an epsilon >= 0 but got {}", bad));
    EXPECT_EQ(message_of([&] { SGD({{.parameters = parameters, .lr_scale = bad}}); }),
              fmt::format("[sgd] expected a learning rate scale >= 0 but got {}", bad));
  }
  EXPECT_EQ(message_of([&] { AdamW(parameters, {.beta1 = 1.0}); }),
            "[adamw] expected betas in [0, 1) but got 1 and 0.999");
  EXPECT_EQ(message_of([&] { AdamW(parameters, {.weight_decay = -1}); }),
            "[adamw] expected a weight decay >= 0 but got -1");
  SGD sgd(parameters, {.momentum = 0.9});
  EXPECT_EQ(message_of([&] { sgd.step(-0.5); }), "[sgd] expected a finite learning rate >= 0 but got -0.5");
  set_gradient(parameters[0], 0);
  sgd.step(0.1);
  module.to(DType::kFloat32);
  EXPECT_EQ(message_of([&] { sgd.step(0.1); }),
            "[sgd] parameter 'value' is float32 (6,) on cpu but was float64 (6,) on cpu in an earlier step; "
            "move the model "
            "before the first step");
}

TEST(ClipGradNormTest, ScalesTheStepToTheNorm) {
  const Linear layer(2, 2);
  layer.weight.assign(Tensor::zeros({2, 2}));
  layer.bias.assign(Tensor::zeros({2}));
  layer.weight.tensor().set_grad(Tensor::from_values<float>({1, 2, 2, 0}, {2, 2}));
  layer.bias.tensor().set_grad(Tensor::from_values<float>({4, 0}, {2}));
  SGD sgd(layer.parameters());
  const ClippedGradients loose = clip_grad_norm(layer.parameters(), 10.0);
  EXPECT_DOUBLE_EQ(loose.norm.item(), 5.0);
  EXPECT_EQ(loose.factor.item(), 1.0);
  const ClippedGradients tight = clip_grad_norm(layer.parameters(), 2.5);
  EXPECT_DOUBLE_EQ(tight.norm.item(), 5.0);
  EXPECT_FLOAT_EQ(static_cast<float>(tight.factor.item()), static_cast<float>(2.5 / (5.0 + 1e-6)));
  sgd.step(1.0, tight.factor);
  expect_near<float>(layer.weight, {-0.5, -1, -1, 0}, 1e-6);
  expect_near<float>(layer.bias, {-2, 0}, 1e-6);
  expect_near<float>(layer.bias.grad(), {4, 0}, 0.0);
  EXPECT_EQ(message_of([&] { (void)clip_grad_norm(layer.parameters(), 0.0); }),
            "[clip_grad_norm] expected a norm > 0 but got 0");
  sgd.zero_grad();
  EXPECT_EQ(message_of([&] { (void)clip_grad_norm(layer.parameters(), 1.0); }),
            "[grad_norm] none of the 2 parameters has a gradient");
}

TEST(ClipGradNormTest, NothingFiniteOverflowsAndInfinityChangesNothing) {
  const Linear layer(2, 2);
  layer.weight.tensor().set_grad(Tensor::full({2, 2}, 3e38));
  EXPECT_NEAR(clip_grad_norm(layer.parameters(), 1e9).norm.item(), 6e38, 1e32);
  layer.to(DType::kFloat16);
  layer.weight.tensor().set_grad(Tensor::full({2, 2}, 20'000.0, DType::kFloat16));
  EXPECT_NEAR(clip_grad_norm(layer.parameters(), 1e9).norm.item(), 40'000.0, 20.0);
  layer.bias.tensor().set_grad(Tensor::full({2}, INFINITY, DType::kFloat16));
  const ClippedGradients clipped = clip_grad_norm(layer.parameters(), 1.0);
  EXPECT_FALSE(std::isfinite(clipped.norm.item()));
  const std::vector<float16> before = layer.weight.tensor().to_vector<float16>();
  SGD sgd(layer.parameters());
  sgd.step(0.1, clipped.factor);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(layer.weight.tensor().to_vector<float16>()[i].bits, before[i].bits);
  }
  EXPECT_TRUE(sgd.state().empty());
}

}  // namespace
}  // namespace sinter::nn
