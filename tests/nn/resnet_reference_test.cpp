// ResNeXt, wide ResNets, ResNet-D and SE-ResNet against torchvision's and timm's
// (tests/reference/generate_resnets.py): names, shapes, logits, gradients and statistics; the gradients of
// all options together against finite differences; stochastic depth.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/permute/permute.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_parameter;
using sinter::testing::reference_values;
using testing::bits_of;
using testing::floats;
using testing::message_of;
using testing::pattern;

/// The state of a model by the formula.
State reference_state(const Module& model, const std::string& prefix) {
  State state = model.state();
  for (auto& [name, tensor] : state) {
    if (tensor.rank() > 0) tensor = reference_parameter(prefix + name, tensor.shape());
  }
  return state;
}

/// All values one behind the other, by their names.
Tensor concatenated(const State& state) {
  std::vector<double> all;
  for (const auto& [name, tensor] : state) {
    if (tensor.rank() == 0) continue;
    const std::vector<double> values = tensor.to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return Tensor::from_values(all, {static_cast<int64_t>(all.size())});
}

Tensor channels_last(const Tensor& images) {
  return ops::permute(images, {0, 2, 3, 1});
}

/// Whether to take the deep networks and the large ones too, which is a minute's work.
bool takes_all() {
  return std::getenv("SINTER_TEST_ALL_MODELS") != nullptr;
}

/// The networks of the script, but for those of 101 layers and more unless all are asked for.
std::vector<std::string> reference_names() {
  std::vector<std::string> names;
  for (const std::string& name : resnet_names()) {
    if (is_cifar_resnet(name) || name == "resnet34" || name == "resnet50" || name == "resnet101") continue;
    const bool deep = name.find("101") != std::string::npos || name.find("152") != std::string::npos;
    if (!deep || takes_all()) names.push_back(name);
  }
  return names;
}

TEST(ResNetReference, StepsAgreeWithTorchvisionAndTimm) {
  constexpr double kTolerance = 1e-9;
  const Reference reference("resnets_float64");
  for (const std::string& name : reference_names()) {
    const bool last = name.starts_with("se") || name == "resnext50_32x4d" || name == "resnet50d";
    const ResNet model =
        make_resnet(name, {.classes = 5, .width = 16, .layout = last ? Layout::kNHWC : Layout::kNCHW});
    model.load_state(reference_state(model, name + "."));
    model.to(DType::kFloat64);
    EXPECT_EQ(recognise_resnet(model.state()), name);
    Tensor images =
        ops::cast(reference_values(name + ".images", {3, 3, 41, 50}, {.scale = 2.0}), DType::kFloat64);
    if (last) images = channels_last(images);
    const Tensor logits = model(images);
    reference.expect_near(name + ".logits", logits, kTolerance);
    backward(CrossEntropyLoss{}(logits, Tensor::from_values<int64_t>({1, 4, 0}, {3})));
    State gradients, buffers;
    for (const Parameter& parameter : model.parameters()) {
      const Tensor grad = parameter.grad();
      const bool turned = grad.rank() == 4 && last;
      gradients[parameter.name()] = turned ? ops::permute(grad, {0, 3, 1, 2}) : grad;
    }
    for (const auto& [buffer_name, buffer] : model.named_buffers()) buffers[buffer_name] = buffer;
    reference.expect_digest(name + ".gradients", name + ".gradients", concatenated(gradients), kTolerance);
    reference.expect_digest(name + ".buffers", name + ".buffers", concatenated(buffers), kTolerance);
    model.eval();
    const NoGrad no_grad;
    reference.expect_near(name + ".eval_logits", model(images), kTolerance);
  }
  const size_t names = reference_names().size();
  EXPECT_EQ(reference.used(), 4 * names);
  if (takes_all()) {
    EXPECT_EQ(reference.used() + names, reference.size()) << "the names are compared below";
  }
}

/// The numbers that the script keeps of names and shapes.
std::vector<int64_t> names_and_shapes(const ResNet& model) {
  std::string text;
  const State state = model.state();
  for (const auto& [name, tensor] : state) {
    const Shape shape = tensor.shape();
    text += fmt::format("{} ({})\n", name, fmt::join(std::vector<int64_t>(shape.begin(), shape.end()), ", "));
  }
  return {static_cast<int64_t>(state.size()), model.parameter_count(),
          static_cast<int64_t>(sinter::testing::reference_seed(text))};
}

TEST(ResNetReference, NamesAndShapesAreThoseOfTorchvisionAndTimm) {
  const Reference reference("resnets_float64");
  std::vector<std::string> names = {"resnext50_32x4d", "resnet18d", "seresnet18"};
  if (takes_all()) names = reference_names();
  for (const std::string& name : names) {
    const ResNet model = make_resnet(name);
    EXPECT_EQ(names_and_shapes(model), reference[name + ".names"].to_vector<int64_t>()) << name;
    EXPECT_EQ(recognise_resnet(model.state()), name);
  }
}

TEST(ResNetReference, FunctionsMakeWhatTheirNamesSay) {
  using Make = ResNet (*)(const ResNetOptions&);
  const std::vector<std::pair<const char*, Make>> functions = {{"resnet18", resnet18},
                                                               {"resnet34", resnet34},
                                                               {"resnet50", resnet50},
                                                               {"resnet101", resnet101},
                                                               {"resnet152", resnet152},
                                                               {"resnext50_32x4d", resnext50_32x4d},
                                                               {"resnext101_32x8d", resnext101_32x8d},
                                                               {"resnext101_64x4d", resnext101_64x4d},
                                                               {"wide_resnet50_2", wide_resnet50_2},
                                                               {"wide_resnet101_2", wide_resnet101_2},
                                                               {"resnet18d", resnet18d},
                                                               {"resnet34d", resnet34d},
                                                               {"resnet50d", resnet50d},
                                                               {"resnet101d", resnet101d},
                                                               {"seresnet18", seresnet18},
                                                               {"seresnet34", seresnet34},
                                                               {"seresnet50", seresnet50},
                                                               {"seresnet101", seresnet101}};
  size_t count = 0;
  for (const auto& [name, make] : functions) {
    const bool grouped = std::string(name).starts_with("resnext");
    EXPECT_EQ(recognise_resnet(make({.classes = 3, .width = grouped ? 16 : 4}).state()), name);
    ++count;
  }
  using MakeSmall = ResNet (*)(const CifarResNetOptions&);
  const std::vector<std::pair<const char*, MakeSmall>> small = {{"resnet20", resnet20},
                                                                {"resnet32", resnet32},
                                                                {"resnet44", resnet44},
                                                                {"resnet56", resnet56},
                                                                {"resnet110", resnet110}};
  for (const auto& [name, make] : small) {
    const State state = make({}).state();
    EXPECT_EQ(recognise_resnet(state), name);
    EXPECT_EQ(state.size(), make_resnet(name).state().size());
    ++count;
  }
  EXPECT_EQ(count, resnet_names().size());
  EXPECT_EQ(recognise_resnet(iresnet18({.image_size = 16, .width = 8}).state()), "");
  EXPECT_EQ(
      recognise_resnet(resnet50({.width = 16, .squeeze_excite = true, .stochastic_depth = 0.1}).state()),
      "seresnet50");
  EXPECT_EQ(recognise_resnet(resnet50({.width = 16, .groups = 2}).state()), "");
  EXPECT_EQ(recognise_resnet({}), "");
  EXPECT_EQ(message_of([] { make_resnet("resnet19"); }).substr(0, 61),
            "[resnet] expected one of resnet20, resnet32, resnet44, resnet");
}

TEST(ResNetReference, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(message_of([] { resnet18({.groups = 32}); }),
            "[resnet] expected basic blocks without groups but got 32 groups of 64 channels");
  EXPECT_EQ(message_of([] { resnext50_32x4d({.width = 8}); }),
            "[resnet] expected groups of at least one channel but got 32 groups, 4 channels per group at a "
            "width of 64, width 8");
  EXPECT_EQ(message_of([] { resnet18d({.width = 5}); }),
            "[resnet] expected an even width for a deep stem but got 5");
  EXPECT_EQ(message_of([] { resnet18({.stochastic_depth = 1.0}); }),
            "[resnet] expected a probability of stochastic depth in [0, 1) but got 1");
  EXPECT_EQ(message_of([] { SqueezeExcite(0); }),
            "[squeeze_excite] expected a positive number of channels, and none that is negative between the "
            "convolutions, but got 0 and 0");
  EXPECT_EQ(message_of([] { StochasticDepth(1.0); }),
            "[stochastic_depth] expected a probability in [0, 1) but got 1");
}

TEST(ResNetReference, GradientsOfAllOptionsAgreeWithFiniteDifferences) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    manual_seed(3);
    const bool rows = layout == Layout::kNCHW;
    const ResNet model(
        {.bottleneck = true, .blocks = {1, 1}},
        {.classes = 2,
         .in_channels = 2,
         .width = 2,
         .layout = layout,
         .shortcut = Shortcut::kAveragePool,
         .groups = 2,
         .width_per_group = 32,
         .deep_stem = true,
         .squeeze_excite = true,
         .stochastic_depth = 0.4,
         .stochastic_depth_mode = rows ? StochasticDepthMode::kRow : StochasticDepthMode::kBatch});
    model.to(DType::kFloat64);
    Tensor images = pattern({3, 2, 13, 11}, 5);
    if (layout == Layout::kNHWC) images = channels_last(images);
    const std::vector<Parameter> parameters = model.parameters();
    // The same examples are dropped at each call.
    const auto run = [&] {
      manual_seed(rows ? 8 : 9);
      return std::vector<Tensor>{model(images)};
    };
    const GradcheckResult result =
        gradcheck(run, {parameters.begin(), parameters.end()}, {.tolerance = 2e-6});
    EXPECT_TRUE(result.passed) << result.message;
  }
}

// ---- stochastic depth

class StochasticDepthTest : public testing::OnEachDevice {};

TEST_P(StochasticDepthTest, DropsWholeExamplesOrTheWholeBatch) {
  manual_seed(4);
  const int64_t samples = 2000;
  const Tensor x = Tensor::full({samples, 2, 3}, 1.0, DType::kFloat32, device());
  const StochasticDepth rows(0.25);
  const std::vector<float> values = rows(x).to_vector<float>();
  int64_t dropped = 0;
  for (int64_t n = 0; n < samples; ++n) {
    const auto first = values.begin() + n * 6;
    ASSERT_TRUE(std::all_of(first, first + 6, [&](float value) { return value == *first; }));
    ASSERT_TRUE(*first == 0.0f || std::abs(*first - 1 / 0.75f) < 1e-6f) << *first;
    dropped += *first == 0.0f ? 1 : 0;
  }
  // 500 of 2,000 are expected, with a standard deviation of 19.
  EXPECT_NEAR(static_cast<double>(dropped), 500.0, 6 * 19.4);

  const StochasticDepth batch(0.25, StochasticDepthMode::kBatch);
  const Tensor few = Tensor::full({5, 2}, 1.0, DType::kFloat32, device());
  int64_t zeros = 0;
  for (int i = 0; i < 400; ++i) {
    const std::vector<float> all = batch(few).to_vector<float>();
    ASSERT_TRUE(std::all_of(all.begin(), all.end(), [&](float value) { return value == all[0]; }));
    zeros += all[0] == 0.0f ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(zeros), 100.0, 6 * 8.7);
  EXPECT_EQ(fmt::format("{}, {}", rows, batch), "StochasticDepth(0.25, row), StochasticDepth(0.25, batch)");
  rows.eval();
  EXPECT_EQ(bits_of(rows(x)), bits_of(x));
}

TEST_P(StochasticDepthTest, DropsWhatIsNotFiniteToo) {
  manual_seed(4);
  const StochasticDepth rows(0.5);
  const Tensor x = Tensor::full({64, 3}, std::numeric_limits<double>::infinity(), DType::kFloat32, device());
  const std::vector<float> values = rows(x).to_vector<float>();
  EXPECT_GT(std::ranges::count(values, 0.0f), 0);
  EXPECT_EQ(std::ranges::count_if(values, [](float value) { return std::isnan(value); }), 0);
}

/// Losses and weights after some steps of a network with all options, in a job or call by call. In float64:
/// its norms are over few elements, and what float32 rounds otherwise, 6e-8 of the weights, is 0.2 of the
/// third loss.
std::pair<std::vector<double>, State> train(Device device, StochasticDepthMode mode, bool in_job) {
  manual_seed(11);
  const ResNet model = resnext50_32x4d({.classes = 4,
                                        .width = 16,
                                        .layout = Layout::kNHWC,
                                        .small_stem = true,
                                        .shortcut = Shortcut::kAveragePool,
                                        .deep_stem = true,
                                        .squeeze_excite = true,
                                        .stochastic_depth = 0.5,
                                        .stochastic_depth_mode = mode});
  model.to(DType::kFloat64);
  model.to(device);
  SGD sgd(model.parameters(), {.momentum = 0.9});
  const Tensor images = floats({4, 12, 12, 3}, 1).to(device, DType::kFloat64);
  const Tensor labels = Tensor::from_values<int64_t>({0, 1, 2, 3}, {4}).to(device);
  std::vector<double> losses;
  manual_seed(12);
  if (in_job) {
    TrainJob job(model, CrossEntropyLoss{}, sgd);
    for (int step = 0; step < 4; ++step) losses.push_back(job.step(images, labels, 0.01).item());
  } else {
    for (int step = 0; step < 4; ++step) {
      const Tensor loss = CrossEntropyLoss{}(model(images), labels);
      model.zero_grad();
      backward(loss);
      sgd.step(0.01);
      losses.push_back(loss.item());
    }
  }
  return {losses, model.state()};
}

TEST_P(StochasticDepthTest, JobsDropAsCallsDoAndRepeat) {
  for (const StochasticDepthMode mode : {StochasticDepthMode::kRow, StochasticDepthMode::kBatch}) {
    const auto [eager, eager_state] = train(device(), mode, false);
    const auto [first, first_state] = train(device(), mode, true);
    const auto [again, again_state] = train(device(), mode, true);
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(first[i], eager[i], 1e-6 * (1 + eager[i])) << i;
    if (!device().is_cuda()) {
      EXPECT_EQ(first, again);
      EXPECT_EQ(bits_of(first_state), bits_of(again_state));
    }
    EXPECT_NE(first[0], first[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StochasticDepthTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

}  // namespace
}  // namespace sinter::nn
