// Jobs whose images are turned to another layout train as the untouched job does.
#include <cmath>
#include <functional>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/cumsum/cumsum.h>
#include <sinter/ops/flip/flip.h>
#include <sinter/ops/norm/group_norm.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/upsample/pixel_shuffle.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// max |a - b| / (1 + max |b|) over all tensors of two states.
double largest_difference(const State& a, const State& b) {
  double largest = a.size() == b.size() ? 0.0 : INFINITY;
  for (const auto& [name, value] : b) {
    if (!is_float(value.dtype())) continue;
    const std::vector<double> x = ops::cast(a.at(name), DType::kFloat64).to_vector<double>(),
                              y = ops::cast(value, DType::kFloat64).to_vector<double>();
    double difference = 0.0, size = 1.0;
    for (size_t i = 0; i < y.size(); ++i) {
      difference = std::max(difference, std::isnan(x[i] - y[i]) ? INFINITY : std::abs(x[i] - y[i]));
      size = std::max(size, 1.0 + std::abs(y[i]));
    }
    largest = std::max(largest, difference / size);
  }
  return largest;
}

/// Steps of one job as it is and of one that is turned, from the same weights. The turned program has at
/// most `most_permutations` permutations of images and their gradients.
template <class Model>
void expect_equal_training(const Model& model, Layout layout, const Shape& image, int64_t classes,
                           DType dtype, int steps, double tolerance, size_t most_permutations) {
  const Model plain = clone(model), turned = clone(model);
  for (const Model* each : {&plain, &turned}) each->to(dtype);
  const SGDOptions options{.momentum = 0.9, .weight_decay = 5e-4};
  SGD plain_sgd(plain.parameters(), options), turned_sgd(turned.parameters(), options);
  TrainJob plain_job(plain, CrossEntropyLoss(), plain_sgd),
      turned_job(turned, CrossEntropyLoss(), turned_sgd, {.layout = layout});
  for (int i = 0; i < steps; ++i) {
    const Tensor x = ops::cast(floats(image, i + 1), dtype), y = labels(image[0], classes, i);
    const double expected = ops::cast(plain_job.step(x, y, 0.01), DType::kFloat64).item();
    const double loss = ops::cast(turned_job.step(x, y, 0.01), DType::kFloat64).item();
    ASSERT_NEAR(loss, expected, tolerance * (1.0 + std::abs(expected))) << "step " << i;
  }
  EXPECT_LT(largest_difference(turned.state(), plain.state()), tolerance);
  EXPECT_LT(largest_difference(turned_sgd.state(), plain_sgd.state()), tolerance);
  EXPECT_EQ(turned_job.compilations(), 1);

  size_t convolutions = 0, permutations = 0;
  for (const ProgramCall& call : turned_job.program().calls()) {
    if (const auto* found = call.node->attributes.find<Layout>("layout")) {
      const bool is_image = call.node->outputs[0]->spec.shape.rank() == 4;
      EXPECT_TRUE(*found == layout || !is_image) << call.node->op->name();
      convolutions += call.node->op->name() == "conv2d" ? 1u : 0u;
    }
    permutations += call.node->traits().role == Role::kPermutation ? 1u : 0u;
  }
  EXPECT_GT(convolutions, 0u);
  EXPECT_LE(permutations, most_permutations) << turned_job.report();
}

/// 50 steps in float64, where rounding is far below what a wrong gradient makes, and the first 10 in float32:
/// a network of few channels and images makes so much of a rounding that float32 would tell nothing of later
/// ones.
template <class Model>
void expect_equal_training(const Model& model, Layout layout, const Shape& image, int64_t classes,
                           size_t most_permutations) {
  expect_equal_training(model, layout, image, classes, DType::kFloat64, 50, 1e-9, most_permutations);
  expect_equal_training(model, layout, image, classes, DType::kFloat32, 10, 1e-3, most_permutations);
}

TEST(TurnedJob, TrainsAResNetInEitherDirection) {
  manual_seed(5);  // whatever ran before
  // 19 filters of 3 x 3, each permuted with its gradient, and x.
  const ResNet first = resnet20({.classes = 10, .in_channels = 3, .width = 4, .layout = Layout::kNCHW});
  expect_equal_training(first, Layout::kNHWC, {4, 3, 12, 12}, 10, 2 * 19 + 1);
  const ResNet last = resnet20({.classes = 10, .in_channels = 3, .width = 4, .layout = Layout::kNHWC});
  expect_equal_training(last, Layout::kNCHW, {4, 12, 12, 3}, 10, 2 * 19 + 1);
}

struct Decoder : Module {
  Conv2d first = child("first", Conv2d(3, 8, 3, {.padding = 1, .layout = Layout::kNCHW}));
  PReLU slopes = child("slopes", PReLU(8, {.layout = Layout::kNCHW}));
  MaxPool2d pool = child("pool", MaxPool2d(2, {.layout = Layout::kNCHW}));
  Upsample up = child("up", Upsample({.mode = UpsampleMode::kBilinear, .layout = Layout::kNCHW}));
  ConvTranspose2d transposed =
      child("transposed", ConvTranspose2d(16, 6, 3, {.stride = 2, .layout = Layout::kNCHW}));
  BatchNorm2d norm = child("norm", BatchNorm2d(6, {.layout = Layout::kNCHW}));
  Conv2d last = child("last", Conv2d(6, 5, 1, {.layout = Layout::kNCHW}));
  Tensor forward(const Tensor& x) const override {
    const Tensor wide = slopes(first(x));
    const Tensor both = ops::concat({up(pool(wide)), wide}, 1);
    const Tensor large = ops::relu(norm(
        transposed(ops::pad(both, {{0, 0}, {0, 0}, {1, 1}, {1, 0}}, {.mode = ops::PadMode::kReplicate}))));
    return ops::mean(ops::softmax(last(large), 1), {2, 3}) * 5.0;
  }
};

TEST(TurnedJob, TrainsWhatResamplesJoinsPadsAndTransposes) {
  expect_equal_training(Decoder(), Layout::kNHWC, {3, 3, 8, 8}, 5, 2 * 2 + 1);
}

struct Normed : Module {
  Conv2d first = child("first", Conv2d(3, 8, 3, {.layout = Layout::kNCHW}));
  GroupNorm groups = child("groups", GroupNorm(2, 8, {.layout = Layout::kNCHW}));
  Conv2d second = child("second", Conv2d(8, 8, 3, {.stride = 2, .groups = 4, .layout = Layout::kNCHW}));
  LayerNorm channels = child("channels", LayerNorm(8));
  Conv2d third = child("third", Conv2d(8, 8, 3, {.layout = Layout::kNCHW}));
  AvgPool2d pool = child("pool", AvgPool2d(2, {.layout = Layout::kNCHW}));
  Flatten flatten = child("flatten", Flatten(Layout::kNCHW));
  Linear head = child("head", Linear(8, 5));
  Tensor forward(const Tensor& x) const override {
    const Tensor y = ops::relu(second(ops::relu(groups(first(x)))));
    const Tensor z = ops::permute(channels(ops::permute(y, {0, 2, 3, 1})), {0, 3, 1, 2});
    return head(flatten(pool(third(z))));
  }
};

TEST(TurnedJob, TrainsWhatNormalizesGroupsAndPixels) {
  // Three filters with gradients, x, and to and from the order in which groups are normalised, there and
  // back.
  expect_equal_training(Normed(), Layout::kNHWC, {3, 3, 12, 12}, 5, 2 * 3 + 1 + 4);
}

struct Rearranged : Module {
  Conv2d first = child("first", Conv2d(3, 8, 3, {.padding = 1, .layout = Layout::kNCHW}));
  Conv2d last = child("last", Conv2d(2, 3, 3, {.padding = 1, .layout = Layout::kNCHW}));
  Linear head = child("head", Linear(24, 5));
  Tensor forward(const Tensor& x) const override {
    const Tensor turned = ops::cumsum(ops::flip(first(x), {-1, 1}), 2);
    const Tensor larger = ops::pixel_shuffle(ops::adaptive_max_pool2d(turned, {4, 4}), 2);
    return head(ops::prod(1.0 + 0.1 * ops::instance_norm(last(larger)), {3}).flatten(1));
  }
};

TEST(TurnedJob, TrainsWhatFlipsSumsUpShufflesAndMultiplies) {
  // Two filters with gradients, x, and to and from the order in which pixels are shuffled and channels are
  // normalised and multiplied, there and back.
  expect_equal_training(Rearranged(), Layout::kNHWC, {3, 3, 9, 7}, 5, 2 * 2 + 1 + 20);
}

TEST(TurnedJob, FollowsEagerStepsAndGivesResultsAsTheModelDoes) {
  const Decoder model;
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.layout = Layout::kNHWC});
  const Tensor x = floats({3, 3, 8, 8}, 1), y = labels(3, 5, 1);
  job.step(x, y, 0.05);
  backward(CrossEntropyLoss()(model(x), y));
  sgd.step(0.05);
  const Decoder before = clone(model);
  job.step(x, y, 0.05);
  const Tensor expected = before(x);
  ASSERT_EQ(job.outputs()[0].shape(), expected.shape());
  expect_near(job.outputs()[0], expected.to_vector<float>(), 1e-5);
}

}  // namespace
}  // namespace sinter::nn
