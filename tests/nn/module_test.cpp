// Modules: the tree of names, modes, conversions, and states.
#include <sinter/autograd/backward.h>
#include <sinter/core/base/log.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;

// The network that the docstring of Module shows.
struct Net : Module {
  Linear first = child("first", Linear(2, 4));
  Linear second = child("second", Linear(4, 3));
  Tensor forward(const Tensor& x) const override { return second(ops::relu(first(x))); }
};

struct Scale : Module {
  Parameter scale = parameter("scale", Tensor::full({1}, 1.0));
  Tensor forward(const Tensor& x) const override { return x * scale; }
};

std::vector<std::string> names_of(const std::vector<std::pair<std::string, Tensor>>& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

TEST(ModuleTest, ListsParametersByPathInOrder) {
  const Net net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias"}));
  EXPECT_EQ(net.parameter_count(), 2 * 4 + 4 + 4 * 3 + 3);
  EXPECT_TRUE(net.named_buffers().empty());
  EXPECT_EQ(net(floats({5, 2}, 0)).shape(), (Shape{5, 3}));
}

TEST(ModuleTest, UserDefinedParametersGetGradients) {
  const Scale module;
  backward(ops::sum(module(Tensor::from_values<float>({1, 2, 3}, {3}))));
  expect_near<float>(module.scale.grad(), {6.0f}, 1e-6);
  module.zero_grad();
  EXPECT_FALSE(module.scale.grad().defined());
}

TEST(ModuleTest, CopiesShareEverything) {
  const Net net;
  const Net copy = net;
  copy.first.bias.assign(Tensor::full({4}, 7.0));
  EXPECT_EQ(net.first.bias.tensor().to_vector<float>()[0], 7.0f);
  copy.eval();
  EXPECT_FALSE(net.training());
  EXPECT_FALSE(net.first.training());
  net.train();
  EXPECT_TRUE(copy.second.training());
}

TEST(ModuleTest, SharedParametersAreListedOnceButSavedUnderBothNames) {
  struct Tied : Module {
    Linear a = child("a", Linear(3, 3));
    Linear b = child("b", a);
    Tensor forward(const Tensor& x) const override { return b(a(x)); }
  };
  const Tied tied;
  EXPECT_EQ(names_of(tied.named_parameters()), (std::vector<std::string>{"a.weight", "a.bias"}));
  EXPECT_EQ(tied.state().size(), 4u);
}

TEST(ModuleTest, NamesAreChecked) {
  struct Twice : Scale {
    Twice() { parameter("scale", Tensor::full({1}, 1.0)); }
  };
  struct Dotted : Scale {
    Dotted() { buffer("a.b", Tensor::full({1}, 1.0)); }
  };
  EXPECT_EQ(message_of([] { Twice(); }), "[module] there is already a member named 'scale'");
  EXPECT_EQ(message_of([] { Dotted(); }), "[module] expected a name without dots, not empty, but got 'a.b'");
}

TEST(ModuleTest, StateIsACopyInCanonicalLayout) {
  const Conv2d conv(2, 3, {4, 5}, {.layout = Layout::kNHWC});
  EXPECT_EQ(conv.weight.shape(), (Shape{3, 4, 5, 2}));
  const Tensor value = floats({3, 2, 4, 5}, 1);
  conv.weight.assign(value);
  // Element (o, c, u, v) of the canonical weight is element (o, u, v, c) of the one kept.
  const std::vector<float> canonical = value.to_vector<float>();
  const std::vector<float> kept = conv.weight.tensor().to_vector<float>();
  EXPECT_EQ(kept[((2 * 4 + 3) * 5 + 1) * 2 + 1], canonical[((2 * 2 + 1) * 4 + 3) * 5 + 1]);
  const State state = conv.state();
  EXPECT_EQ(state.at("weight").to_vector<float>(), canonical);
  EXPECT_FALSE(state.at("weight").requires_grad());
  conv.weight.assign(Tensor::zeros({3, 2, 4, 5}));
  EXPECT_EQ(state.at("weight").to_vector<float>(), canonical) << "later changes do not reach a state";
}

TEST(ModuleTest, LoadStateReportsEverythingThatDoesNotFit) {
  const Net net;
  State state = net.state();
  state.erase("first.bias");
  state["third.bias"] = Tensor::zeros({3});
  state["second.weight"] = Tensor::zeros({3, 5});
  state["second.bias"] = Tensor::zeros({3}, DType::kInt64);
  const std::vector<float> before = net.first.weight.tensor().to_vector<float>();
  state["first.weight"] = Tensor::full({4, 2}, 9.0);
  EXPECT_EQ(
      message_of([&] { net.load_state(state); }),
      "[load_state] the state does not fit the module: 1 missing: first.bias; 1 unexpected: third.bias; 2 "
      "mismatched: "
      "second.weight (expected shape (3, 4) but got (3, 5)), second.bias (expected float32 but got int64); "
      "to "
      "keep the module's own second.weight, second.bias, load the state with LoadOptions::skip, which takes "
      "these names or how they begin");
  EXPECT_EQ(message_of([&] { net.load_state(state, {.strict = false}); }),
            "[load_state] the state does not fit the module: 2 mismatched: second.weight (expected shape (3, "
            "4) but got "
            "(3, 5)), second.bias (expected float32 but got int64); to keep the module's own second.weight, "
            "second.bias, load the state with LoadOptions::skip, which takes these names or how they begin");
  EXPECT_EQ(net.first.weight.tensor().to_vector<float>(), before) << "a failed load changes nothing";
}

TEST(ModuleTest, AHeadOfAnotherSizeIsLeftOutAsTheErrorSays) {
  const ResNet pretrained = resnet20({.classes = 10, .width = 2}),
               model = resnet20({.classes = 3, .width = 2});
  const State state = pretrained.state();
  const std::string message = message_of([&] { model.load_state(state); });
  EXPECT_NE(message.find("; to keep the module's own fc.weight, fc.bias, load the state with "
                         "LoadOptions::skip, which takes these names or how they begin"),
            std::string::npos)
      << message;
  const std::vector<float> head = model.fc.weight.tensor().to_vector<float>();
  const LoadReport report = model.load_state(state, {.skip = {"fc."}});
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(model.fc.weight.tensor().to_vector<float>(), head);
  EXPECT_EQ(model.parameters()[0].tensor().to_vector<float>(),
            pretrained.parameters()[0].tensor().to_vector<float>());
}

TEST(ModuleTest, NamesWithAPrefixAreNoticed) {
  const Net net;
  State parallel, part = net.state();
  for (const auto& [name, value] : net.state()) parallel["module." + name] = value;
  const std::string message = message_of([&] { net.load_state(parallel); });
  EXPECT_NE(message.find("4 unexpected: module.first.bias, "), std::string::npos) << message;
  EXPECT_TRUE(
      message.ends_with("; the state's names begin with 'module.', as PyTorch's DataParallel writes "
                        "them: nn::strip_prefix(\"module.\", state) takes it off"))
      << message;
  EXPECT_NO_THROW(net.load_state(strip_prefix("module.", parallel)));

  // A part of a larger model, beside which there is more.
  State larger = {{"model.head.weight", Tensor::zeros({1})}};
  for (const auto& [name, value] : net.state()) larger["model.backbone." + name] = value;
  EXPECT_EQ(message_of([&] { net.load_state(larger); }).find("names begin with"), std::string::npos)
      << "not all of them do";
  larger.erase("model.head.weight");
  EXPECT_NE(message_of([&] {
              net.load_state(larger);
            }).find("names begin with 'model.backbone.': nn::strip_prefix(\"model.backbone.\", state)"),
            std::string::npos);
  EXPECT_EQ(strip_prefix("model.backbone.", larger).size(), 4u);
  part["extra.bias"] = part["first.bias"];
  EXPECT_EQ(message_of([&] { net.load_state(part); }).find("begin with"), std::string::npos)
      << "no name is missing";
}

TEST(ModuleTest, LoadStateWarnsIfItFindsNothing) {
  const Net net;
  State parallel;
  for (const auto& [name, value] : net.state()) parallel["module." + name] = value;
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level level, std::string_view text) {
    if (level == log::Level::kWarning) warnings.emplace_back(text);
  });
  const LoadReport report = net.load_state(parallel, {.strict = false});
  net.load_state({{"first.bias", Tensor::zeros({4})}, {"module.x", Tensor::zeros({1})}}, {.strict = false});
  log::set_sink(nullptr);
  EXPECT_EQ(report.unexpected.size(), 4u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("nothing was loaded: none of the state's 4 names is one of the module's; the "
                             "state's names begin with 'module.'"),
            std::string::npos)
      << warnings[0];
}

TEST(ModuleTest, LoadStateUsesWhatFitsUnlessStrict) {
  const Net net;
  const LoadReport report =
      net.load_state({{"first.bias", Tensor::full({4}, 2.0, DType::kFloat64)}, {"x", Tensor::zeros({1})}},
                     {.strict = false});
  EXPECT_EQ(report.missing, (std::vector<std::string>{"first.weight", "second.weight", "second.bias"}));
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"x"});
  EXPECT_EQ(net.first.bias.tensor().to_vector<float>(), std::vector<float>(4, 2.0f))
      << "dtypes are converted";
}

TEST(ModuleTest, LongListsOfNamesAreCut) {
  Sequential chain;
  for (int i = 0; i < 13; ++i) chain.add(Linear(1, 1));
  const std::string message = message_of([&] { chain.load_state({}); });
  EXPECT_EQ(
      message.find("[load_state] the state does not fit the module: 26 missing: 0.weight, 0.bias, 1.weight"),
      0u);
  EXPECT_NE(message.find("9.bias and 6 more"), std::string::npos);
}

TEST(ModuleTest, HalfPrecisionLeavesNormsInFloat32) {
  const Sequential model(Conv2d(3, 4, 3), BatchNorm2d(4));
  const std::vector<Parameter> parameters = model.parameters();
  model.to(DType::kBFloat16);
  EXPECT_EQ(parameters[0].tensor().dtype(), DType::kBFloat16) << "handles see the converted tensor";
  EXPECT_TRUE(parameters[0].tensor().requires_grad());
  EXPECT_EQ(parameters[2].tensor().dtype(), DType::kFloat32);
  EXPECT_EQ(model.state().at("1.running_var").dtype(), DType::kFloat32);
  model.to(DType::kFloat64);
  for (const Parameter& parameter : model.parameters())
    EXPECT_EQ(parameter.tensor().dtype(), DType::kFloat64);
  EXPECT_EQ(model.state().at("1.running_mean").dtype(), DType::kFloat64);
  EXPECT_EQ(model.state().at("1.num_batches_tracked").dtype(), DType::kInt64);
  EXPECT_EQ(message_of([&] { model.to(DType::kInt32); }),
            "[module] expected a floating-point dtype but got int32");
}

TEST(ModuleTest, ConversionKeepsGradientsAndFrozenParameters) {
  const Linear layer(2, 2);
  layer.weight.tensor().set_grad(Tensor::full({2, 2}, 0.5));
  layer.bias.tensor().set_requires_grad(false);
  layer.to(DType::kFloat64);
  expect_near<double>(layer.weight.grad(), {0.5, 0.5, 0.5, 0.5}, 0.0);
  EXPECT_FALSE(layer.bias.tensor().requires_grad());
}

TEST(ModuleTest, FrozenModulesGetNoGradients) {
  const Net net;
  net.first.set_requires_grad(false);
  backward(ops::sum(net(floats({5, 2}, 0))));
  EXPECT_FALSE(net.first.weight.grad().defined());
  EXPECT_TRUE(net.second.weight.grad().defined());
}

TEST(ModuleTest, AssignChecksShapeAndDtype) {
  const Linear layer(2, 3);
  EXPECT_EQ(message_of([&] {
              layer.weight.assign(Tensor::zeros({2, 3}));
            }),
            "[variable] 'weight' has shape (3, 2) but a value of shape (2, 3) came");
  EXPECT_EQ(message_of([&] {
              layer.weight.assign(Tensor::zeros({3, 2}, DType::kInt64));
            }),
            "[variable] 'weight' is float32 but a value of dtype int64 came");
}

}  // namespace
}  // namespace sinter::nn
