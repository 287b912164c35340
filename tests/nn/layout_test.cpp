// model.to(Layout): models brought to the other layout do what models made in it do, whatever they hold and
// whoever follows their parameters.
#include <cstring>
#include <functional>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/permute/permute.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;
using enum Layout;

static_assert(std::same_as<Conv2dOptions, ops::Conv2dOptions>);
static_assert(std::same_as<Pool2dOptions, ops::Pool2dOptions>);
static_assert(std::same_as<UpsampleOptions, ops::UpsampleOptions>);

/// Images (N, C, H, W) as a model in `layout` takes them, and back.
Tensor images_in(Layout layout, const Tensor& x) {
  return layout == kNHWC ? ops::permute(x, {0, 2, 3, 1}) : x;
}
Tensor images_from(Layout layout, const Tensor& y) {
  return layout == kNHWC && y.rank() == 4 ? ops::permute(y, {0, 3, 1, 2}) : y;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()) == 0;
}

void expect_same_bits(const State& a, const State& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(same_bits(value, b.at(name))) << name;
}

/// The output for x, and all gradients of its sum of squares, in canonical layout.
State run(const Module& model, const Tensor& x, Layout layout) {
  manual_seed(5);
  model.zero_grad();
  const Tensor images = images_in(layout, x).clone().set_requires_grad(true), y = model(images);
  ops::square(y).sum().backward();
  State results{{"y", images_from(layout, y.detach())}, {"dx", images_from(layout, images.grad())}};
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.grad().defined()) results[parameter.name()] = parameter.to_canonical(parameter.grad());
  }
  return results;
}

/// `make(layout)` makes a model that starts in it.
void expect_turned_is_made(const char* name, const std::function<AnyModule(Layout)>& make,
                           const Shape& shape) {
  SCOPED_TRACE(name);
  const Tensor x = floats(shape, 3);
  const AnyModule first = make(kNCHW), last = make(kNHWC);
  EXPECT_EQ(first.layout(), kNCHW);
  EXPECT_EQ(last.layout(), kNHWC);
  last.load_state(first.state());
  const AnyModule turned = clone(first), back = clone(last);
  turned.to(kNHWC);
  back.to(kNCHW);
  EXPECT_EQ(turned.layout(), kNHWC);
  expect_same_bits(turned.state(), last.state());
  expect_same_bits(run(turned, x, kNHWC), run(last, x, kNHWC));
  expect_same_bits(run(back, x, kNCHW), run(first, x, kNCHW));
  turned.to(kNCHW);  // with gradients and statistics
  expect_same_bits(run(turned, x, kNCHW), run(back, x, kNCHW));
}

TEST(ModelLayout, AxesAndShapesOfImagesGoWithTheModel) {
  // Extents that are equal, so that a wrong axis would not be noticed.
  const Shape images{2, 5, 5, 5};
  const auto check = [](const char* name, const Module& model, const Shape& shape) {
    SCOPED_TRACE(name);
    const Tensor x = floats(shape, 3);
    State state = model.state();
    for (auto& entry : state) entry.second = floats(entry.second.shape(), 7);
    model.load_state(state);
    const std::vector<float> y = model(x).to_vector<float>();
    model.to(kNHWC);
    expect_near(images_from(kNHWC, model(x.rank() == 4 ? images_in(kNHWC, x) : x)), y, 1e-5);
    model.to(kNCHW);
    expect_near(model(x), y, 1e-5);
  };
  for (const int64_t axis : {0, 1, 2, 3})
    check("softmax", Sequential(Conv2d(5, 5, 1), Softmax(axis)), images);
  check("softmax of features", Sequential(Linear(5, 3), Softmax(1)), {2, 5});
  check("layer norm", Sequential(Conv2d(5, 5, 1), LayerNorm(Shape{5, 5, 5})), images);
  check("unflatten",
        Sequential(Linear(8, 64), Unflatten(1, {4, 4, 4}), ConvTranspose2d(4, 3, 2, {.stride = 2})), {2, 8});
  const LayerNorm plane(Shape{5, 5});
  plane.to(kNHWC);
  EXPECT_THROW(plane(floats(images, 3)), InvalidArgument);
  // What is made for NHWC says so, and stays.
  const Sequential last(Conv2d(5, 5, 1, {.layout = kNHWC}), Softmax(3, kNHWC),
                        LayerNorm(Shape{5, 5, 5}, {.layout = kNHWC}));
  const Tensor x = floats(images, 3);
  const std::vector<float> y = last(x).to_vector<float>();
  last.to(kNHWC);
  expect_near(last(x), y, 0.0);
  last.to(kNCHW);
  expect_near(images_in(kNHWC, last(images_from(kNHWC, x))), y, 1e-5);
}

TEST(ModelLayout, LayersBroughtToALayoutAreThoseMadeInIt) {
  const Shape images{2, 4, 6, 8};
  const auto check = [&](const char* name, const std::function<AnyModule(Layout)>& make) {
    expect_turned_is_made(name, make, images);
  };
  check("conv2d", [](Layout l) {
    return Conv2d(4, 6, 3, {.stride = 2, .padding = {0, 1, 2, 1}, .layout = l});
  });
  check("grouped", [](Layout l) { return Conv2d(4, 4, 3, {.groups = 2, .bias = false, .layout = l}); });
  check("conv_transpose2d", [](Layout l) { return ConvTranspose2d(4, 3, 3, {.stride = 2, .layout = l}); });
  check("batch_norm2d", [](Layout l) { return BatchNorm2d(4, {.layout = l}); });
  check("group_norm", [](Layout l) { return GroupNorm(2, 4, {.layout = l}); });
  check("instance_norm", [](Layout l) { return InstanceNorm2d(4, {.affine = true, .layout = l}); });
  check("prelu", [](Layout l) { return PReLU(4, {.layout = l}); });
  check("max_pool2d", [](Layout l) { return MaxPool2d(3, {.stride = 2, .padding = 1, .layout = l}); });
  check("avg_pool2d", [](Layout l) { return AvgPool2d({3, 2}, {.layout = l}); });
  check("adaptive_avg_pool2d", [](Layout l) { return AdaptiveAvgPool2d({3, 2}, l); });
  check("adaptive_max_pool2d", [](Layout l) { return AdaptiveMaxPool2d({3, 2}, l); });
  check("global_avg_pool2d", [](Layout l) { return GlobalAvgPool2d(l); });
  check("upsample", [](Layout l) { return Upsample({.mode = UpsampleMode::kBilinear, .layout = l}); });
  check("pixel_shuffle", [](Layout l) { return PixelShuffle(2, l); });
  check("dropout2d", [](Layout l) { return Dropout2d(0.5, l); });
  check("pad2d", [](Layout l) { return Pad2d({1, 2, 0, 3}, {.mode = ops::PadMode::kReflect, .layout = l}); });
  check("flatten",
        [](Layout l) { return Sequential(MaxPool2d(2, {.layout = l}), Flatten(l), Linear(48, 3)); });
  check("squeeze_excite", [](Layout l) { return SqueezeExcite(4, {.layout = l}); });
}

TEST(ModelLayout, ModelsBroughtToALayoutAreThoseMadeInIt) {
  expect_turned_is_made(
      "resnet18",
      [](Layout l) { return resnet18({.classes = 3, .width = 4, .layout = l, .small_stem = true}); },
      {2, 3, 16, 16});
  expect_turned_is_made("resnet50",
                        [](Layout l) {
                          return ResNet({.bottleneck = true, .blocks = {1, 1}},
                                        {.classes = 3,
                                         .width = 4,
                                         .layout = l,
                                         .shortcut = Shortcut::kAveragePool,
                                         .groups = 2,
                                         .deep_stem = true,
                                         .squeeze_excite = true,
                                         .stochastic_depth = 0.5});
                        },
                        {2, 3, 32, 32});
  expect_turned_is_made(
      "cifar", [](Layout l) { return resnet20({.width = 4, .layout = l, .shortcut = Shortcut::kPadding}); },
      {2, 3, 16, 16});
  expect_turned_is_made(
      "iresnet18",
      [](Layout l) { return iresnet18({.dimensions = 8, .image_size = 32, .width = 4, .layout = l}); },
      {2, 3, 32, 32});
  expect_turned_is_made("mobile_face_net",
                        [](Layout l) {
                          return MobileFaceNet({1, 1, 1, 1}, {.dimensions = 8, .scale = 1, .layout = l});
                        },
                        {2, 3, 112, 112});
}

/// As users write one: layers, ops, a parameter that is four-dimensional and no filter.
struct Skips : Module {
  Conv2d down = child("down", Conv2d(3, 3, 3, {.padding = 1}));  // as many of each: shapes tell nothing
  Conv2d up = child("up", Conv2d(6, 3, 3, {.padding = 1, .bias = false}));
  Parameter scale = parameter("scale", Tensor::full({1, 1, 1, 1}, 0.5));
  Tensor forward(const Tensor& x) const override {
    return up(ops::concat({down(x), x * scale}, layout() == kNCHW ? 1 : 3));
  }
};

TEST(ModelLayout, ModulesOfYourOwnFollowByTheirMembersAndLayout) {
  const Skips model;
  EXPECT_EQ(model.layout(), kNCHW);
  const Tensor x = floats({2, 3, 5, 7}, 1);
  const State before = run(model, x, kNCHW), state = model.state();
  const Parameter weight = model.down.weight;
  model.to(kNHWC);
  EXPECT_EQ(model.layout(), kNHWC);
  EXPECT_EQ(model.up.layout(), kNHWC);
  EXPECT_TRUE(weight.is_same(model.down.weight));
  EXPECT_EQ(model.up.weight.shape(), (Shape{3, 3, 3, 6}));
  EXPECT_EQ(model.scale.shape(), (Shape{1, 1, 1, 1}));
  expect_same_bits(model.state(), state);
  for (const auto& [name, value] : run(model, x, kNHWC))
    expect_near<float>(value, before.at(name).to_vector<float>(), 1e-5);
}

TEST(ModelLayout, GradientsAndFrozenParametersStayWhatTheyAre) {
  const Skips model;
  const Tensor x = floats({2, 3, 5, 7}, 1);
  const State gradients = run(model, x, kNCHW);
  model.up.weight.set_requires_grad(false);
  model.to(kNHWC);
  EXPECT_TRUE(
      same_bits(model.down.weight.to_canonical(model.down.weight.grad()), gradients.at("down.weight")));
  EXPECT_FALSE(model.up.weight.tensor().requires_grad());
  EXPECT_TRUE(model.down.weight.tensor().requires_grad());
  const Skips mixed;
  mixed.to_mixed(DType::kBFloat16);
  const State state = mixed.state();
  mixed.to(kNHWC);
  EXPECT_TRUE(mixed.down.weight.is_mixed());
  EXPECT_EQ(mixed.up.weight.tensor().shape(), (Shape{3, 3, 3, 6}));
  EXPECT_TRUE(same_bits(mixed.down.weight.tensor(), mixed.down.weight.master().to(DType::kBFloat16)));
  expect_same_bits(mixed.state(), state);
}

TEST(ModelLayout, WeightsAreLoadedInEitherLayout) {
  const Skips saved, model;
  model.to(kNHWC);
  model.load_state(saved.state());
  expect_same_bits(model.state(), saved.state());
  const Tensor x = floats({2, 3, 5, 7}, 1);
  const State want = run(saved, x, kNCHW);
  for (const auto& [name, value] : run(model, x, kNHWC))
    expect_near<float>(value, want.at(name).to_vector<float>(), 1e-5);
}

TEST(ModelLayout, OfAMixedModelThereIsOneBehindIt) {
  const Sequential model(Conv2d(3, 4, 3, {.layout = kNHWC}), ChangeLayout(kNHWC, kNCHW), BatchNorm2d(4));
  EXPECT_EQ(model.layout(), kNHWC) << "of what goes in";
  const Tensor x = floats({2, 3, 6, 5}, 1);
  const Tensor want = model(images_in(kNHWC, x));
  for (const Layout layout : {kNCHW, kNHWC}) {
    const Sequential one = clone(model);
    one.to(layout);
    EXPECT_EQ(one.layout(), layout);
    expect_near<float>(images_from(layout, one(images_in(layout, x))), want.to_vector<float>(), 1e-5);
  }
}

// ---- whoever keeps tensors like the parameters

/// Steps with what `make` gives, of a model that is brought to NHWC in the middle, against one that is not.
using Trainer = std::function<void(const Tensor& images, int step)>;
void expect_same_training(Device device, const std::function<Trainer(const Skips&)>& make) {
  const Skips still;
  still.to(device);
  const Skips turned = clone(still);
  const Trainer train_still = make(still), train_turned = make(turned);
  for (int step = 0; step < 6; ++step) {
    if (step == 3) turned.to(kNHWC);
    const Tensor x = floats({2, 3, 6, 5}, step).to(device);
    train_still(x, step);
    train_turned(images_in(turned.layout(), x), step);
  }
  EXPECT_EQ(turned.layout(), kNHWC);
  const State want = still.state();
  for (const auto& [name, value] : turned.state()) {
    SCOPED_TRACE(name);
    expect_near<float>(value, want.at(name).to_vector<float>(), 2e-5);
  }
}

template <class O>
Trainer eager(const Skips& model, std::shared_ptr<O> optimizer) {
  return [=](const Tensor& images, int) {
    optimizer->zero_grad();
    ops::square(model(images)).mean().backward();
    optimizer->step(0.05);
  };
}

using LayoutTest = testing::OnEachDevice;
INSTANTIATE_TEST_SUITE_P(Devices, LayoutTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

TEST_P(LayoutTest, OptimisersFollow) {
  expect_same_training(device(), [](const Skips& model) {
    return eager(model, std::make_shared<SGD>(model.parameters(), SGDOptions{.momentum = 0.9}));
  });
  expect_same_training(
      device(), [](const Skips& model) { return eager(model, std::make_shared<AdamW>(model.parameters())); });
  expect_same_training(device(), [](const Skips& model) {
    return eager(model, std::make_shared<LARS>(model.parameters(), LARSOptions{.trust_coefficient = 0.1}));
  });
}

TEST(ModelLayout, TheStateOfAnOptimiserStaysCanonical) {
  const Skips model;
  SGD sgd(model.parameters(), {.momentum = 0.9});
  const Trainer train = [&](const Tensor& images, int) {
    ops::square(model(images)).mean().backward();
    sgd.step(0.1);
  };
  train(floats({2, 3, 6, 5}, 1), 0);
  const State state = sgd.state();
  model.to(kNHWC);
  expect_same_bits(sgd.state(), state);
  sgd.load_state(state);
  expect_same_bits(sgd.state(), state);
  model.to(kNCHW);
  expect_same_bits(sgd.state(), state);
}

TEST(ModelLayout, AveragesFollow) {
  const Skips model;
  EMA ema(model, {.decay = 0.5});
  Lookahead lookahead(model);
  const State before = model.state();
  model.to(kNHWC);
  expect_same_bits(ema.averaged_state(), before);
  expect_same_bits(ema.state(), EMA(model).state());
  ema.update();
  expect_same_bits(ema.averaged_state(), before);
  for (const Parameter& parameter : model.parameters())
    parameter.assign(Tensor::zeros(parameter.canonical_shape()));
  ema.update();
  const State halves = ema.averaged_state();
  for (const auto& [name, value] : before) EXPECT_TRUE(same_bits(halves.at(name), value * 0.5)) << name;
  lookahead.update(1.0);
  expect_same_bits(model.state(), before);
}

// ---- jobs and loaders

TEST_P(LayoutTest, JobsTraceTheModelAgain) {
  for (const int accumulate : {1, 2}) {
    expect_same_training(device(), [&](const Skips& model) -> Trainer {
      auto sgd = std::make_shared<SGD>(model.parameters(), SGDOptions{.momentum = 0.9});
      auto job = std::make_shared<TrainJob>(
          model, *sgd, [model](const Tensor& x) { return ops::square(model(x)).mean(); },
          TrainJobOptions{.accumulate = accumulate});
      return [=](const Tensor& images, int) {
        const auto kept = sgd;
        job->step({images}, 0.05);
      };
    });
  }
}

TEST(ModelLayout, AnInferJobOfAModelWithoutFiltersTracesItAgain) {
  const Sequential model(MaxPool2d(2), Flatten());
  InferJob job(model);
  const Tensor x = floats({1, 4, 4, 4}, 1);  // no shape tells the layout
  EXPECT_EQ(job(x).to_vector<float>(), model(x).to_vector<float>());
  const std::vector<float> first = job(x).to_vector<float>();
  model.to(kNHWC);
  EXPECT_EQ(job(images_in(kNHWC, x)).to_vector<float>(), first);
  EXPECT_EQ(job.compilations(), 2);
}

TEST(ModelLayout, ImagesOfTheOtherLayoutAreRefused) {
  const Sequential model(Conv2d(3, 4, 3), BatchNorm2d(4));
  model.to(kNHWC);
  InferJob job(model);
  EXPECT_EQ(message_of([&] {
              (void)job(floats({1, 3, 8, 8}, 1));
            }),
            "[conv2d] expected 3 channels in axis 3, as the layer works in NHWC, but got shape (1, 3, 8, 8), "
            "which looks like NCHW; model.to(Layout::kNCHW) makes the model work in it");
}

TEST(ModelLayout, ALoaderGivesWhatTheModelTakes) {
  const data::DatasetPtr pictures = data::make_dataset(6, [](int64_t i) {
    data::Sample sample{.image = {.height = 8, .width = 6, .channels = 3, .pixels = {}}, .label = i % 2};
    for (int64_t p = 0; p < 8 * 6 * 3; ++p)
      sample.image.pixels.push_back(static_cast<uint8_t>((p * 7 + i * 31) % 256));
    return sample;
  });
  const ResNet model = resnet18({.classes = 2, .width = 4, .small_stem = true});
  std::vector<std::vector<float>> logits;
  for (const Layout layout : {kNCHW, kNHWC}) {
    model.to(layout);
    model.eval();
    data::DataLoader loader(pictures, {.batch_size = 6, .layout = model.layout()});
    for (const auto& [images, labels] : loader) logits.push_back(model(images).to_vector<float>());
  }
  expect_near<float>(Tensor::from_values(logits[1], {6, 2}), logits[0], 1e-5);
}

}  // namespace
}  // namespace sinter::nn
