// Layers: shapes, modes and members; the maths is tested with the ops.
#include <algorithm>

#include <sinter/nn/nn.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;

TEST(LayersTest, ConvolutionShapesInBothLayouts) {
  const Conv2d conv(4, 6, {.kernel = {3, 5}, .stride = 2, .padding = {1, 2}, .groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{6, 2, 3, 5}));
  EXPECT_EQ(conv.bias.shape(), Shape{6});
  EXPECT_EQ(conv(floats({2, 4, 9, 8}, 0)).shape(), (Shape{2, 6, 5, 4}));
  const Conv2d last(4, 6, {.kernel = 3, .bias = false, .layout = Layout::kNHWC});
  EXPECT_FALSE(last.bias.defined());
  EXPECT_EQ(last(floats({2, 9, 8, 4}, 0)).shape(), (Shape{2, 7, 6, 6}));
  EXPECT_EQ(message_of([] { Conv2d(4, 6, {.kernel = 3, .groups = 4}); }),
            "[conv2d] expected channel counts that are positive multiples of 4 groups but got 4 in, 6 out");
  EXPECT_EQ(message_of([] { Conv2d(4, 6, {.kernel = 0}); }),
            "[conv2d] expected a kernel of positive size but got 0 x 0");
}

TEST(LayersTest, TheSeedAloneDecidesWhateverTheLayout) {
  manual_seed(3);
  const Conv2d first(4, 6, {.kernel = 3});
  manual_seed(3);
  const Conv2d last(4, 6, {.kernel = 3, .layout = Layout::kNHWC});
  EXPECT_EQ(first.state().at("weight").to_vector<float>(), last.state().at("weight").to_vector<float>());
  EXPECT_NE(Conv2d(4, 6, {.kernel = 3}).state().at("weight").to_vector<float>(),
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
  EXPECT_EQ(MaxPool2d({.kernel = 2})(x).shape(), (Shape{1, 2, 3, 3}));
  EXPECT_EQ(MaxPool2d({.kernel = 3, .stride = 2, .padding = 1})(x).shape(), (Shape{1, 2, 4, 3}));
  EXPECT_EQ(AvgPool2d({.kernel = {3, 2}, .ceil_mode = true})(x).shape(), (Shape{1, 2, 3, 3}));
  EXPECT_EQ(GlobalAvgPool2d()(x).shape(), (Shape{1, 2}));
  EXPECT_EQ(GlobalAvgPool2d(Layout::kNHWC)(floats({1, 7, 6, 2}, 0)).shape(), (Shape{1, 2}));
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

}  // namespace
}  // namespace sinter::nn
