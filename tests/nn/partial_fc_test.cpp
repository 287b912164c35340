// PartialFC: with all classes it is the full loss bit for bit; with a part of them, the loss over these, and
// nothing else moves.
#include <algorithm>
#include <cmath>
#include <set>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/slice/slice.h>

#include "nn/device_test_support.h"
#include "nn/job/job_test_support.h"
#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::floats;
using testing::message_of;
using testing::same_bits;

constexpr int64_t kDimensions = 8;
constexpr int64_t kClasses = 100;

class PartialFcTest : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, PartialFcTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

/// A backbone of one layer beside the centres.
struct Face {
  Linear backbone = seeded_backbone();
  PartialFC centres;
  SGD sgd;

  explicit Face(const PartialFCOptions& options, Device device = Device::cpu())
      : centres(seeded(options)), sgd(trained(device), {.momentum = 0.9, .weight_decay = 0.01}) {}

  static Linear seeded_backbone() {
    manual_seed(4);
    return Linear(6, kDimensions);
  }
  static PartialFC seeded(const PartialFCOptions& options) {
    manual_seed(5);
    return PartialFC(kDimensions, kClasses, options);
  }
  std::vector<Parameter> trained(Device device) {
    backbone.to(device);
    centres.to(device);
    std::vector<Parameter> all = backbone.parameters();
    const std::vector<Parameter> head = add_prefix("head.", centres.head().parameters());
    all.insert(all.end(), head.begin(), head.end());
    return all;
  }
};

std::vector<int64_t> labels_of_step(int64_t step) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 10; ++i) labels.push_back((i * 37 + step * 11 + i * i) % kClasses);
  return labels;
}

Tensor train_step(Face& face, int64_t step) {
  const Device device = face.centres.head().weight.tensor().device();
  const Tensor rows = face.centres.sample(labels_of_step(step), face.sgd);
  const Tensor loss = face.centres.head()(face.backbone(floats({10, 6}, step).to(device)), rows);
  face.sgd.zero_grad();
  backward(loss);
  face.sgd.step(0.1);
  face.centres.update(face.sgd);
  return loss;
}

std::vector<float> row(const Tensor& table, int64_t index) {
  const std::vector<float> all = table.to_vector<float>();
  const auto begin = all.begin() + index * kDimensions;
  return {begin, begin + kDimensions};
}

TEST_P(PartialFcTest, WithAllClassesItIsTheFullLossBitForBit) {
  const testing::Deterministic deterministic;
  Face face({}, device());
  manual_seed(5);
  const MarginHead head(kDimensions, kClasses);
  const Linear backbone = clone(face.backbone);
  head.to(device());
  std::vector<Parameter> all = backbone.parameters();
  const std::vector<Parameter> weight = add_prefix("head.", head.parameters());
  all.insert(all.end(), weight.begin(), weight.end());
  SGD sgd(all, {.momentum = 0.9, .weight_decay = 0.01});
  EXPECT_FALSE(face.centres.is_partial());
  for (int64_t step = 0; step < 3; ++step) {
    const Tensor labels = Tensor::from_values(labels_of_step(step), {10}, device());
    const Tensor expected = head(backbone(floats({10, 6}, step).to(device())), labels);
    sgd.zero_grad();
    backward(expected);
    sgd.step(0.1);
    EXPECT_TRUE(same_bits(train_step(face, step), expected)) << step;
  }
  EXPECT_EQ(testing::differences(face.centres.state(), head.state()), "");
}

TEST_P(PartialFcTest, OnlyTheChosenCentresAndTheirMomentaMove) {
  Face face({.sample_rate = 0.2, .min_classes = 10, .seed = 3}, device());
  EXPECT_TRUE(face.centres.is_partial());
  EXPECT_EQ(face.centres.sampled_classes(), 20);
  EXPECT_EQ(face.centres.head().weight.shape(), (Shape{20, kDimensions}));
  std::set<int64_t> ever;
  for (int64_t step = 0; step < 4; ++step) {
    const State before = face.centres.state();
    train_step(face, step);
    const State after = face.centres.state();
    const std::vector<int64_t>& chosen = face.centres.sampled();
    ASSERT_EQ(chosen.size(), 20u);
    EXPECT_TRUE(std::ranges::is_sorted(chosen));
    EXPECT_EQ(std::set<int64_t>(chosen.begin(), chosen.end()).size(), 20u);
    for (const int64_t label : labels_of_step(step)) EXPECT_TRUE(std::ranges::count(chosen, label) == 1);
    for (int64_t index = 0; index < kClasses; ++index) {
      const bool takes_part = std::ranges::count(chosen, index) == 1;
      EXPECT_EQ(row(before.at("weight"), index) != row(after.at("weight"), index), takes_part) << index;
      if (step == 0) continue;
      EXPECT_EQ(row(before.at("momentum"), index) != row(after.at("momentum"), index), takes_part) << index;
    }
    ever.insert(chosen.begin(), chosen.end());
  }
  EXPECT_GT(ever.size(), 40u) << "other classes come by";
}

// They are written where the step reads them: of millions of people another copy would be gigabytes.
TEST_P(PartialFcTest, CentresAreFetchedWithoutAnotherCopyOfThem) {
  constexpr int64_t kMany = 4000, kWide = 64;
  PartialFC centres(kWide, kMany, {.sample_rate = 0.5});
  centres.to(device());
  SGD sgd(centres.head().parameters(), {.momentum = 0.9});
  MemoryPool& pool = backend_of(device()).memory_pool(device().index);
  for (int64_t step = 0; step < 3; ++step) {
    pool.reset_peaks();
    const size_t before = pool.stats().live_bytes;
    centres.sample(labels_of_step(step), sgd);
    const size_t rows = centres.head().weight.tensor().spec().bytes();
    EXPECT_LT(pool.stats().peak_live_bytes - before, rows / 2) << step;
    centres.update(sgd);
  }
}

// A step of several batches: centres are chosen once, for the labels of all, and what is learnt is what the
// batches together teach.
TEST_P(PartialFcTest, BatchesOfAStepShareItsCentres) {
  const PartialFCOptions options{.sample_rate = 0.2, .min_classes = 10, .seed = 3};
  Face parts(options, device()), whole(options, device());
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<int64_t> labels = labels_of_step(step);
    const Tensor x = floats({10, 6}, step).to(device());
    const std::vector<Tensor> rows = parts.centres.sample(
        {{labels.begin(), labels.begin() + 5}, {labels.begin() + 5, labels.end()}}, parts.sgd);
    const Tensor together = whole.centres.sample(labels, whole.sgd);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(parts.centres.sampled(), whole.centres.sampled()) << step;
    std::vector<int64_t> joined = rows[0].to_vector<int64_t>();
    const std::vector<int64_t> second = rows[1].to_vector<int64_t>();
    joined.insert(joined.end(), second.begin(), second.end());
    EXPECT_EQ(joined, together.to_vector<int64_t>()) << step;
    parts.sgd.zero_grad();
    for (int64_t i = 0; i < 2; ++i) {
      const Tensor half = ops::slice(x, 0, 5 * i, 5 * i + 5);
      backward(0.5 * parts.centres.head()(parts.backbone(half), rows[static_cast<size_t>(i)]));
    }
    whole.sgd.zero_grad();
    backward(whole.centres.head()(whole.backbone(x), together));
    for (Face* face : {&parts, &whole}) {
      face->sgd.step(0.1);
      face->centres.update(face->sgd);
    }
    if (step > 0) continue;  // rounding grows from step to step
    const State a = parts.centres.state(), b = whole.centres.state();
    for (const char* name : {"weight", "momentum"})
      testing::expect_near(a.at(name), b.at(name).to_vector<float>(), 1e-5);
    testing::expect_near(parts.backbone.weight.tensor(), whole.backbone.weight.tensor().to_vector<float>(),
                         1e-5);
  }
}

TEST(PartialFcHostTest, BatchesOfAStepAreOfOneSizeAndFit) {
  Face face({.sample_rate = 0.04, .min_classes = 4, .seed = 9});
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              face.centres.sample({{1, 2}, {3}}, face.sgd);
            }),
            "[partial_fc] expected batches of one size but got 2 and 1 labels");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { face.centres.sample(std::vector<std::vector<int64_t>>(), face.sgd); }),
            "[partial_fc] expected a batch for the step but got none");
  EXPECT_THROW(face.centres.sample({{1, 2, 3}, {4, 5, 6}}, face.sgd), Error)
      << "six classes do not fit among four";
  EXPECT_EQ(face.centres.sample({{1, 2}, {3, 4}}, face.sgd).size(), 2u);
  EXPECT_EQ(face.centres.sampled(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_THROW(face.centres.sample({{1, 2}, {3, 4}}, face.sgd), Error) << "the step was not ended";
}

TEST(PartialFcHostTest, MomentaComeBackWithTheirRows) {
  // Two steps with the same class between which another takes part: its centre moves as if nothing had been
  // between.
  const PartialFCOptions options{.sample_rate = 0.02, .min_classes = 2, .seed = 9};
  Face face(options), other(options);
  const Tensor before = face.centres.state().at("weight");
  const auto momentum_of = [](Face& f, int64_t index) {
    return row(f.centres.state().at("momentum"), index);
  };
  const auto step = [](Face& f, const std::vector<int64_t>& labels) {
    const Tensor rows = f.centres.sample(labels, f.sgd);
    const Tensor embeddings = floats({2, kDimensions}, 1);
    const Tensor loss = f.centres.head()(embeddings, rows);
    f.sgd.zero_grad();
    backward(loss);
    f.sgd.step(0.1);
    f.centres.update(f.sgd);
  };
  step(face, {7, 8});
  step(face, {50, 60});
  step(face, {7, 8});
  step(other, {7, 8});
  step(other, {7, 8});
  EXPECT_EQ(row(face.centres.state().at("weight"), 7), row(other.centres.state().at("weight"), 7));
  EXPECT_EQ(momentum_of(face, 7), momentum_of(other, 7));
  EXPECT_NE(momentum_of(face, 50), momentum_of(face, 7));
  EXPECT_NE(row(before, 50), row(face.centres.state().at("weight"), 50));
}

TEST(PartialFcHostTest, GradientsAreThoseOfTheLossOverTheChosenClasses) {
  Face face({.sample_rate = 0.3, .min_classes = 10, .seed = 1});
  const Tensor rows = face.centres.sample(labels_of_step(0), face.sgd);
  const std::vector<int64_t> chosen = face.centres.sampled();
  const std::vector<int64_t> mapped = rows.to_vector<int64_t>();
  for (size_t i = 0; i < mapped.size(); ++i) {
    EXPECT_EQ(chosen[static_cast<size_t>(mapped[i])], labels_of_step(0)[i]);
  }
  Tensor embeddings = floats({10, kDimensions}, 4).set_requires_grad(true);
  const Tensor loss = face.centres.head()(embeddings, rows);
  backward(loss);

  // In double precision, over a copy of the chosen centres, where finite differences tell the gradient.
  const MarginHeadOptions exact{.margin = CombinedMargin{.gradient = MarginGradient::kExact}};
  const MarginHead wide(kDimensions, 30, exact);
  wide.weight.assign(face.centres.head().weight.canonical());
  wide.to(DType::kFloat64);
  const MarginHead straight(kDimensions, 30);
  straight.weight.assign(face.centres.head().weight.canonical());
  Tensor again = floats({10, kDimensions}, 4).set_requires_grad(true);
  const Tensor expected = straight(again, rows);
  backward(expected);
  EXPECT_TRUE(same_bits(loss, expected));
  EXPECT_TRUE(same_bits(embeddings.grad(), again.grad()));
  EXPECT_TRUE(same_bits(face.centres.head().weight.grad(), straight.weight.grad()));
  const GradcheckResult result =
      gradcheck([&](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{wide(inputs[0], rows)}; },
                {testing::pattern({10, kDimensions}, 4).set_requires_grad(true)});
  EXPECT_TRUE(result.passed) << result.message;
}

TEST(PartialFcHostTest, TheChoiceDependsOnSeedStepAndLabelsAlone) {
  const auto chosen = [](uint64_t seed, int64_t steps, double rate) {
    Face face({.sample_rate = rate, .min_classes = 10, .seed = seed});
    for (int64_t step = 0; step < steps; ++step) train_step(face, step);
    return face.centres.sampled();
  };
  for (const double rate : {0.15, 0.5, 0.9}) {
    EXPECT_EQ(chosen(1, 3, rate), chosen(1, 3, rate));
    EXPECT_NE(chosen(1, 3, rate), chosen(2, 3, rate));
    EXPECT_EQ(chosen(1, 3, rate).size(), static_cast<size_t>(std::llround(rate * kClasses)));
  }
}

TEST(PartialFcHostTest, NegativesAreChosenEvenly) {
  for (const double rate : {0.2, 0.8}) {  // by drawing those that take part, and those that do not
    PartialFC centres(2, 50, {.sample_rate = rate, .seed = 4});
    const SGD sgd(centres.head().parameters());
    std::vector<int> times(50);
    constexpr int kSteps = 2000;
    for (int step = 0; step < kSteps; ++step) {
      centres.sample(std::vector<int64_t>{49}, sgd);
      for (const int64_t index : centres.sampled()) ++times[static_cast<size_t>(index)];
      centres.update(sgd);
    }
    const double share = (50 * rate - 1) / 49;  // of the other classes
    for (size_t index = 0; index + 1 < times.size(); ++index) {
      EXPECT_NEAR(times[index], kSteps * share, 6.0 * std::sqrt(kSteps * share * (1 - share))) << index;
    }
    EXPECT_EQ(times[49], kSteps);
  }
}

TEST_P(PartialFcTest, AStoppedRunGoesOnBitForBit) {
  const testing::Deterministic deterministic;
  const PartialFCOptions options{.sample_rate = 0.2, .min_classes = 10, .seed = 3};
  Face whole(options, device());
  for (int64_t step = 0; step < 3; ++step) train_step(whole, step);
  Face resumed(options, device());
  resumed.backbone.load_state(whole.backbone.state());
  resumed.centres.load_state(whole.centres.state());
  resumed.sgd.load_state(whole.sgd.state());
  for (int64_t step = 3; step < 6; ++step) {
    EXPECT_TRUE(same_bits(train_step(whole, step), train_step(resumed, step))) << step;
    EXPECT_EQ(whole.centres.sampled(), resumed.centres.sampled());
  }
  EXPECT_EQ(testing::differences(whole.centres.state(), resumed.centres.state()), "");
}

TEST_P(PartialFcTest, AJobTrainsAsEagerStepsDo) {
  const testing::Deterministic deterministic;
  const PartialFCOptions options{.sample_rate = 0.2, .min_classes = 10, .seed = 3};
  Face eager(options, device()), traced(options, device());
  traced.backbone.load_state(eager.backbone.state());
  GradScaler scaler({.enabled = false});
  TrainJob job(traced.backbone, traced.sgd,
               [&](std::span<const Tensor> inputs) {
                 return std::vector<Tensor>{traced.centres.head()(traced.backbone(inputs[0]), inputs[1])};
               },
               {.scaler = &scaler});
  for (int64_t step = 0; step < 4; ++step) {
    const Tensor rows = traced.centres.sample(labels_of_step(step), traced.sgd);
    const Tensor loss = job.step(floats({10, 6}, step).to(device()), rows, 0.1);
    traced.centres.update(traced.sgd);
    EXPECT_TRUE(same_bits(train_step(eager, step), loss)) << step;
  }
  EXPECT_EQ(job.compilations(), 1);
  EXPECT_EQ(testing::differences(eager.centres.state(), traced.centres.state()), "");
}

TEST_P(PartialFcTest, InMixedPrecisionTheTableStaysFloat32) {
  Face face({.sample_rate = 0.2, .min_classes = 10}, device());
  face.backbone.to_mixed(DType::kBFloat16);
  face.centres.head().to_mixed(DType::kBFloat16);
  const State before = face.centres.state();
  const Tensor rows = face.centres.sample(labels_of_step(0), face.sgd);
  const Tensor x = floats({10, 6}, 0).to(device());
  const Tensor loss = face.centres.head()(face.backbone(ops::cast(x, DType::kBFloat16)), rows);
  backward(loss);
  face.sgd.step(0.1);
  face.centres.update(face.sgd);
  const Tensor table = face.centres.state().at("weight");
  EXPECT_EQ(table.dtype(), DType::kFloat32);
  EXPECT_NE(row(table, face.centres.sampled()[0]), row(before.at("weight"), face.centres.sampled()[0]));
}

TEST(PartialFcHostTest, AdamKeepsBothOfItsMeans) {
  PartialFC centres(kDimensions, kClasses, {.sample_rate = 0.1, .min_classes = 10});
  Adam adam(centres.head().parameters());
  const Tensor rows = centres.sample(labels_of_step(0), adam);
  backward(centres.head()(floats({10, kDimensions}, 0), rows));
  adam.step(0.01);
  centres.update(adam);
  const State state = centres.state();
  EXPECT_TRUE(state.contains("exp_avg") && state.contains("exp_avg_sq"));
}

TEST(PartialFcHostTest, MistakesAreTold) {
  EXPECT_EQ(message_of<InvalidArgument>([] { PartialFC(8, 100, {.sample_rate = 0.0}); }),
            "[partial_fc] expected a sample rate in (0, 1] but got 0");
  EXPECT_EQ(message_of<InvalidArgument>([] { PartialFC(8, 0); }),
            "[partial_fc] expected a positive number of classes but got 0");
  Face face({.sample_rate = 0.02});
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.sample(std::vector<int64_t>{100}, face.sgd); }),
            "[partial_fc] expected labels in [0, 100) but got 100");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              face.centres.sample(std::vector<int64_t>{1, 2, 3}, face.sgd);
            }),
            "[partial_fc] the batch has 3 classes, but a step works with 2; let min_classes be the size of a "
            "batch");
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.update(face.sgd); }),
            "[partial_fc] no step has begun");
  const SGD stranger(face.backbone.parameters());
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.sample(std::vector<int64_t>{1}, stranger); }),
            "[partial_fc] the head's weight is not among the optimiser's parameters");
  face.centres.sample(std::vector<int64_t>{1, kNoPositive}, face.sgd);
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.sample(std::vector<int64_t>{1}, face.sgd); }),
            "[partial_fc] a step has begun already: call update() after each");
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.state(); }),
            "[partial_fc] a step has begun: end it before taking the state");
  face.centres.update(face.sgd);
  State state = face.centres.state();
  state["weight"] = Tensor::zeros({99, 8});
  EXPECT_EQ(message_of<InvalidArgument>([&] { face.centres.load_state(state); }),
            "[partial_fc] expected 'weight' of float32 (100, 8) but got float32 (99, 8)");
}

}  // namespace
}  // namespace sinter::nn
