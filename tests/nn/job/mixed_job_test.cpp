// Jobs in mixed precision train as eager code does with a model that was made mixed.
#include <cmath>

#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/tensor/closeness.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

struct Count {
  size_t casts = 0, of_weights = 0, permutations = 0;
};

/// What the program of a job's last step has.
Count count(const TrainJob& job) {
  Count count;
  for (const ProgramCall& call : job.program().calls()) {
    count.permutations += call.node->traits().role == Role::kPermutation ? 1u : 0u;
    if (call.node->traits().role != Role::kCast) continue;
    ++count.casts;
    count.of_weights += call.node->input(0)->root().kind == GraphValue::Kind::kLeaf ? 1u : 0u;
  }
  return count;
}

std::string kinds_of(const State& state) {
  std::string text;
  for (const auto& [name, value] : state)
    text += fmt::format("{} {} {}\n", name, value.dtype(), value.shape());
  return text;
}

/// Trains copies of a model by a mixed job and by eager code in mixed precision. Losses agree within
/// `tolerance` of 1 + loss; with 0 all is the same, bit for bit.
template <class Model>
void expect_equal_training(const Model& model, const Shape& image, int64_t classes, DType dtype, int steps,
                           double tolerance, const passes::PipelineOptions& passes) {
  const Model eager = clone(model), traced = clone(model);
  eager.to_mixed(dtype);
  const SGDOptions options{.momentum = 0.9, .weight_decay = 5e-4};
  SGD eager_sgd(eager.parameters(), options), job_sgd(traced.parameters(), options);
  GradScaler scaler(GradScaler::options_for(dtype));
  const CrossEntropyLoss loss_function{.label_smoothing = 0.1};
  TrainJob job(traced, loss_function, job_sgd, {.precision = dtype, .passes = passes});
  for (int i = 0; i < steps; ++i) {
    const Tensor x = floats(image, i + 1), y = labels(image[0], classes, i);
    eager_sgd.zero_grad();
    const Tensor loss = loss_function(eager(ops::cast(x, dtype)), y);
    if (dtype == DType::kFloat16) {
      backward(scaler.scale(loss));
      scaler.step(eager_sgd, 0.02);
    } else {
      backward(loss);
      eager_sgd.step(0.02);
    }
    const Tensor job_loss = job.step(x, y, 0.02);
    ASSERT_EQ(job_loss.dtype(), DType::kFloat32);
    ASSERT_EQ(job.outputs()[0].dtype(), DType::kFloat32);
    ASSERT_NEAR(job_loss.item(), loss.item(), tolerance * (1.0 + std::abs(loss.item()))) << "step " << i;
  }
  EXPECT_EQ(kinds_of(traced.state()), kinds_of(eager.state()));
  EXPECT_EQ(kinds_of(job_sgd.state()), kinds_of(eager_sgd.state()));
  if (tolerance == 0.0) {
    EXPECT_EQ(differences(traced.state(), eager.state()), "");
    EXPECT_EQ(differences(job_sgd.state(), eager_sgd.state()), "");
    if (dtype == DType::kFloat16) {
      EXPECT_EQ(differences(job.scaler()->state(), scaler.state()), "");
    }
  }
  EXPECT_EQ(count(job).of_weights, 0u) << job.report();
}

/// Half a unit of the last place, some tens of times: a fused normalisation rounds once where eager code does
/// so for each of its parts.
double tolerance_of(DType dtype) {
  return dtype == DType::kFloat16 ? 0x1p-11 * 20 : 0x1p-8 * 10;
}

const passes::PipelineOptions kUnfused{.without = {"fuse_normalization"}};

TEST(MixedJob, TrainsAResNetAsEagerCodeDoes) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
    expect_equal_training(model, {4, 3, 16, 16}, 10, dtype, 20, 0.0, kUnfused);
    expect_equal_training(model, {4, 3, 16, 16}, 10, dtype, 4, tolerance_of(dtype), {});
  }
}

struct Varied : Module {
  Conv2d first = child("first", Conv2d(3, 8, 3, {.layout = Layout::kNCHW}));
  PReLU slopes = child("slopes", PReLU(8, {.layout = Layout::kNCHW}));
  GroupNorm groups = child("groups", GroupNorm(2, 8, {.layout = Layout::kNCHW}));
  ConvTranspose2d transposed =
      child("transposed", ConvTranspose2d(8, 6, 3, {.stride = 2, .layout = Layout::kNCHW}));
  BatchNorm2d norm = child("norm", BatchNorm2d(6, {.layout = Layout::kNCHW}));
  GlobalAvgPool2d pool = child("pool", GlobalAvgPool2d(Layout::kNCHW));
  LayerNorm features = child("features", LayerNorm(6));
  Linear head = child("head", Linear(6, 5));
  Tensor forward(const Tensor& x) const override {
    return head(features(pool(ops::relu(norm(transposed(groups(slopes(first(x)))))))));
  }
};

TEST(MixedJob, TrainsOtherLayersAsEagerCodeDoes) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Varied model;
    expect_equal_training(model, {8, 3, 8, 8}, 5, dtype, 20, 0.0, kUnfused);
    expect_equal_training(model, {8, 3, 8, 8}, 5, dtype, 20, tolerance_of(dtype), {});
  }
}

TEST(MixedJob, KeepsNoCastOfWeightsAndFewOthers) {
  const ResNet model = resnet50({.classes = 10, .width = 8, .layout = Layout::kNCHW});
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = DType::kFloat16, .layout = Layout::kNHWC});
  job.step(floats({2, 3, 64, 64}, 1), labels(2, 10, 1), 0.01);
  const Count with = count(job);
  // Of the images, the logits and their gradient.
  EXPECT_EQ(with.casts, 3u) << job.report();
  EXPECT_EQ(with.of_weights, 0u);
  // Of the images, and of 17 filters that are not 1 x 1, there and back.
  EXPECT_EQ(with.permutations, 1u + 2 * 17) << job.report();
}

TEST(MixedJob, TakesInputsIn16Bit) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 4});
  SGD sgd(model.parameters(), {});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = DType::kBFloat16});
  job.step(ops::cast(floats({2, 3, 8, 8}, 1), DType::kBFloat16), labels(2, 10, 1), 0.01);
  EXPECT_EQ(count(job).casts, 2u) << job.report();  // of the logits and their gradient
}

TEST(MixedJob, HasAScalerOfItsOwnInFloat16) {
  const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 4}), other = clone(model);
  SGD sgd(model.parameters(), {});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = DType::kFloat16});
  ASSERT_NE(job.scaler(), nullptr);
  EXPECT_TRUE(job.scaler()->options().enabled);
  const Tensor x = floats({2, 3, 8, 8}, 1), y = labels(2, 10, 1);
  job.step(x, y, 0.01);
  EXPECT_FALSE(job.scaler()->state().empty());
  // Images that overflow: the step changes nothing but the scale.
  const double scale = job.scaler()->scale();
  State before;
  for (const Parameter& parameter : model.parameters()) before[parameter.name()] = parameter.canonical();
  job.step(Tensor::full({2, 3, 8, 8}, INFINITY), y, 0.01);
  EXPECT_EQ(job.scaler()->scale(), scale / 2);
  State after;
  for (const Parameter& parameter : model.parameters()) after[parameter.name()] = parameter.canonical();
  EXPECT_EQ(differences(before, after), "");

  // Another job goes on from its state.
  SGD other_sgd(other.parameters(), {});
  GradScaler given;
  TrainJob with_given(other, CrossEntropyLoss(), other_sgd, {.precision = DType::kFloat16, .scaler = &given});
  EXPECT_EQ(with_given.scaler(), &given);
  TrainJob resumed(other, CrossEntropyLoss(), other_sgd, {.precision = DType::kFloat16});
  resumed.scaler()->load_state(job.scaler()->state());
  resumed.step(x, y, 0.01);
  EXPECT_EQ(resumed.scaler()->scale(), scale / 2);

  TrainJob bfloat(other, CrossEntropyLoss(), other_sgd, {.precision = DType::kBFloat16});
  EXPECT_EQ(bfloat.scaler(), nullptr);
  EXPECT_EQ(
      message_of([&] { TrainJob(other, CrossEntropyLoss(), other_sgd, {.precision = DType::kFloat32}); }),
      "[train_job] expected a precision of float16 or bfloat16 but got float32");
}

TEST(MixedJob, TakesTurnsWithEagerSteps) {
  const DType dtype = DType::kBFloat16;
  const Varied model, mirror = clone(model);
  SGD sgd(model.parameters(), {.momentum = 0.9}), mirror_sgd(mirror.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = dtype});
  mirror.to_mixed(dtype);
  const auto eager_step = [&](const Varied& net, SGD& optimizer, int i) {
    optimizer.zero_grad();
    const Tensor loss = CrossEntropyLoss()(net(ops::cast(floats({8, 3, 8, 8}, i), dtype)), labels(8, 5, i));
    backward(loss);
    optimizer.step(0.02);
    return loss.item();
  };
  for (int i = 0; i < 10; ++i) {
    const double expected = eager_step(mirror, mirror_sgd, i);
    const double loss = i % 3 == 1 ? eager_step(model, sgd, i)
                                   : job.step(floats({8, 3, 8, 8}, i), labels(8, 5, i), 0.02).item();
    EXPECT_NEAR(loss, expected, tolerance_of(dtype) * (1.0 + expected)) << "step " << i;
  }
  EXPECT_EQ(job.compilations(), 1);
  // A model that was made float32 meanwhile is made mixed again.
  model.to(DType::kFloat32);
  job.step(floats({8, 3, 8, 8}, 1), labels(8, 5, 1), 0.02);
  EXPECT_EQ(job.compilations(), 2);
  EXPECT_TRUE(model.first.weight.is_mixed());
  EXPECT_EQ(count(job).of_weights, 0u);
}

/// float16 does not have a mask's -1e9, nor the buffer's 1e5.
struct Masked : Module {
  const Tensor mask = Tensor::from_values<bool>({true, true, true, false, true, false}, {2, 3});
  Linear linear = child("linear", Linear(4, 3));
  Buffer offset = buffer("offset", Tensor::full({3}, 1e5));

  Tensor forward(const Tensor& x) const override {
    const Tensor weights = ops::softmax(linear(x).masked_fill(mask, -1e9), 1);
    return weights + (linear(x) + offset.tensor()) * 1e-5;
  }
};

TEST(MixedJob, MasksAndBuffersBeyondFloat16AreWhatTheyAre) {
  const Masked model;
  const Tensor x = floats({2, 4}, 1);
  const NoGrad no_grad;
  const Tensor expected = model(x);
  InferJob job(model, {.precision = DType::kFloat16});
  EXPECT_TRUE(ops::allclose(job(x), expected, {.rtol = 0.0, .atol = 2e-3}));
}

// Two networks that are trained in turns, each by a job that calls both.
TEST(MixedJob, CallsOtherMixedModels) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Sequential maker(Linear(8, 16), ReLU(), Linear(16, 12)),
        critic(Linear(12, 16), ReLU(), Linear(16, 1));
    const Sequential wide_maker = clone(maker), wide_critic = clone(critic);
    const auto losses_of = [](const Sequential& make, const Sequential& judge,
                              std::optional<DType> precision) {
      SGD of_maker(make.parameters()), of_critic(judge.parameters());
      TrainJob critic_job(judge, of_critic,
                          [&](const Tensor& real, const Tensor& z) {
                            return judge(make(z).detach()).mean() - judge(real).mean();
                          },
                          {.precision = precision});
      TrainJob maker_job(make, of_maker, [&](const Tensor& z) { return -judge(make(z)).mean(); },
                         {.precision = precision});
      std::vector<double> losses;
      for (int i = 0; i < 4; ++i) {
        losses.push_back(critic_job.step({floats({4, 12}, i), floats({4, 8}, i + 10)}, 0.1).item());
        losses.push_back(maker_job.step({floats({4, 8}, i + 20)}, 0.1).item());
      }
      InferJob both(judge, [&](const Tensor& z) { return judge(make(z)).mean(); }, {.precision = precision});
      losses.push_back(both(floats({4, 8}, 30)).item());
      return losses;
    };
    const std::vector<double> expected = losses_of(wide_maker, wide_critic, {});
    const std::vector<double> got = losses_of(maker, critic, dtype);
    EXPECT_TRUE(maker.parameters()[0].is_mixed());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.03) << i;
  }
}

TEST(MixedJob, ReadsMembersOfOtherMixedModelsInFloat32) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Linear model(8, 2), table(4, 8), wide_table = clone(table);
    table.to_mixed(dtype);
    const auto result = [&model](const Linear& of) {
      return [&model, &of](const Tensor& x) { return model(ops::linear(x, of.weight, of.bias)).mean(); };
    };
    const Tensor x = floats({4, 4}, 1);
    SGD sgd(model.parameters());
    const double expected = result(wide_table)(x).item();
    InferJob infer(model, result(table), {.precision = dtype});
    EXPECT_NEAR(infer(x).item(), expected, 0.01);
    TrainJob train(model, sgd, result(table), {.precision = dtype});
    EXPECT_NEAR(train.step({x}, 0.1).item(), expected, 0.01);
  }
}

TEST(MixedJob, LeavesFrozenParametersAlone) {
  const Varied model;
  model.first.weight.tensor().set_requires_grad(false);
  SGD sgd(model.parameters(), {});
  TrainJob job(model, CrossEntropyLoss(), sgd, {.precision = DType::kBFloat16});
  const Tensor before = model.first.weight.canonical(), moving = model.head.weight.canonical();
  job.step(floats({8, 3, 8, 8}, 1), labels(8, 5, 1), 0.02);
  EXPECT_TRUE(same_bits(model.first.weight.canonical(), before));
  EXPECT_FALSE(same_bits(model.head.weight.canonical(), moving));
}

}  // namespace
}  // namespace sinter::nn
