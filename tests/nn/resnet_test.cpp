// Residual networks: names, counts, shapes, layouts, and logits and gradients against torchvision's.
#include <algorithm>
#include <map>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/pool/pool.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;
using testing::pattern;
using testing::pattern_values;

TEST(ResNetTest, HasTorchvisionsNames) {
  const State state = resnet18().state();
  EXPECT_EQ(state.size(), 122u);
  for (const char* name :
       {"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
        "bn1.num_batches_tracked", "layer1.0.conv1.weight", "layer1.1.bn2.bias",
        "layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var",
        "layer2.0.downsample.1.num_batches_tracked", "layer4.1.conv2.weight", "fc.weight", "fc.bias"}) {
    EXPECT_TRUE(state.contains(name)) << name;
  }
  EXPECT_FALSE(state.contains("layer1.0.downsample.0.weight"));
  EXPECT_EQ(state.at("conv1.weight").shape(), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(state.at("layer4.0.downsample.0.weight").shape(), (Shape{512, 256, 1, 1}));
}

TEST(ResNetTest, BottlenecksAreVersion15) {
  const ResNet model = resnet50();
  const State state = model.state();
  EXPECT_EQ(state.size(), 320u);
  EXPECT_EQ(state.at("layer1.0.downsample.0.weight").shape(), (Shape{256, 64, 1, 1}));
  EXPECT_EQ(state.at("layer4.2.conv3.weight").shape(), (Shape{2048, 512, 1, 1}));
  EXPECT_EQ(state.at("layer3.5.bn3.num_batches_tracked").dtype(), DType::kInt64);
  EXPECT_EQ(state.at("fc.weight").shape(), (Shape{1000, 2048}));
}

TEST(ResNetTest, HasTheKnownCountsOfParameters) {
  EXPECT_EQ(resnet18().parameter_count(), 11'689'512);
  EXPECT_EQ(resnet34().parameter_count(), 21'797'672);
  EXPECT_EQ(resnet50().parameter_count(), 25'557'032);
  EXPECT_EQ(resnet101().parameter_count(), 44'549'160);
  EXPECT_EQ(resnet152().parameter_count(), 60'192'808);
  // Counted by hand: 464 + 32 in the stem, 2 * 9 * w * w + 4 * w per block (less in the first of a stage), 64
  // * 10 + 10.
  EXPECT_EQ(resnet20({.shortcut = Shortcut::kPadding}).parameter_count(), 269'722);
  EXPECT_EQ(resnet56({.shortcut = Shortcut::kPadding}).parameter_count(), 853'018);
  EXPECT_EQ(resnet110({.shortcut = Shortcut::kPadding}).parameter_count(), 1'727'962);
  EXPECT_EQ(resnet20().parameter_count(), 269'722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64);
  EXPECT_EQ(resnet32().parameter_count() - resnet20().parameter_count(),
            resnet44().parameter_count() - resnet32().parameter_count());
}

TEST(ResNetTest, OutputShapesFollowTheOptions) {
  const NoGrad no_grad;
  EXPECT_EQ(resnet18({.classes = 7})(floats({2, 3, 64, 64}, 0)).shape(), (Shape{2, 7}));
  EXPECT_EQ(
      resnet18({.classes = 7, .in_channels = 1, .width = 8, .small_stem = true})(floats({2, 1, 16, 16}, 0))
          .shape(),
      (Shape{2, 7}));
  const ResNet model = resnet20({.layout = Layout::kNHWC});
  EXPECT_EQ(model(floats({2, 32, 32, 3}, 0)).shape(), (Shape{2, 10}));
  EXPECT_EQ(model.features(floats({2, 32, 32, 3}, 0)).shape(), (Shape{2, 64}));
  EXPECT_EQ(message_of([&] {
              model(floats({2, 3, 32, 32}, 0));
            }),
            "[resnet] expected images of 3 channels in layout NHWC but got shape (2, 3, 32, 32)");
  EXPECT_EQ(message_of([] {
              ResNet({.blocks = {2, 0}}, {});
            }),
            "[resnet] expected at least one stage, and at least one block in each");
  EXPECT_EQ(message_of([] { resnet18({.classes = 0}); }),
            "[resnet] expected positive numbers but got 0 classes, 3 input channels, width 64");
}

TEST(ResNetTest, FeatureMapsAreThoseBehindEachStage) {
  const NoGrad no_grad;
  const Tensor x = floats({2, 3, 64, 32}, 0);
  const ResNet model = resnet18({.width = 8});
  model.eval();
  const std::vector<Tensor> maps = model.feature_maps(x);
  ASSERT_EQ(maps.size(), 4u);
  EXPECT_EQ(maps[0].shape(), (Shape{2, 8, 16, 8}));
  EXPECT_EQ(maps[1].shape(), (Shape{2, 16, 8, 4}));
  EXPECT_EQ(maps[3].shape(), (Shape{2, 64, 2, 1}));
  EXPECT_EQ(ops::global_avg_pool2d(maps[3]).to_vector<float>(), model.features(x).to_vector<float>());
  EXPECT_EQ(model.stages[1](maps[0]).to_vector<float>(), maps[1].to_vector<float>());
  EXPECT_EQ(resnet20({.layout = Layout::kNHWC}).feature_maps(floats({1, 16, 16, 3}, 0))[2].shape(),
            (Shape{1, 4, 4, 64}));
}

TEST(ResNetTest, ConvolutionsStartFromKaimingOverFanOut) {
  manual_seed(1);
  const std::vector<float> values = resnet18().state().at("layer4.1.conv2.weight").to_vector<float>();
  double square = 0.0;
  for (const float value : values) square += static_cast<double>(value) * static_cast<double>(value);
  const double deviation = std::sqrt(square / static_cast<double>(values.size()));
  EXPECT_NEAR(deviation, std::sqrt(2.0 / (512 * 9)), 0.005 * deviation);
}

TEST(ResNetTest, ZeroInitResidualStartsBlocksAsIdentities) {
  for (const State& state : {resnet20({.zero_init_residual = true}).state(),
                             ResNet({true, {1, 1}}, {.width = 8, .zero_init_residual = true}).state()}) {
    const std::string last =
        state.contains("layer1.0.bn3.weight") ? "layer1.0.bn3.weight" : "layer1.0.bn2.weight";
    EXPECT_EQ(std::ranges::count(state.at(last).to_vector<float>(), 0.0f), state.at(last).numel());
    EXPECT_EQ(state.at("layer1.0.bn1.weight").to_vector<float>()[0], 1.0f);
  }
}

/// The logits of a model in the other layout, with the same weights and images.
void expect_same_logits(const Module& first, const Module& last) {
  last.load_state(first.state());
  const std::vector<float> image = floats({2, 3, 32, 32}, 0).to_vector<float>();
  std::vector<float> turned(image.size());
  for (size_t n = 0; n < 2; ++n) {
    for (size_t c = 0; c < 3; ++c) {
      for (size_t p = 0; p < 1024; ++p) turned[(n * 1024 + p) * 3 + c] = image[(n * 3 + c) * 1024 + p];
    }
  }
  const NoGrad no_grad;
  for (const bool training : {true, false}) {
    first.train(training);
    last.train(training);
    const Tensor expected = first(Tensor::from_values(image, {2, 3, 32, 32}));
    expect_near(last(Tensor::from_values(turned, {2, 32, 32, 3})), expected.to_vector<float>(), 2e-5);
  }
  const State a = first.state(), b = last.state();
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_EQ(value.spec(), b.at(name).spec()) << name;
}

TEST(ResNetTest, BothLayoutsGiveTheSameLogitsFromOneState) {
  manual_seed(2);
  expect_same_logits(resnet20(), resnet20({.layout = Layout::kNHWC}));
  const Shortcut padding = Shortcut::kPadding;
  expect_same_logits(resnet20({.shortcut = padding}),
                     resnet20({.layout = Layout::kNHWC, .shortcut = padding}));
  const ResNetArchitecture bottlenecks{.bottleneck = true, .blocks = {1, 2}};
  expect_same_logits(ResNet(bottlenecks, {.classes = 5, .width = 8}),
                     ResNet(bottlenecks, {.classes = 5, .width = 8, .layout = Layout::kNHWC}));
}

TEST(ResNetTest, PaddingShortcutTakesEveryOtherPixelBetweenZeros) {
  // With the block's own branch silenced, relu(shortcut(x)) is all that is left of the second stage.
  const ResNet model({false, {1, 1}}, {.width = 2, .small_stem = true, .shortcut = Shortcut::kPadding});
  const State state = model.state();
  State silent;
  for (const auto& [name, value] : state) {
    silent[name] = name.starts_with("layer2.0.bn2.weight") ? Tensor::zeros(value.shape()) : value;
  }
  model.load_state(silent);
  const NoGrad no_grad;
  const Tensor x = Tensor::from_values<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3, -4, -5, -6, -7, -8, -9},
                                              {1, 2, 3, 3});
  expect_near<float>(model.stages[1](x), {0, 0, 0, 0, 1, 3, 7, 9, 0, 0, 0, 0, 0, 0, 0, 0}, 1e-6);
}

// ---- torchvision's values, from tests/reference/nn_values.py; all in float64

struct Reference {
  std::vector<double> eval_logits, train_logits;
  double loss;
  std::map<std::string, std::pair<double, double>> gradients;  // norm and projection on a pattern
  double running_var_sum;
};

/// The weights of fill_model() in the script.
void fill(const Module& model) {
  State state = model.state();
  int64_t seed = -1;
  for (auto& [name, value] : state) {
    ++seed;
    if (value.dtype() == DType::kInt64) continue;
    std::vector<double> values = pattern_values(value.numel(), seed);
    const bool is_scale = name.ends_with("running_var") || name.ends_with("weight");
    const auto fan_in = static_cast<double>(value.shape().count(1, value.rank()));
    for (double& v : values) v = value.rank() >= 2 ? v * std::sqrt(24 / fan_in) : (is_scale ? 1 + v : v);
    value = Tensor::from_values(values, value.shape());
  }
  model.load_state(state);
}

void expect_as_torchvision(const ResNet& model, const Reference& reference) {
  constexpr double kTolerance = 1e-9;
  model.to(DType::kFloat64);
  fill(model);
  const Tensor images = pattern({2, 3, 64, 64}, 1000);
  model.eval();
  {
    const NoGrad no_grad;
    expect_near(model(images), reference.eval_logits, kTolerance);
  }
  model.train();
  const Tensor logits = model(images);
  expect_near(logits, reference.train_logits, kTolerance);
  const Tensor loss = CrossEntropyLoss{}(logits, Tensor::from_values<int64_t>({1, 3}, {2}));
  EXPECT_NEAR(loss.item(), reference.loss, kTolerance);
  backward(loss);
  for (const Parameter& parameter : model.parameters()) {
    const auto found = reference.gradients.find(parameter.name());
    if (found == reference.gradients.end()) continue;
    const std::vector<double> grad = parameter.grad().to_vector<double>();
    const std::vector<double> weights = pattern_values(parameter.tensor().numel(), 7);
    double square = 0.0, projection = 0.0;
    for (size_t i = 0; i < grad.size(); ++i) {
      square += grad[i] * grad[i];
      projection += grad[i] * weights[i];
    }
    const auto& [expected_norm, expected_projection] = found->second;
    EXPECT_NEAR(std::sqrt(square), expected_norm, kTolerance * expected_norm) << parameter.name();
    EXPECT_NEAR(projection, expected_projection, kTolerance * expected_norm) << parameter.name();
  }
  const State state = model.state();
  double sum = 0.0;
  for (const double value : state.at("layer1.0.bn1.running_var").to_vector<double>()) sum += value;
  EXPECT_NEAR(sum, reference.running_var_sum, kTolerance * sum);
  EXPECT_EQ(state.at("bn1.num_batches_tracked").item(), 1);
}

TEST(ResNetTest, ResNet18AgreesWithTorchvision) {
  expect_as_torchvision(
      resnet18({.classes = 5}),
      {.eval_logits = {-17.532016749105058, -26.11044875655657, -3.1884047661802573, -14.793079231239497,
                       31.48245544666724, -14.339064891315331, -21.659945039527273, -3.9526202432862743,
                       -18.643943292196614, 33.533605151627214},
       .train_logits = {0.036716041476895, -1.941285391691523, -1.381342618782372, -1.386676630971195,
                        2.9447123979056204, -0.3970056392848753, -0.6008966487864162, -1.4234815833863441,
                        -0.9854756770013595, 2.7255910275687203},
       .loss = 4.397685171792203,
       .gradients = {{"conv1.weight", {36.3617396672249, 9.027025859514715}},
                     {"bn1.bias", {1.1198556908349564, 0.5233663156301047}},
                     {"layer2.0.downsample.0.weight", {7.52573799921231, -2.071396640271317}},
                     {"layer3.0.conv2.weight", {28.50122176147113, 2.548763061538297}},
                     {"fc.weight", {24.374297608715594, 16.112241789322916}}},
       .running_var_sum = 62.280742193884905});
}

TEST(ResNetTest, ResNet50AgreesWithTorchvision) {
  expect_as_torchvision(
      resnet50({.classes = 5}),
      {.eval_logits = {-3401.3482607602327, 2763.43870134591, 1138.5032288550092, -4574.439486258556,
                       3176.97692194518, -3562.4956407523664, 2898.2445106967043, 1114.055774074199,
                       -4520.347523004517, 3175.4304159514622},
       .train_logits = {-1.9628810063807922, 0.37638055840972906, 2.658478837576136, -1.8946342229851236,
                        3.2688014660673153, -1.7517851955977137, 1.3320534591205229, 3.010101431997205,
                        -2.2675802088762205, 1.4524803137448732},
       .loss = 4.4952296082025205,
       .gradients = {{"conv1.weight", {1078.639557009707, 163.4489246003103}},
                     {"bn1.bias", {9.664183747950785, 4.734224727613766}},
                     {"layer2.0.downsample.0.weight", {202.48737194938187, -37.483054208795906}},
                     {"layer3.0.conv2.weight", {225.00671005809403, 69.13862601118248}},
                     {"fc.weight", {50.95397842937163, 32.25541491258507}}},
       .running_var_sum = 60.45129642687614});
}

}  // namespace
}  // namespace sinter::nn
