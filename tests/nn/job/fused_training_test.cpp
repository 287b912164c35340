// Jobs with the rewrites of normalisations train as those without.
#include <algorithm>
#include <cmath>
#include <functional>

#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pool/pool.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

const std::vector<std::string> kRewrites = {"fuse_normalization", "sum_gradients", "choose_norm_backend"};

std::vector<double> values_of(const Tensor& tensor) {
  return ops::cast(tensor.detach().to(Device::cpu()), DType::kFloat64).to_vector<double>();
}

/// The largest |a - b| / (1 + |b|) of two tensors.
double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = values_of(a), of_b = values_of(b);
  double largest = of_a.size() == of_b.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < of_a.size() && i < of_b.size(); ++i) {
    const double each = std::abs(of_a[i] - of_b[i]) / (1.0 + std::abs(of_b[i]));
    largest = each <= largest ? largest : each;  // NaN too
    if (std::isnan(each)) return each;
  }
  return largest;
}

struct Tolerance {
  double first = 0.0;   ///< of the first loss, and of the state behind the first step
  double losses = 0.0;  ///< of all losses
};

/// On a CPU fused kernels round as the single ones do, but for PReLU; other devices need not.
Tolerance float32_on(Device device) {
  return device.is_cpu() ? Tolerance{1e-6, 1e-4} : Tolerance{1e-4, 1e-2};
}
constexpr Tolerance kFloat64{1e-13, 1e-10};

/// Moves every parameter by about a rounding.
void shake(const Module& model, int64_t seed) {
  const NoGrad no_grad;
  for (const Parameter& parameter : model.parameters()) {
    const Tensor values = parameter.tensor().detach();
    const Tensor moves = ops::cast(pattern(values.shape(), seed++), values.dtype()).to(values.device());
    const Tensor shaken = values + values * moves * 3e-7;
    copy_bytes(values.raw_data(), values.device(), shaken.raw_data(), shaken.device(),
               static_cast<size_t>(values.numel()) * size_of(values.dtype()));
  }
}

/// The batches that all copies of a model train on.
struct Batches {
  Shape image;
  int64_t classes;
  DType dtype;
  Device device;

  Tensor step(TrainJob& job, int number) const {
    return job.step(ops::cast(pattern(image, 100 + number % 5), dtype).to(device),
                    labels(image[0], classes, number % 5).to(device), 0.02);
  }
};

/// Whether rounding alone can take the losses of a model, which are `expected` without rewrites, as far apart
/// as `apart`: an activation that is a rounding away from zero falls on the other side, in every second
/// training of so few examples, and the losses jump. Twelve copies that begin a rounding aside have to show
/// it.
template <class Model>
bool is_rounding(const Model& model, const Batches& batches, const std::vector<Tensor>& expected,
                 double apart) {
  double largest = 0.0;
  for (int64_t copy = 0; copy < 12; ++copy) {
    const Model shaken = clone(model);
    shake(shaken, 1 + 1000 * copy);
    SGD sgd(shaken.parameters(), {.momentum = 0.9});
    TrainJob job(shaken, CrossEntropyLoss(), sgd, {.passes = {.without = kRewrites}});
    for (size_t i = 0; i < expected.size(); ++i)
      largest = std::max(largest, distance(batches.step(job, static_cast<int>(i)), expected[i]));
    if (8 * largest >= apart) return true;
  }
  ADD_FAILURE() << "rounding takes losses " << largest << " apart, the rewrites " << apart;
  return false;
}

/// Trains copies of a model by jobs, one of them with rewrites.
template <class Model>
void expect_same_training(const Model& model, const Shape& image, int64_t classes, int steps,
                          Tolerance tolerance, DType dtype = DType::kFloat32, size_t fused_at_least = 1) {
  const Model plain = clone(model), fused = clone(model);
  SGD plain_sgd(plain.parameters(), {.momentum = 0.9}), fused_sgd(fused.parameters(), {.momentum = 0.9});
  const CrossEntropyLoss loss;
  TrainJob plain_job(plain, loss, plain_sgd, {.passes = {.without = kRewrites}});
  TrainJob fused_job(fused, loss, fused_sgd);
  const Batches batches{image, classes, dtype, model.parameters().front().tensor().device()};
  double largest = 0.0;
  std::vector<Tensor> losses;
  for (int i = 0; i < steps; ++i) {
    const Tensor expected = batches.step(plain_job, i), actual = batches.step(fused_job, i);
    losses.push_back(ops::copy(expected));
    const double apart = distance(actual, expected);
    largest = std::max(largest, apart);
    if (i > 0) {
      if (apart > tolerance.losses) {
        ASSERT_EQ(dtype, DType::kFloat32) << "loss of step " << i << ": " << apart;
        ASSERT_TRUE(is_rounding(model, batches, losses, apart)) << "loss of step " << i;
        break;  // from here on the copies have nothing to do with each other
      }
      continue;
    }
    ASSERT_LE(apart, tolerance.first);
    // Parameters show the gradients, with buffers and momenta beside them.
    const State expected_state = plain.state(), actual_state = fused.state();
    for (const auto& [name, value] : expected_state)
      EXPECT_LE(distance(actual_state.at(name), value), tolerance.first) << name;
    const auto momenta = plain_sgd.tensors(), fused_momenta = fused_sgd.tensors();
    ASSERT_EQ(momenta.size(), fused_momenta.size());
    for (size_t k = 0; k < momenta.size(); ++k)
      EXPECT_LE(distance(fused_momenta[k].second, momenta[k].second), 10 * tolerance.first)
          << momenta[k].first;
  }
  ::testing::Test::RecordProperty("largest_distance", fmt::format("{:g}", largest));
  size_t fused_norms = 0;
  for (const ProgramCall& call : fused_job.program().calls())
    fused_norms += call.node->op->name() == "batch_norm_act";
  EXPECT_GE(fused_norms, fused_at_least) << fused_job.report();
}

Shape images(Layout layout, int64_t count, int64_t size) {
  return layout == Layout::kNCHW ? Shape{count, 3, size, size} : Shape{count, size, size, 3};
}

TEST(FusedTraining, IsThatOfAResNetWithoutFusion) {
  const Deterministic deterministic;  // of batches of six, other kernels' roundings grow large in fifty steps
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 4, .layout = layout});
      model.to(device);
      expect_same_training(model, images(layout, 6, 8), 10, 50, float32_on(device), DType::kFloat32, 19);
    }
  }
}

TEST(FusedTraining, IsThatOfBottlenecksWithoutFusion) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const ResNet model({.bottleneck = true, .blocks = {1, 1, 1}},
                       {.classes = 7, .width = 4, .layout = layout, .small_stem = true});
    expect_same_training(model, images(layout, 6, 8), 7, 50, float32_on(Device::cpu()), DType::kFloat32, 10);
  }
}

TEST(FusedTraining, AgreesToTheLastDigitsInFloat64) {
  const ResNet basic = resnet20({.classes = 5, .in_channels = 3, .width = 4});
  basic.to(DType::kFloat64);
  expect_same_training(basic, images(Layout::kNCHW, 4, 8), 5, 50, kFloat64, DType::kFloat64, 19);
  const ResNet bottlenecks({.bottleneck = true, .blocks = {1, 1}},
                           {.classes = 5, .width = 4, .small_stem = true});
  bottlenecks.to(DType::kFloat64);
  expect_same_training(bottlenecks, images(Layout::kNCHW, 4, 8), 5, 50, kFloat64, DType::kFloat64, 7);
}

TEST(FusedTraining, KeepsFrozenAndEvaluatedNorms) {
  const ResNet model({.bottleneck = true, .blocks = {1, 1}}, {.classes = 5, .width = 4, .small_stem = true});
  size_t norms = 0;
  for (const Parameter& parameter : model.parameters()) {
    // Of every second normalisation the parameters are frozen.
    if (parameter.tensor().rank() == 1 && parameter.name().find("bn") != std::string::npos && norms++ % 4 < 2)
      parameter.tensor().set_requires_grad(false);
  }
  ASSERT_GT(norms, 8U);
  expect_same_training(model, images(Layout::kNCHW, 6, 8), 5, 20, float32_on(Device::cpu()));
  model.stages[0].eval();
  expect_same_training(model, images(Layout::kNCHW, 6, 8), 5, 20, float32_on(Device::cpu()));
}

/// An iResNet block as in J. Deng et al., "ArcFace", CVPR 2019, with one normalisation called twice.
struct PReluNet : Module {
  Conv2d stem = child("stem", Conv2d(3, 6, 3, {.padding = 1}));
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(6));
  Conv2d conv1 = child("conv1", Conv2d(6, 6, 3, {.padding = 1}));
  BatchNorm2d bn2 = child("bn2", BatchNorm2d(6));
  PReLU prelu = child("prelu", PReLU(6));
  Conv2d conv2 = child("conv2", Conv2d(6, 6, 3, {.padding = 1}));
  BatchNorm2d bn3 = child("bn3", BatchNorm2d(6));
  PReLU slope = child("slope", PReLU(1));
  Linear fc = child("fc", Linear(6, 4));
  bool twice;
  explicit PReluNet(bool shares) : twice(shares) {}
  Tensor forward(const Tensor& images) const override {
    const Tensor x = stem(images);
    const Tensor y = bn3(conv2(prelu(bn2(conv1(bn1(x))))));
    const Tensor shortcut = (twice ? bn3 : bn1)(x);
    return fc(ops::global_avg_pool2d(slope(y + shortcut), {.layout = Layout::kNCHW}));
  }
};

TEST(FusedTraining, KeepsPRelusAndNormsThatAreCalledTwice) {
  for (const bool twice : {false, true}) {
    const PReluNet model(twice);
    expect_same_training(model, images(Layout::kNCHW, 6, 8), 4, 50, float32_on(Device::cpu()),
                         DType::kFloat32, 2);
    model.to(DType::kFloat64);
    expect_same_training(model, images(Layout::kNCHW, 6, 8), 4, 50, kFloat64, DType::kFloat64, 2);
  }
}

TEST(FusedTraining, PassesTheChecksOfPassesOnData) {
  for (const bool twice : {false, true}) {
    const PReluNet model(twice);
    SGD sgd(model.parameters(), {.momentum = 0.9});
    TrainJob job(model, CrossEntropyLoss(), sgd, {.passes = {.verify = true}});
    EXPECT_NO_THROW(job.step(floats({4, 3, 8, 8}, 1), labels(4, 4, 1), 0.01));
  }
}

/// The gradients of one step, behind each other, as the momenta show them.
std::vector<double> gradients_of(const ResNet& model, DType dtype, const std::vector<std::string>& without) {
  const ResNet copy = clone(model);
  copy.to(dtype);
  SGD sgd(copy.parameters(), {.momentum = 0.9});
  TrainJob job(copy, CrossEntropyLoss(), sgd, {.passes = {.without = without}});
  const Device device = copy.parameters().front().tensor().device();
  job.step(ops::cast(floats({6, 3, 8, 8}, 1), dtype).to(device), labels(6, 10, 1).to(device), 0.02);
  std::vector<double> all;
  for (const auto& [name, momentum] : sgd.tensors()) {
    const std::vector<double> values = values_of(momentum);
    if (name.find("momentum") != std::string::npos) all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double root_mean_square_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// What is fused is rounded once, and not after each of its parts: over several models it is as near to
// float32 as what is not, and it is not the same.
TEST(FusedTraining, RoundsNoMoreThanSingleCallsIn16Bit) {
  constexpr uint64_t kModels = 41;
  for (const Device device : devices_here()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      // A single model's errors are chance: from 0.2 to 8 times as large.
      std::vector<double> ratios;
      for (uint64_t seed = 0; seed < kModels; ++seed) {
        manual_seed(seed);
        const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 4});
        model.to(dtype);  // so that all begin with the same values
        model.to(device);
        const std::vector<double> exact = gradients_of(model, DType::kFloat32, kRewrites);
        const std::vector<double> plain = gradients_of(model, dtype, kRewrites);
        const std::vector<double> fused = gradients_of(model, dtype, {});
        ASSERT_GT(exact.size(), 10000U);
        EXPECT_GT(root_mean_square_of_difference(fused, plain), 0.0) << "nothing was fused";
        ratios.push_back(root_mean_square_of_difference(fused, exact) /
                         root_mean_square_of_difference(plain, exact));
      }
      std::ranges::sort(ratios);
      EXPECT_GT(ratios.front(), 0.0);
      EXPECT_LE(ratios[kModels / 2], 1.15) << fmt::format("{} on {}", dtype, device);
      RecordProperty(fmt::format("{}_ratio", dtype), fmt::format("{:g}", ratios[kModels / 2]));
    }
  }
}

TEST(FusedTraining, FusesWhatBecameMixedAndChannelsLast) {
  const ResNet model({.bottleneck = true, .blocks = {1, 1}}, {.classes = 5, .width = 4, .small_stem = true});
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = DType::kBFloat16, .layout = Layout::kNHWC});
  job.step(floats({4, 3, 8, 8}, 1), labels(4, 5, 1), 0.01);
  int fused = 0;
  for (const ProgramCall& call : job.program().calls()) {
    EXPECT_NE(call.node->op->name(), "batch_norm") << job.report();
    if (call.node->op->name() != "batch_norm_act") continue;
    ++fused;
    EXPECT_EQ(call.node->input(0)->spec.dtype, DType::kBFloat16);
    EXPECT_EQ(*call.node->attributes.find<Layout>("layout"), Layout::kNHWC);
  }
  EXPECT_EQ(fused, 7) << job.report();
}

}  // namespace
}  // namespace sinter::nn
