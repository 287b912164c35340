// iResNets: InsightFace's names and counts, PyTorch's values (tests/reference/generate_face.py), layouts,
// precision and training.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_parameter;
using sinter::testing::reference_values;
using sinter::testing::to_doubles;
using testing::floats;
using testing::message_of;

using Blocks = std::vector<int64_t>;

/// InsightFace's names of all parameters and buffers.
std::set<std::string> expected_names(const Blocks& blocks) {
  std::set<std::string> names = {"conv1.weight", "prelu.weight", "fc.weight", "fc.bias"};
  const auto add_norm = [&](const std::string& name) {
    for (const char* part : {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}) {
      names.insert(name + "." + part);
    }
  };
  for (const char* name : {"bn1", "bn2", "features"}) add_norm(name);
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int64_t i = 0; i < blocks[stage]; ++i) {
      const std::string block = fmt::format("layer{}.{}.", stage + 1, i);
      for (const char* name : {"conv1.weight", "conv2.weight", "prelu.weight"}) names.insert(block + name);
      for (const char* name : {"bn1", "bn2", "bn3"}) add_norm(block + name);
      if (i > 0) continue;
      names.insert(block + "downsample.0.weight");
      add_norm(block + "downsample.1");
    }
  }
  return names;
}

/// Parameters by the sizes of the layers, for images of 112x112.
int64_t expected_count(const Blocks& blocks, int64_t first_width) {
  int64_t count = 3 * first_width * 9 + 3 * first_width, channels = first_width;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = first_width << stage;
    count += channels * width + 2 * width;
    for (int64_t i = 0; i < blocks[stage]; ++i) {
      count += 2 * channels + 9 * channels * width + 3 * width + 9 * width * width + 2 * width;
      channels = width;
    }
  }
  return count + 2 * channels + channels * 49 * 512 + 512 + 2 * 512;
}

TEST(IResNetTest, HasInsightFacesNamesAndCounts) {
  struct Case {
    IResNet (*make)(const IResNetOptions&);
    Blocks blocks;
    int64_t parameters;
    size_t names;
  };
  for (const Case& c :
       {Case{iresnet18, {2, 2, 2, 2}, 24'025'600, 187}, Case{iresnet34, {3, 4, 6, 3}, 34'139'328, 331},
        Case{iresnet50, {3, 4, 14, 3}, 43'590'848, 475}, Case{iresnet100, {3, 13, 30, 3}, 65'156'160, 925},
        Case{iresnet200, {6, 26, 60, 6}, 118'833'920, 1807}}) {
    EXPECT_EQ(expected_count(c.blocks, 64), c.parameters);
    // Narrow ones: the full ones take seconds to fill with random numbers.
    const IResNet model = c.make({.width = 4});
    EXPECT_EQ(model.parameter_count(), expected_count(c.blocks, 4));
    std::set<std::string> names;
    for (const auto& [name, value] : model.named_parameters()) names.insert(name);
    for (const auto& [name, value] : model.named_buffers()) names.insert(name);
    EXPECT_EQ(names.size(), c.names);
    EXPECT_EQ(names, expected_names(c.blocks));
  }
}

TEST(IResNetTest, HasInsightFacesShapes) {
  const IResNet model = iresnet18();
  EXPECT_EQ(model.parameter_count(), 24'025'600);
  const State state = model.state();
  EXPECT_EQ(state.at("conv1.weight").shape(), (Shape{64, 3, 3, 3}));
  EXPECT_EQ(state.at("layer1.0.downsample.0.weight").shape(), (Shape{64, 64, 1, 1}));
  EXPECT_EQ(state.at("layer2.0.bn1.weight").shape(), (Shape{64}));
  EXPECT_EQ(state.at("layer2.0.conv1.weight").shape(), (Shape{128, 64, 3, 3}));
  EXPECT_EQ(state.at("layer2.0.prelu.weight").shape(), (Shape{128}));
  EXPECT_EQ(state.at("layer4.1.conv2.weight").shape(), (Shape{512, 512, 3, 3}));
  EXPECT_EQ(state.at("fc.weight").shape(), (Shape{512, 25088}));
  EXPECT_EQ(state.at("features.running_var").shape(), (Shape{512}));
  EXPECT_EQ(state.at("prelu.weight").to_vector<float>(), std::vector<float>(64, 0.25f));
}

TEST(IResNetTest, ConvolutionsStartWithADeviationOfATenth) {
  manual_seed(1);
  const IResNet model({1, 1, 1}, {.width = 32});
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.rank() != 4 || parameter.numel() < 2000) continue;
    double squares = 0.0;
    for (const double value : to_doubles(parameter)) squares += value * value;
    const auto count = static_cast<double>(parameter.numel());
    EXPECT_NEAR(std::sqrt(squares / count), 0.1, 5 * 0.1 / std::sqrt(2 * count)) << name;
  }
}

TEST(IResNetTest, ShapesFollowTheOptions) {
  const NoGrad no_grad;
  EXPECT_EQ(iresnet18()(floats({2, 3, 112, 112}, 0)).shape(), (Shape{2, 512}));
  const IResNetOptions narrow{.dimensions = 10, .image_size = {33, 20}, .in_channels = 1, .width = 4};
  for (const auto make : {iresnet18, iresnet34, iresnet50, iresnet100, iresnet200}) {
    const IResNet model = make(narrow);
    EXPECT_EQ(model.fc.weight.shape(), (Shape{10, 4 * 8 * 3 * 2}));
    EXPECT_EQ(model(floats({2, 1, 33, 20}, 0)).shape(), (Shape{2, 10}));
  }
  EXPECT_EQ(IResNet({1, 1}, {.dimensions = 5, .image_size = 8, .width = 4, .layout = Layout::kNHWC})(
                floats({3, 8, 8, 3}, 0))
                .shape(),
            (Shape{3, 5}));
}

TEST(IResNetTest, NamesWhatIsWrong) {
  const IResNet model({1}, {.width = 2});
  EXPECT_EQ(message_of([&] {
              model(floats({2, 3, 96, 112}, 0));
            }),
            "[iresnet] expected images of 3 channels and size 112x112 in layout NCHW but got shape (2, 3, "
            "96, 112)");
  EXPECT_EQ(message_of([&] {
              model(floats({2, 112, 112, 3}, 0));
            }),
            "[iresnet] expected images of 3 channels and size 112x112 in layout NCHW but got shape (2, 112, "
            "112, 3)");
  EXPECT_EQ(message_of([&] {
              model(Tensor::zeros({2, 3, 112, 112}, DType::kUInt8));
            }),
            "[iresnet] expected images of a floating-point dtype but got uint8");
  EXPECT_EQ(message_of([] {
              IResNet({2, 0});
            }),
            "[iresnet] expected at least one stage, and at least one block in each");
  EXPECT_EQ(message_of([] { iresnet18({.dimensions = 0}); }),
            "[iresnet] expected positive numbers but got 0 dimensions, 3 input channels, width 64");
  EXPECT_EQ(message_of([] {
              iresnet18({.image_size = {0, 112}});
            }),
            "[iresnet] expected images of a positive size but got 0x112");
}

TEST(IResNetTest, PrintsAsATree) {
  std::ostringstream printed;
  printed << IResNet({1}, {.dimensions = 6, .image_size = 4, .width = 2, .dropout = 0.4});
  EXPECT_EQ(printed.str(), R"(IResNet(
  (conv1): Conv2d(3, 2, kernel 3x3, padding 1x1, no bias)
  (bn1): BatchNorm2d(2)
  (prelu): PReLU(2)
  (layer1): Sequential(
    (0): IResNetBlock(
      (bn1): BatchNorm2d(2)
      (conv1): Conv2d(2, 2, kernel 3x3, padding 1x1, no bias)
      (bn2): BatchNorm2d(2)
      (prelu): PReLU(2)
      (conv2): Conv2d(2, 2, kernel 3x3, stride 2x2, padding 1x1, no bias)
      (bn3): BatchNorm2d(2)
      (downsample): Sequential(
        (0): Conv2d(2, 2, kernel 1x1, stride 2x2, no bias)
        (1): BatchNorm2d(2)
      )
    )
  )
  (bn2): BatchNorm2d(2)
  (flatten): Flatten()
  (dropout): Dropout(0.4)
  (fc): Linear(8, 6, float32)
  (features): BatchNorm1d(6)
))");
}

TEST(IResNetTest, SummaryCountsParametersAndWork) {
  const Summary table = summary(iresnet50(), Shape{1, 3, 112, 112});
  EXPECT_EQ(table.parameters, 43'590'848);
  EXPECT_EQ(table.frozen_parameters, 512);
  int64_t work = 112 * 112 * 27 * 64 + 25088 * 512, channels = 64, side = 112;
  for (const int64_t blocks : {3, 4, 14, 3}) {
    const int64_t width = side == 112 ? 64 : 2 * channels, pixels = side * side / 4;
    work += 4 * pixels * 9 * channels * width + pixels * (9 * width * width + channels * width) +
            (blocks - 1) * pixels * 2 * 9 * width * width;
    channels = width;
    side /= 2;
  }
  EXPECT_EQ(table.multiply_adds, work);
}

TEST(IResNetTest, TheWeightOfTheLastNormStaysOne) {
  manual_seed(2);
  const IResNet model({1}, {.dimensions = 6, .image_size = 4, .width = 2});
  SGD sgd(model.parameters(), {.momentum = 0.9, .weight_decay = 0.1});
  const auto step = [&] {
    sgd.zero_grad();
    const Tensor y = model(floats({4, 3, 4, 4}, 1));
    backward(y, {.gradient = floats({4, 6}, 2)});
    sgd.step(0.1);
  };
  step();
  EXPECT_FALSE(model.features.weight.grad().defined());
  EXPECT_TRUE(model.features.bias.grad().defined());
  model.to_mixed(DType::kFloat16);
  step();
  EXPECT_FALSE(model.features.weight.grad().defined());
  EXPECT_FALSE(clone(model).features.weight.tensor().requires_grad());
  EXPECT_EQ(model.features.weight.tensor().to_vector<float>(), std::vector<float>(6, 1.0f));
}

// ---- PyTorch's values

/// Biases that shift what only norms read, maybe through linear layers: their gradient is 0 but for rounding.
bool is_shift_before_norms(const std::string& name) {
  return name == "bn2.bias" || name == "fc.bias" || name.ends_with("bn3.bias") ||
         name.ends_with("downsample.1.bias");
}

/// Values by the formula of their names, as fill() of the script; num_batches_tracked is 3.
State reference_state(const Module& model, const std::string& prefix) {
  State state = model.state();
  for (auto& [name, tensor] : state) {
    if (name.ends_with("num_batches_tracked")) {
      tensor = Tensor::scalar<int64_t>(3);
    } else if (name.ends_with("prelu.weight")) {
      tensor = reference_values(prefix + name, tensor.shape(), {.scale = 0.25, .base = 0.25});
    } else {
      tensor = reference_parameter(prefix + name, tensor.shape());
    }
  }
  return state;
}

Tensor in_layout(const Tensor& nchw, Layout layout, DType dtype = DType::kFloat64) {
  const Tensor images = ops::cast(nchw, dtype);
  return (layout == Layout::kNHWC ? ops::permute(images, {0, 2, 3, 1}) : images).detach();
}
Tensor from_layout(const Tensor& images, Layout layout) {
  return layout == Layout::kNHWC ? ops::permute(images.detach(), {0, 3, 1, 2}) : images.detach();
}

// float64: sums of at most a few hundred products through some ten layers.
constexpr double kStageTolerance = 1e-13;
constexpr double kModelTolerance = 1e-11;

TEST(IResNetReference, BlocksWithAndWithoutProjection) {
  const Reference reference("face");
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    SCOPED_TRACE(to_string(layout));
    const IResNet model({2}, {.dimensions = 3, .image_size = {18, 14}, .width = 4, .layout = layout});
    const Sequential& stage = model.stages[0];
    model.to(DType::kFloat64);
    stage.load_state(reference_state(stage, "stage."));
    const Tensor x = in_layout(reference_values("stage.x", {2, 4, 9, 7}), layout).set_requires_grad(true);
    const Tensor y = stage(x);
    reference.expect_near("stage.y", from_layout(y, layout), kStageTolerance);
    backward(y, {.gradient = in_layout(reference_values("stage.dy", {2, 4, 5, 4}), layout)});
    reference.expect_near("stage.dx", from_layout(x.grad(), layout), kStageTolerance);
    size_t compared = 0;
    for (const Parameter& parameter : stage.parameters()) {
      reference.expect_near("stage.grad." + parameter.name(), parameter.to_canonical(parameter.grad()),
                            kStageTolerance);
      ++compared;
    }
    EXPECT_EQ(compared, 2 * 9u + 3u);
    for (const auto& [name, buffer] : stage.named_buffers()) {
      if (buffer.rank() == 1) reference.expect_near("stage.buffer." + name, buffer, kStageTolerance);
    }
  }
}

TEST(IResNetReference, ATrainingStepOfIResNet18WithItsHead) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    SCOPED_TRACE(to_string(layout));
    const Reference reference("iresnet18_float64");
    const IResNet model = iresnet18({.dimensions = 16, .image_size = {48, 56}, .width = 8, .layout = layout});
    const MarginHead head(16, 10);
    model.load_state(reference_state(model, "iresnet."));
    head.weight.assign(reference_values("iresnet.head.weight", {10, 16}));
    model.to(DType::kFloat64);
    head.to(DType::kFloat64);
    const Tensor images =
        in_layout(reference_values("iresnet.images", {3, 3, 48, 56}, {.scale = 2.0}), layout);
    const Tensor embeddings = model(images);
    reference.expect_near("embeddings", embeddings, kModelTolerance);
    const Tensor loss = head(embeddings, Tensor::from_values(std::vector<int64_t>{1, 7, 3}, {3}));
    reference.expect_near("loss", loss, kModelTolerance);
    backward(loss);
    reference.expect_near("grad.head.weight", head.weight.grad(), kModelTolerance);
    for (const Parameter& parameter : model.parameters()) {
      if (!parameter.tensor().requires_grad()) continue;
      if (is_shift_before_norms(parameter.name())) {
        for (const double value : to_doubles(parameter.grad())) ASSERT_LE(std::abs(value), 1e-12);
        continue;
      }
      reference.expect_digest("grad." + parameter.name(), "iresnet." + parameter.name(),
                              parameter.to_canonical(parameter.grad()), kModelTolerance);
    }
    for (const auto& [name, buffer] : model.named_buffers()) {
      if (buffer.rank() == 1)
        reference.expect_digest("buffer." + name, "iresnet." + name, buffer, kModelTolerance);
    }
    model.eval();
    const NoGrad no_grad;
    reference.expect_near("eval_embeddings", model(images), kModelTolerance);
    EXPECT_EQ(reference.used(), reference.size());
  }
}

// ---- precision, and training

class IResNetOnDevice : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, IResNetOnDevice, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

TEST_P(IResNetOnDevice, HalfPrecisionKeepsTheEndInFloat32) {
  manual_seed(3);
  const IResNetOptions options{.dimensions = 32, .image_size = 16, .width = 8};
  const Tensor images = floats({8, 3, 16, 16}, 1).to(device());
  const NoGrad no_grad;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double u = dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    const IResNet exact = iresnet18(options), mixed = clone(exact), half = clone(exact);
    for (const IResNet& model : {exact, mixed, half}) model.to(device());
    mixed.to_mixed(dtype);
    half.to(dtype);
    for (const IResNet& model : {mixed, half}) {
      EXPECT_EQ(model.stages[3](Tensor::zeros({2, 32, 2, 2}, dtype, device())).dtype(), dtype);
      EXPECT_EQ(model.conv1.weight.tensor().dtype(), dtype);
      for (const Parameter& kept : {model.fc.weight, model.fc.bias, model.features.bias}) {
        EXPECT_EQ(kept.tensor().dtype(), DType::kFloat32) << kept.name();
        EXPECT_FALSE(kept.is_mixed()) << kept.name();
      }
    }
    exact.eval();
    const std::vector<double> wanted = to_doubles(exact(images).to(Device::cpu()));
    for (const IResNet& model : {mixed, half}) {
      model.load_state(exact.state());
      model.eval();
      const Tensor embeddings = model(images);
      EXPECT_EQ(embeddings.dtype(), DType::kFloat32);
      const std::vector<double> got = to_doubles(embeddings.to(Device::cpu()));
      double difference = 0.0, norm = 0.0;
      for (size_t i = 0; i < wanted.size(); ++i) {
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
      }
      // A block rounds about eight times (two convolutions, three norms, PReLU, the sum, the shortcut), so
      // the 8 blocks make sqrt(8 * 8) u of independent errors.
      EXPECT_LE(std::sqrt(difference / norm), 8 * u);
    }
  }
}

/// Images of random identities: the same face of noise each time, under fresh noise.
struct Faces {
  Tensor images, labels;
};

Faces make_faces(int64_t count, int64_t identities, int64_t seed, Device device) {
  constexpr int64_t kPixels = 3 * 16 * 16;
  const Tensor images = floats({count, 3, 16, 16}, 1000 + seed), faces = floats({identities, kPixels}, 1);
  std::vector<int64_t> labels;
  for (int64_t n = 0; n < count; ++n) {
    labels.push_back((n * 5 + seed) % identities);
    for (int64_t i = 0; i < kPixels; ++i) {
      images.data<float>()[n * kPixels + i] += 2.0f * faces.data<float>()[labels.back() * kPixels + i];
    }
  }
  return {images.to(device), Tensor::from_values(labels, {count}, device)};
}

TEST_P(IResNetOnDevice, LearnsToTellIdentities) {
  constexpr int64_t kIdentities = 12;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    manual_seed(4);
    const IResNet model = iresnet18({.dimensions = 32, .image_size = 16, .width = 8});
    const MarginHead head(32, kIdentities);
    std::vector<Parameter> parameters = add_prefix("backbone.", model.parameters());
    for (const Parameter& parameter : add_prefix("head.", head.parameters())) parameters.push_back(parameter);
    for (const ModuleBase* part :
         {static_cast<const ModuleBase*>(&model), static_cast<const ModuleBase*>(&head)}) {
      part->to(device());
      if (is_half(dtype)) part->to_mixed(dtype);
    }
    SGD sgd(parameters, {.momentum = 0.9, .weight_decay = 5e-4});
    GradScaler scaler(GradScaler::options_for(dtype));
    double first = 0.0, last = 0.0;
    for (int64_t step = 0; step < 30; ++step) {
      const Faces batch = make_faces(24, kIdentities, step, device());
      const Tensor loss = head(model(batch.images), batch.labels);
      sgd.zero_grad();
      backward(scaler.scale(loss));
      scaler.step(sgd, 0.02, {.max_grad_norm = 5.0});
      if (step == 0) first = loss.item();
      if (step >= 27) last += loss.item() / 3;
    }
    EXPECT_GT(first, 20.0) << "a margin of half a radian makes the start hard";
    EXPECT_LT(last, 0.05 * first);
    model.eval();
    const NoGrad no_grad;
    const Faces fresh = make_faces(48, kIdentities, 500, device());
    const std::vector<int64_t> found =
        ops::argmax(head.cosine(model(fresh.images)), 1).to(Device::cpu()).to_vector<int64_t>();
    const std::vector<int64_t> wanted = fresh.labels.to(Device::cpu()).to_vector<int64_t>();
    int64_t right = 0;
    for (size_t i = 0; i < wanted.size(); ++i) right += found[i] == wanted[i] ? 1 : 0;
    EXPECT_GE(right, 46) << "of 48, by " << to_string(dtype);
  }
}

}  // namespace
}  // namespace sinter::nn
