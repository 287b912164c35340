// Layers: shapes, modes and members; the maths is tested with the ops.
#include <algorithm>

#include <sinter/autograd/gradcheck.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv1d.h>
#include <sinter/ops/norm/group_norm.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/upsample/pixel_shuffle.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;

TEST(LayersTest, ConvolutionShapesInBothLayouts) {
  const Conv2d conv(4, 6, {3, 5}, {.stride = 2, .padding = {1, 2}, .groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{6, 2, 3, 5}));
  EXPECT_EQ(conv.bias.shape(), Shape{6});
  EXPECT_EQ(conv(floats({2, 4, 9, 8}, 0)).shape(), (Shape{2, 6, 5, 4}));
  const Conv2d last(4, 6, 3, {.bias = false, .layout = Layout::kNHWC});
  EXPECT_FALSE(last.bias.defined());
  EXPECT_EQ(last(floats({2, 9, 8, 4}, 0)).shape(), (Shape{2, 7, 6, 6}));
  EXPECT_EQ(message_of([] { Conv2d(4, 6, 3, {.groups = 4}); }),
            "[conv2d] expected channel counts that are positive multiples of 4 groups but got 4 in, 6 out");
  EXPECT_EQ(message_of([] { Conv2d(4, 6, 0); }), "[conv2d] expected a kernel of positive size but got 0 x 0");
}

TEST(LayersTest, SamePaddingKeepsTheSizeOfImages) {
  EXPECT_EQ(same_padding(3), Padding2d(1));
  EXPECT_EQ(same_padding({1, 5}), Padding2d(0, 2));
  EXPECT_EQ(same_padding(4), Padding2d(1, 2, 1, 2));
  EXPECT_EQ(same_padding({2, 3}, {3, 2}), Padding2d(1, 2, 2, 2));
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Shape shape = layout == Layout::kNCHW ? Shape{2, 3, 7, 6} : Shape{2, 7, 6, 3};
    for (const Size2d kernel : {Size2d(1), Size2d(2), Size2d(4, 3), Size2d(5, 2)}) {
      for (const Size2d dilation : {Size2d(1), Size2d(3, 2)}) {
        const Conv2d conv(
            3, 3, kernel,
            {.padding = same_padding(kernel, dilation), .dilation = dilation, .layout = layout});
        EXPECT_EQ(conv(floats(shape, 0)).shape(), shape);
      }
    }
    EXPECT_EQ(
        MaxPool2d(2, {.stride = 1, .padding = same_padding(2), .layout = layout})(floats(shape, 0)).shape(),
        shape);
  }
}

TEST(LayersTest, ConvolutionPadsEverySideAsTold) {
  const Tensor x = floats({2, 3, 5, 4}, 1);
  manual_seed(5);
  const Conv2d uneven(3, 2, 3, {.stride = {2, 1}, .padding = {2, 1, 0, 3}});
  manual_seed(5);
  const Conv2d plain(3, 2, 3, {.stride = {2, 1}});
  const Tensor padded = ops::pad(x, {{0, 0}, {0, 0}, {2, 1}, {0, 3}});
  EXPECT_EQ(uneven(x).shape(), (Shape{2, 2, 3, 5}));
  expect_near<float>(uneven(x), plain(padded).to_vector<float>(), 1e-6);

  const Conv2d last(3, 2, 3, {.stride = {2, 1}, .padding = {2, 1, 0, 3}, .layout = Layout::kNHWC});
  last.load_state(uneven.state());
  const Tensor images = ops::permute(x, {0, 2, 3, 1});
  expect_near<float>(ops::permute(last(images), {0, 3, 1, 2}), uneven(x).to_vector<float>(), 1e-5);

  uneven.to(DType::kFloat64);
  const Tensor exact = ops::cast(x, DType::kFloat64).set_requires_grad(true);
  const GradcheckResult result = gradcheck(
      [&](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{uneven(inputs[0])}; }, {exact});
  EXPECT_TRUE(result.passed) << result.message;
  EXPECT_EQ(message_of([] {
              Conv2d(4, 6, 3, {.padding = {0, 0, -1, 0}});
            }),
            "[conv2d] expected no negative padding but got top 0 bottom 0 left -1 right 0");
  EXPECT_NE(to_string(uneven).find("padding top 2 bottom 1 left 0 right 3"), std::string::npos);
}

TEST(LayersTest, AnImageWithoutABatchIsNoticed) {
  const Tensor image = floats({3, 8, 8}, 0);
  const std::string expected =
      "] expected a batch of images (rank 4) but got shape (3, 8, 8); if that is one image, give it a batch "
      "axis: ops::reshape(x, {1, 3, 8, 8})";
  const AnyModule modules[] = {Conv2d(3, 4, 3),
                               ConvTranspose2d(3, 4, 3),
                               BatchNorm2d(3),
                               MaxPool2d(2),
                               AvgPool2d(2),
                               AdaptiveAvgPool2d(2),
                               GlobalAvgPool2d(),
                               Upsample({.scale = 2.0}),
                               resnet18(),
                               resnet20({.layout = Layout::kNHWC}),
                               Sequential(Conv2d(3, 4, 3), ReLU())};
  for (const AnyModule& module : modules) {
    const std::string message = message_of([&] { module(image); });
    EXPECT_TRUE(message.ends_with(expected)) << to_string(module) << ": " << message;
  }
  EXPECT_EQ(resnet20({.width = 2})(ops::reshape(image, {1, 3, 8, 8})).shape(), (Shape{1, 10}));
}

TEST(LayersTest, ParametersCanBeCheckedAgainstFiniteDifferences) {
  const Sequential model(Conv2d(2, 3, 2), BatchNorm2d(3), GlobalAvgPool2d(), Linear(3, 2));
  model.to(DType::kFloat64);
  const Tensor x = ops::cast(floats({3, 2, 4, 4}, 0), DType::kFloat64);
  const std::vector<Parameter> parameters = model.parameters();
  const State before = model.state();
  parameters[0].tensor().set_grad(Tensor::full(parameters[0].shape(), 7.0, DType::kFloat64));
  const auto run = [&] { return std::vector<Tensor>{model(x)}; };
  const GradcheckResult result = gradcheck(run, {parameters.begin(), parameters.end()});
  EXPECT_TRUE(result.passed) << result.message;
  EXPECT_EQ(parameters[0].grad().to_vector<double>()[0], 7.0) << "gradients are as before";
  EXPECT_FALSE(parameters[1].grad().defined());
  for (const Parameter& parameter : parameters) {
    EXPECT_EQ(parameter.canonical().to_vector<double>(), before.at(parameter.name()).to_vector<double>());
  }

  // A module reads its own parameters, whatever the function is given.
  const auto ignores = [&](const std::vector<Tensor>&) { return run(); };
  const GradcheckResult misled = gradcheck(ignores, {parameters[0]});
  EXPECT_FALSE(misled.passed);
  EXPECT_NE(misled.message.find("no gradient reached it but finite differences give"), std::string::npos)
      << misled.message;
  EXPECT_TRUE(misled.message.ends_with(
      "for tensors that it reads by itself, such as a module's parameters, give gradcheck a function without "
      "arguments"))
      << misled.message;
}

TEST(LayersTest, TheSeedAloneDecidesWhateverTheLayout) {
  manual_seed(3);
  const Conv2d first(4, 6, 3);
  manual_seed(3);
  const Conv2d last(4, 6, 3, {.layout = Layout::kNHWC});
  EXPECT_EQ(first.state().at("weight").to_vector<float>(), last.state().at("weight").to_vector<float>());
  EXPECT_NE(Conv2d(4, 6, 3).state().at("weight").to_vector<float>(),
            first.weight.tensor().to_vector<float>());
}

TEST(LayersTest, LinearMultipliesByTheTransposedWeight) {
  const Linear layer(2, 2);
  layer.weight.assign(Tensor::from_values<float>({1, 2, 3, 4}, {2, 2}));
  layer.bias.assign(Tensor::from_values<float>({10, 20}, {2}));
  expect_near<float>(layer(Tensor::from_values<float>({1, -1}, {1, 2})), {9, 19}, 1e-6);
  const Linear plain(2, 1, {.bias = false});
  plain.weight.assign(Tensor::from_values<float>({1, 2}, {1, 2}));
  expect_near<float>(plain(Tensor::from_values<float>({3, 4}, {1, 2})), {11}, 1e-6);
}

TEST(LayersTest, LinearMayKeepFloat32) {
  const Linear kept(3, 2, {.keep_float32 = true}), plain(3, 2, {.bias = false, .keep_float32 = true});
  EXPECT_EQ(to_string(kept), "Linear(3, 2, float32)");
  EXPECT_EQ(to_string(plain), "Linear(3, 2, no bias, float32)");
  // What float16 cannot tell from 1 and 4.
  kept.weight.assign(Tensor::from_values<float>({1.0001f, 0, 0, 0, 0, 0}, {2, 3}));
  kept.bias.assign(Tensor::from_values<float>({0, 4.0001f}, {2}));
  const auto expect_kept = [&](DType dtype) {
    const Tensor x = Tensor::full({1, 3}, 1.0, dtype).set_requires_grad(true);
    const Tensor y = kept(x);
    EXPECT_EQ(y.dtype(), DType::kFloat32);
    expect_near<float>(y, {1.0001f, 4.0001f}, 1e-7);
    backward(y, {.gradient = Tensor::full({1, 2}, 1.0)});
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_EQ(kept.weight.grad().dtype(), DType::kFloat32);
  };
  kept.to(DType::kFloat16);
  expect_kept(DType::kFloat16);
  kept.to_mixed(DType::kBFloat16);
  EXPECT_FALSE(kept.weight.is_mixed());
  expect_kept(DType::kBFloat16);
  kept.to(DType::kFloat64);
  EXPECT_EQ(kept(Tensor::zeros({1, 3}, DType::kFloat64)).dtype(), DType::kFloat64);
}

TEST(LayersTest, BatchNormTracksOnlyInTraining) {
  const BatchNorm1d norm(2, {.momentum = 0.5});
  const Tensor x = Tensor::from_values<float>({1, 10, 3, 30}, {2, 2});
  expect_near<float>(norm(x), {-1, -1, 1, 1}, 1e-4);
  // Half of the start (0 and 1) and half of the batch: means 2 and 20, unbiased variances 2 and 200.
  expect_near<float>(norm.running_mean, {1, 10}, 1e-6);
  expect_near<float>(norm.running_var, {1.5f, 100.5f}, 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.tensor().item(), 1);
  norm.eval();
  expect_near<float>(norm(x), {0, 0, 2 / std::sqrt(1.5f), 20 / std::sqrt(100.5f)}, 1e-4);
  EXPECT_EQ(norm.num_batches_tracked.tensor().item(), 1);
  EXPECT_EQ(message_of([&] {
              norm(floats({2, 2, 3, 3}, 0));
            }),
            "[batch_norm1d] expected input of rank 2 but got shape (2, 2, 3, 3)");
  EXPECT_EQ(message_of([] {
              BatchNorm2d(2)(floats({2, 2}, 0));
            }),
            "[batch_norm2d] expected input of rank 4 but got shape (2, 2)");
}

TEST(LayersTest, OldFilesMayLackTheCounterOfBatches) {
  const BatchNorm2d norm(2);
  State state = norm.state();
  EXPECT_EQ(state.size(), 5u);
  state.erase("num_batches_tracked");
  EXPECT_NO_THROW(norm.load_state(state));
}

TEST(LayersTest, PoolingUsesTheKernelAsStrideUnlessTold) {
  const Tensor x = floats({1, 2, 7, 6}, 0);
  EXPECT_EQ(MaxPool2d(2)(x).shape(), (Shape{1, 2, 3, 3}));
  EXPECT_EQ(MaxPool2d(3, {.stride = 2, .padding = 1})(x).shape(), (Shape{1, 2, 4, 3}));
  EXPECT_EQ(AvgPool2d({3, 2}, {.ceil_mode = true})(x).shape(), (Shape{1, 2, 3, 3}));
  EXPECT_EQ(GlobalAvgPool2d()(x).shape(), (Shape{1, 2}));
  EXPECT_EQ(GlobalAvgPool2d(Layout::kNHWC)(floats({1, 7, 6, 2}, 0)).shape(), (Shape{1, 2}));
}

TEST(LayersTest, PoolingTakesWhatPyTorchsTakes) {
  const Tensor x = floats({1, 2, 7, 6}, 0);
  EXPECT_EQ(MaxPool2d(3, {.stride = 1, .padding = {0, 1, 2, 1}, .dilation = 2})(x).shape(),
            (Shape{1, 2, 4, 5}));
  const Tensor mean = AvgPool2d(2)(x), sum = AvgPool2d(2, {.divisor = 1})(x);
  expect_near<float>(ops::affine(mean, 4.0, 0.0), sum.to_vector<float>(), 1e-6);
  EXPECT_EQ(message_of([] { AvgPool2d(2, {.dilation = 2}); }),
            "[avg_pool2d] expected no dilation but got 2x2");
  EXPECT_EQ(AdaptiveAvgPool2d({3, 5})(x).shape(), (Shape{1, 2, 3, 5}));
  EXPECT_EQ(AdaptiveAvgPool2d(1)(x).shape(), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(AdaptiveAvgPool2d(4, Layout::kNHWC)(floats({1, 7, 6, 2}, 0)).shape(), (Shape{1, 4, 4, 2}));
  EXPECT_EQ(message_of([] {
              AdaptiveAvgPool2d({0, 1});
            }),
            "[adaptive_avg_pool2d] expected an output of positive size but got 0x1");
}

TEST(LayersTest, PReLUScalesWhatIsNegative) {
  const PReLU activation(2);
  expect_near<float>(activation(Tensor::from_values<float>({-4, 3}, {1, 2})), {-1, 3}, 1e-6);
  expect_near<float>(PReLU(1, {.initial_slope = 0.5})(Tensor::from_values<float>({-4, 3}, {1, 2})), {-2, 3},
                     1e-6);
}

TEST(LayersTest, DropoutOnlyInTraining) {
  manual_seed(0);
  const Dropout dropout(0.25);
  const Tensor x = Tensor::full({10'000}, 3.0);
  const std::vector<float> dropped = dropout(x).to_vector<float>();
  const auto zeros = std::ranges::count(dropped, 0.0f);
  EXPECT_NEAR(static_cast<double>(zeros), 2500, 5 * std::sqrt(10'000 * 0.25 * 0.75));
  EXPECT_EQ(std::ranges::count(dropped, 4.0f), 10'000 - zeros);
  dropout.eval();
  EXPECT_TRUE(dropout(x).is_same(x));
  EXPECT_EQ(message_of([] { Dropout(1.0); }), "[dropout] expected a probability in [0, 1) but got 1");
}

TEST(LayersTest, FlattenReadsImagesAlikeInBothLayouts) {
  const Tensor first = Tensor::from_values<float>({0, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 2, 2});
  const Tensor last = Tensor::from_values<float>({0, 4, 1, 5, 2, 6, 3, 7}, {1, 2, 2, 2});
  EXPECT_EQ(Flatten()(first).shape(), (Shape{1, 8}));
  EXPECT_EQ(Flatten(Layout::kNHWC)(last).to_vector<float>(), Flatten()(first).to_vector<float>());
}

TEST(LayersTest, SequentialNumbersItsModules) {
  Sequential model(Linear(2, 3), ReLU());
  model.add(Sequential(Linear(3, 1)));
  EXPECT_EQ(model.size(), 3u);
  EXPECT_EQ(model.parameters()[2].name(), "2.0.weight");
  EXPECT_EQ(model(floats({4, 2}, 0)).shape(), (Shape{4, 1}));
  const Tensor x = floats({2}, 0);
  EXPECT_TRUE(Sequential()(x).is_same(x));
  EXPECT_TRUE(Identity()(x).is_same(x));
  const AnyModule any = true ? AnyModule(ReLU()) : AnyModule(PReLU(2));
  EXPECT_EQ(any(Tensor::from_values<float>({-1, 2}, {2})).to_vector<float>(), (std::vector<float>{0, 2}));
}

TEST(LayersTest, ActivationsAreTheirOps) {
  const Tensor x = Tensor::from_values<float>({-3, -0.5, 0, 0.5, 3, 8}, {2, 3});
  const auto values = [](const Tensor& y) { return y.to_vector<float>(); };
  EXPECT_EQ(values(LeakyReLU(0.2)(x)), values(ops::leaky_relu(x, 0.2)));
  EXPECT_EQ(values(LeakyReLU()(x)), values(ops::leaky_relu(x, 0.01)));
  EXPECT_EQ(values(ELU(1.5)(x)), values(ops::elu(x, 1.5)));
  EXPECT_EQ(values(ReLU6()(x)), (std::vector<float>{0, 0, 0, 0.5, 3, 6}));
  EXPECT_EQ(values(Mish()(x)), values(ops::mish(x)));
  EXPECT_EQ(values(Softplus(2)(x)), values(ops::softplus(x, 2)));
  EXPECT_EQ(values(Softmax(0)(x)), values(ops::softmax(x, 0)));
  EXPECT_EQ(message_of([] { Softplus(0); }), "[softplus] expected beta > 0 but got 0");
  EXPECT_EQ(fmt::format("{}", LeakyReLU(0.2)), "LeakyReLU(0.2)");
}

TEST(LayersTest, LayersOfFunctionsAreTheirOps) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Tensor x = floats({2, 4, 5, 4}, 1);
    const auto expect_same = [&](const Module& module, const Tensor& want) {
      module.to(layout);
      EXPECT_EQ(module(x).to_vector<float>(), want.to_vector<float>());
      EXPECT_EQ(module(x).shape(), want.shape());
    };
    expect_same(AdaptiveMaxPool2d({3, 2}), ops::adaptive_max_pool2d(x, {3, 2}, {.layout = layout}));
    expect_same(PixelShuffle(2), ops::pixel_shuffle(x, 2, {.layout = layout}));
    expect_same(InstanceNorm2d(4), ops::instance_norm(x, {}, {}, {.layout = layout}));
    InstanceNorm2d affine(4, {.epsilon = 0.1, .affine = true});
    affine.weight.assign(floats({4}, 2));
    affine.bias.assign(floats({4}, 3));
    expect_same(affine,
                ops::instance_norm(x, affine.weight, affine.bias, {.epsilon = 0.1, .layout = layout}));
    EXPECT_EQ(affine.parameter_count(), 8);
  }
  EXPECT_EQ(message_of([] {
              (void)InstanceNorm2d(3)(Tensor::zeros({1, 2, 4, 4}));
            }),
            "[instance_norm] expected images of 3 channels in NCHW but got shape (1, 2, 4, 4)");
  EXPECT_EQ(message_of([] {
              AdaptiveMaxPool2d({0, 1});
            }),
            "[adaptive_max_pool2d] expected an output of positive size but got 0x1");
  EXPECT_EQ(message_of([] { PixelShuffle(0); }), "[pixel_shuffle] expected a factor > 0 but got 0");
}

TEST(LayersTest, ConvolutionsOfOneAxis) {
  const Conv1d conv(4, 6, {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{6, 2, 3}));
  EXPECT_EQ(conv.bias.shape(), Shape{6});
  const Tensor x = floats({2, 4, 9}, 1);
  const Tensor want =
      ops::conv1d(x, conv.weight, conv.bias, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  EXPECT_EQ(conv(x).shape(), (Shape{2, 6, 4}));
  EXPECT_EQ(conv(x).to_vector<float>(), want.to_vector<float>());
  for (const float value : conv.weight.tensor().to_vector<float>())
    EXPECT_LE(std::abs(value), 1 / std::sqrt(6.0f));  // as PyTorch draws them: of 2 * 3 inputs
  EXPECT_FALSE(Conv1d(1, 1, {.kernel = 2, .bias = false}).bias.defined());
  EXPECT_EQ(message_of([] { Conv1d(3, 4, {.groups = 2}); }),
            "[conv1d] expected channel counts that are positive multiples of 2 groups but got 3 in, 4 out");
  EXPECT_EQ(message_of([] { Conv1d(1, 1, {.kernel = 0}); }),
            "[conv1d] expected a kernel of positive size but got 0");
}

TEST(LayersTest, DropoutOfChannelsTakesWholeOnes) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const bool last = layout == Layout::kNHWC;
    const Dropout2d dropout(0.25, layout);
    const int64_t samples = 40, channels = 50;
    const Tensor x =
        Tensor::full(last ? Shape{samples, 2, 3, channels} : Shape{samples, channels, 2, 3}, 1.0);
    const Tensor y = last ? ops::permute(dropout(x), {0, 3, 1, 2}) : dropout(x);
    const std::vector<float> values = y.to_vector<float>();
    int64_t dropped = 0;
    for (int64_t c = 0; c < samples * channels; ++c) {
      const auto first = values.begin() + c * 6;
      ASSERT_TRUE(std::all_of(first, first + 6, [&](float value) { return value == *first; }));
      ASSERT_TRUE(*first == 0.0f || std::abs(*first - 1 / 0.75f) < 1e-6f) << *first;
      dropped += *first == 0.0f ? 1 : 0;
    }
    // 500 of 2,000 are expected, with a standard deviation of 19.
    EXPECT_NEAR(static_cast<double>(dropped), 500.0, 6 * 19.4);
    dropout.eval();
    EXPECT_EQ(dropout(x).to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(message_of([] { Dropout2d(1.0); }), "[dropout2d] expected a probability in [0, 1) but got 1");
  EXPECT_EQ(message_of([] {
              Dropout2d()(Tensor::zeros({2, 3}));
            }),
            "[dropout2d] expected images of rank 4 but got shape (2, 3)");
}

TEST(LayersTest, UnflattenIsTheInverseOfFlatten) {
  const Tensor x = floats({2, 3, 4, 5}, 3);
  EXPECT_EQ(Unflatten(1, {3, 4, 5})(Flatten()(x)).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(Unflatten(-1, {3, -1, 5})(Flatten()(x)).shape(), x.shape());
  EXPECT_EQ(Unflatten(0, {2, 1})(x).shape(), (Shape{2, 1, 3, 4, 5}));
  EXPECT_THROW(Unflatten(1, {7, -1})(x), InvalidArgument);
  EXPECT_THROW(Unflatten(4, {1})(x), InvalidArgument);
}

TEST(LayersTest, PaddingOfImagesInBothLayouts) {
  const Tensor x = floats({2, 3, 4, 5}, 4);
  const Padding2d padding(1, 2, 3, 0);
  const Pad2d pad(padding, {.mode = ops::PadMode::kReplicate});
  const Tensor y = pad(x);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 7, 8}));
  const Pad2d last(padding, {.mode = ops::PadMode::kReplicate, .layout = Layout::kNHWC});
  EXPECT_EQ(ops::permute(last(ops::permute(x, {0, 2, 3, 1})), {0, 3, 1, 2}).to_vector<float>(),
            y.to_vector<float>());
  EXPECT_EQ(Pad2d(1, {.value = 7})(x).to_vector<float>().front(), 7.0f);
}

TEST(LayersTest, EmbeddingLooksUpRowsThatAreTrained) {
  const Embedding table(10, 4);
  const Tensor indices = Tensor::from_values<int64_t>({3, 3, 9}, {3});
  const Tensor rows = table(indices);
  EXPECT_EQ(rows.shape(), (Shape{3, 4}));
  backward(ops::sum(rows));
  const std::vector<float> gradient = table.weight.grad().to_vector<float>();
  for (size_t row = 0; row < 10; ++row)
    EXPECT_EQ(gradient[row * 4], row == 3 ? 2.0f : row == 9 ? 1.0f : 0.0f) << row;
  EXPECT_EQ(message_of([] { Embedding(0, 4); }), "[embedding] expected a positive size but got 0 x 4");
}

/// Adds up what a list of modules makes of x.
class Branches : public Module {
 public:
  Branches() : branches(child("branches", ModuleList({Linear(3, 2), Linear(3, 2)}))) {}
  Tensor forward(const Tensor& x) const override {
    Tensor sum = Tensor::zeros({x.size(0), 2});
    for (const AnyModule& branch : branches) sum = sum + branch(x);
    return sum;
  }
  ModuleList branches;
};

TEST(LayersTest, AListOfModulesIsTrainedSavedAndCloned) {
  const Branches model;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"branches.0.weight", "branches.0.bias", "branches.1.weight",
                                             "branches.1.bias"}));
  const Tensor x = floats({4, 3}, 5);
  const std::vector<float> before = model(x).to_vector<float>();
  const Branches copy = clone(model);
  EXPECT_EQ(copy(x).to_vector<float>(), before);
  model.parameters().front().assign(Tensor::zeros({2, 3}));
  EXPECT_EQ(copy(x).to_vector<float>(), before);
  EXPECT_NE(model(x).to_vector<float>(), before);
  EXPECT_EQ(copy.branches.size(), 2u);
}

}  // namespace
}  // namespace sinter::nn
