// Margins that differ from row to row, sub-centres, and centres in float32: PyTorch's steps
// (tests/reference/generate_margins.py), values by hand, gradients, and what is remembered.
#include <cmath>
#include <map>
#include <numbers>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>

#include "nn/device_test_support.h"
#include "nn/job/job_test_support.h"
#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_seed;
using sinter::testing::reference_values;
using sinter::testing::reference_word;
using sinter::testing::to_doubles;
using testing::floats;
using testing::message_of;
using Doubles = std::vector<double>;

constexpr int64_t kRows = 12, kInputs = 6, kDimensions = 8, kClasses = 7, kBatches = 3;
constexpr double kScale = 16.0;

std::map<std::string, MarginHeadOptions> all_margins(double scale) {
  return {
      {"adaface", {.margin = AdaFace{.scale = scale}}},
      {"elastic_arc", {.margin = ElasticFace{.scale = scale}}},
      {"elastic_cos", {.margin = ElasticFace{.scale = scale, .of_cosine = true, .mean = 0.35}}},
      {"elastic_arc_plus", {.margin = ElasticFace{.scale = scale, .deviation = 0.0175, .sorted = true}}},
      {"elastic_cos_plus",
       {.margin =
            ElasticFace{.scale = scale, .of_cosine = true, .mean = 0.35, .deviation = 0.02, .sorted = true}}},
      {"magface", {.margin = MagFace{.scale = scale}}},
      {"curricular", {.margin = CurricularFace{.scale = scale}}},
      {"sub_centres",
       {.margin = CombinedMargin{.scale = scale, .gradient = MarginGradient::kExact}, .sub_centres = 3}}};
}

Tensor labels_of(const std::vector<int64_t>& labels, Device device = Device::cpu()) {
  return Tensor::from_values(labels, {static_cast<int64_t>(labels.size())}, device);
}

/// The images of generate_margins.py, and their labels.
Tensor reference_images() {
  constexpr float kLengths[] = {2, 3, 6, 10, 16, 27, 45, 76, 128};
  const Tensor x = reference_values("margins.x", {kBatches * kRows, kInputs});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] *= kLengths[i / kInputs % 9];
  return x;
}

Tensor reference_labels() {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kBatches * kRows; ++i)
    labels.push_back(int64_t{reference_word(reference_seed("margins.labels"), i)} % kClasses);
  return labels_of(labels);
}

class MarginSteps : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, MarginSteps, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

// In float64, PyTorch's to 20 steps of some hundred roundings; in float32, to what PyTorch's own float32
// steps are from those, 2.4e-7 of the largest element, times 20.
TEST_P(MarginSteps, AreThoseOfPyTorch) {
  const Reference reference("margins");
  const Tensor images = reference_images(), labels = reference_labels();
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const double tolerance = dtype == DType::kFloat64 ? 1e-11 : 5e-6;
    for (const auto& [kind, options] : all_margins(kScale)) {
      SCOPED_TRACE(kind + " " + std::string(to_string(dtype)));
      const std::string name = "margins." + kind + ".";
      const Linear backbone(kInputs, kDimensions, {.bias = false});
      const MarginHead head(kDimensions, kClasses, options);
      backbone.weight.assign(reference_values("margins.backbone", {kDimensions, kInputs}));
      head.weight.assign(reference_values("margins.weight", head.weight.canonical_shape()));
      for (const ModuleBase* module : std::initializer_list<const ModuleBase*>{&backbone, &head}) {
        module->to(device());
        module->to(dtype);
      }
      SGD sgd({backbone.weight, add_prefix("head.", head.parameters()).front()}, {.momentum = 0.9});
      default_generator() = Generator(reference_seed("margins.draws"));
      Doubles losses;
      for (int64_t step = 0; step < 20; ++step) {
        const int64_t first = step % kBatches * kRows;
        const Tensor rows = ops::slice(images, 0, first, first + kRows).to(device());
        const Tensor loss =
            head(backbone(ops::cast(rows, dtype)), ops::slice(labels, 0, first, first + kRows).to(device()));
        sgd.zero_grad();
        backward(loss);
        sgd.step(0.02);
        losses.push_back(to_doubles(loss.to(Device::cpu()))[0]);
      }
      reference.expect_near(name + "losses", Tensor::from_values(losses, {20}), tolerance);
      const auto compare = [&](const std::string& what, const Tensor& value) {
        reference.expect_near(name + what, ops::cast(value.to(Device::cpu()), DType::kFloat64), tolerance);
      };
      compare("backbone", backbone.weight.canonical());
      compare("weight", head.weight.canonical());
      for (const Buffer& average : head.buffers()) compare(average.name(), average.canonical());
    }
  }
}

/// Two classes at right angles in float64, and embeddings at an angle from the first, the own one, whose
/// logit the loss tells.
Doubles own_logits(const MarginHead& head, const Doubles& angles, const Doubles& lengths) {
  head.to(DType::kFloat64);
  head.weight.assign(Tensor::from_values(Doubles{1, 0, 0, 1}, {2, 2}));
  const auto rows = static_cast<int64_t>(angles.size());
  Doubles z;
  for (size_t i = 0; i < angles.size(); ++i) {
    z.push_back(lengths[i] * std::cos(angles[i]));
    z.push_back(lengths[i] * std::sin(angles[i]));
  }
  const Doubles losses =
      head(Tensor::from_values(z, {rows, 2}), Tensor::zeros({rows}, DType::kInt64)).to_vector<double>();
  Doubles logits;
  for (size_t i = 0; i < angles.size(); ++i) {
    // loss = log(1 + exp(other - own))
    logits.push_back(64 * std::sin(angles[i]) - std::log(std::expm1(losses[i])));
  }
  return logits;
}

constexpr double kPi = std::numbers::pi;

TEST(AdaFaceTest, MarginsGoByTheLengthAmongThoseOfTheBatch) {
  const MarginHead head(2, 2, {.margin = AdaFace{}, .reduction = Reduction::kNone});
  head.eval();
  head.load_state({{"weight", Tensor::zeros({2, 2})},
                   {"norm_mean", Tensor::scalar(20.0f)},
                   {"norm_deviation", Tensor::scalar(0.999f)}});
  const Doubles angles(3, kPi / 3);
  const Doubles logits = own_logits(head, angles, {10, 20, 30});
  EXPECT_NEAR(logits[0], 7.8902, 1e-4);
  EXPECT_NEAR(logits[1], 6.4, 1e-6);
  EXPECT_NEAR(logits[2], -0.1423, 1e-4);
  EXPECT_NEAR(own_logits(head, {kPi / 3}, {21.0})[0],
              64 * (std::cos(kPi / 3 - 0.4 * 0.333) - 0.4 - 0.4 * 0.333), 1e-5)
      << "one deviation more is a third of the way";
}

TEST(AdaFaceTest, AveragesTakeInABatchBeforeTheyAreUsedInTrainingOnly) {
  const MarginHead head(2, 2, {.margin = AdaFace{}, .reduction = Reduction::kNone});
  const auto averages = [&] {
    return std::pair(to_doubles(head.buffers()[0].canonical())[0],
                     to_doubles(head.buffers()[1].canonical())[0]);
  };
  EXPECT_EQ(averages(), std::pair(20.0, 100.0));
  const Doubles angles(2, kPi / 3);
  const Doubles logits = own_logits(head, angles, {10, 400});  // which count as 10 and 100
  const double mean = 0.01 * 55 + 0.99 * 20, deviation = 0.01 * std::sqrt(2 * 45.0 * 45.0) + 99;
  EXPECT_NEAR(averages().first, mean, 1e-5);
  EXPECT_NEAR(averages().second, deviation, 1e-5);
  const double k = 0.333 * (100 - mean) / (deviation + 0.001);
  EXPECT_NEAR(logits[1], 64 * (std::cos(kPi / 3 - 0.4 * k) - 0.4 - 0.4 * k), 1e-5);
  const auto before = averages();
  own_logits(head, {1.0}, {50});
  EXPECT_EQ(averages(), before) << "a single row has no deviation";
  head.eval();
  own_logits(head, angles, {10, 30});
  EXPECT_EQ(averages(), before);
}

TEST(ElasticFaceTest, DrawsMarginsAnewForEachRowAndStep) {
  constexpr size_t kMany = 4000;
  for (const bool of_cosine : {false, true}) {
    const double mean = of_cosine ? 0.35 : 0.5;
    const MarginHead head(
        2, 2, {.margin = ElasticFace{.of_cosine = of_cosine, .mean = mean}, .reduction = Reduction::kNone});
    manual_seed(3);
    const Doubles angles(kMany, kPi / 3), lengths(kMany, 1.0);
    const auto margins = [&] {
      Doubles drawn;
      for (const double logit : own_logits(head, angles, lengths))
        drawn.push_back(of_cosine ? 0.5 - logit / 64 : std::acos(logit / 64) - kPi / 3);
      return drawn;
    };
    const Doubles first = margins(), second = margins();
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < kMany; ++i) {
      EXPECT_NE(first[i], second[i]);
      sum += first[i];
      squares += (first[i] - mean) * (first[i] - mean);
    }
    // Five standard errors.
    EXPECT_NEAR(sum / kMany, mean, 5 * 0.05 / std::sqrt(kMany));
    EXPECT_NEAR(std::sqrt(squares / kMany), 0.05, 5 * 0.05 / std::sqrt(2.0 * kMany));
    head.eval();
    EXPECT_NEAR(margins()[0], mean, 1e-9);
  }
}

TEST(ElasticFaceTest, SortedGivesTheLowestOwnCosineTheLargestDraw) {
  const MarginHead head(2, 2, {.margin = ElasticFace{.sorted = true}, .reduction = Reduction::kNone});
  manual_seed(4);
  const Doubles angles = {0.9, 0.4, 1.3, 0.7, 1.1}, lengths(5, 1.0);
  const Doubles logits = own_logits(head, angles, lengths);
  std::map<double, double> margins;  // by angle
  for (size_t i = 0; i < angles.size(); ++i) margins[angles[i]] = std::acos(logits[i] / 64) - angles[i];
  double before = -1.0;
  for (const auto& [angle, margin] : margins) {
    EXPECT_GT(margin, before) << angle;
    before = margin;
  }
}

TEST(MagFaceTest, MarginAndPenaltyGrowWithTheLength) {
  const MarginHead head(2, 2, {.margin = MagFace{}, .reduction = Reduction::kNone});
  const auto penalty = [](double n) { return 35 * (n / (110 * 110) + 1 / n); };
  const auto loss = [&](double angle, double length) {
    const Doubles z = {length * std::cos(angle), length * std::sin(angle)};
    own_logits(head, {0.1}, {1});  // to float64
    return head(Tensor::from_values(z, {1, 2}), labels_of({0})).to_vector<double>()[0];
  };
  const auto expected = [&](double angle, double margin, double n) {
    return std::log1p(std::exp(64 * std::sin(angle) - 64 * std::cos(angle + margin))) + penalty(n);
  };
  EXPECT_NEAR(loss(0.6, 60), expected(0.6, 0.45 + 0.0035 * 50, 60), 1e-9);
  EXPECT_NEAR(loss(0.6, 3), expected(0.6, 0.45, 10), 1e-9);
  EXPECT_NEAR(loss(0.6, 300), expected(0.6, 0.8, 110), 1e-9);
  EXPECT_NEAR(loss(2.0, 60), expected(2.0, 0.0, 60), 1e-9) << "no margin at cosines below 0";
  EXPECT_NEAR(penalty(10), 3.5289, 1e-4);
  EXPECT_EQ(message_of([] { MarginHead(2, 2, {.margin = MagFace{.weight = 22}}); }),
            "[margin_head] expected weight >= 22.59, or lengths have no best value, but got 22");
}

TEST(MagFaceTest, RowsWithoutAClassHaveNoPenalty) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    const MarginHead head(4, 3, {.margin = MagFace{}, .reduction = reduction});
    const Tensor z = floats({3, 4}, 1), first = ops::slice(z, 0, 0, 2);
    const Tensor with = head(z, labels_of({0, 2, kNoPositive})), without = head(first, labels_of({0, 2}));
    const Doubles found = to_doubles(with), expected = to_doubles(without);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4);
    if (reduction == Reduction::kNone) {
      EXPECT_EQ(found[2], 0.0);
    }
  }
}

TEST(CurricularFaceTest, HardClassesCountMoreAsOwnCosinesGrow) {
  const MarginHead head(2, 2, {.margin = CurricularFace{}, .reduction = Reduction::kNone});
  // At an angle of 1.2 the other class, at cos 0.37, is above cos(1.7): it counts as c (t + c).
  const Doubles angles = {1.2, 0.1};
  const auto losses = [&] {
    Doubles z;
    for (const double angle : angles) z.insert(z.end(), {std::cos(angle), std::sin(angle)});
    head.to(DType::kFloat64);
    head.weight.assign(Tensor::from_values(Doubles{1, 0, 0, 1}, {2, 2}));
    return head(Tensor::from_values(z, {2, 2}), labels_of({0, 0})).to_vector<double>();
  };
  const auto loss = [](double own, double other) { return std::log1p(std::exp(64 * (other - own))); };
  double t = 0.0;
  for (int step = 0; step < 3; ++step) {
    t = 0.01 * (std::cos(1.2) + std::cos(0.1)) / 2 + 0.99 * t;
    const Doubles found = losses();
    const double other = std::sin(1.2);
    EXPECT_NEAR(found[0], loss(std::cos(1.7), other * (t + other)), 1e-9);
    EXPECT_NEAR(found[1], loss(std::cos(0.6), std::sin(0.1)), 1e-9) << "an easy one stays";
    EXPECT_NEAR(to_doubles(head.buffers()[0].canonical())[0], t, 1e-12);
  }
  head.eval();
  const Tensor beyond = Tensor::from_values(Doubles{std::cos(3.0), std::sin(3.0)}, {1, 2});
  const double other = std::sin(3.0) * (t + std::sin(3.0));
  EXPECT_NEAR(head(beyond, labels_of({0})).to_vector<double>()[0],
              loss(std::cos(3.0) - 0.5 * std::sin(0.5), other), 1e-9)
      << "beyond pi - margin";
}

TEST(SubCentreTest, TheNearestCountsAndGetsTheGradient) {
  const MarginHead head(3, 2, {.sub_centres = 2});
  EXPECT_EQ(head.weight.shape(), (Shape{2, 6}));
  head.weight.assign(Tensor::from_values(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0}, {2, 6}));
  const Tensor z = Tensor::from_values(std::vector<float>{3, 4, 0}, {1, 3});
  EXPECT_EQ(head.sub_cosines(z).shape(), (Shape{1, 2, 2}));
  const Doubles cosines = to_doubles(head.cosine(z));
  EXPECT_NEAR(cosines[0], 0.8, 1e-6);
  EXPECT_NEAR(cosines[1], 7 / (5 * std::sqrt(2.0)), 1e-6);
  backward(head(z, labels_of({0})));
  const Doubles gradient = to_doubles(head.weight.grad());
  const auto moved = [&](size_t centre) {
    return gradient[3 * centre] != 0 || gradient[3 * centre + 1] != 0 || gradient[3 * centre + 2] != 0;
  };
  EXPECT_EQ((std::vector<bool>{moved(0), moved(1), moved(2), moved(3)}),
            (std::vector<bool>{false, true, false, true}));
}

// Finite differences in float64 by every element of centres and embeddings, in evaluation mode, where nothing
// moves; lengths reach AdaFace's margins through what gets no gradient, so that only centres are compared.
TEST(AdaptiveMarginTest, GradientsAreExact) {
  for (const auto& [kind, options] : all_margins(4.0)) {
    SCOPED_TRACE(kind);
    manual_seed(8);
    const MarginHead head(4, 5, options);
    head.to(DType::kFloat64);
    head.eval();
    head.weight.assign(reference_values("margins.check", head.weight.canonical_shape()));
    if (kind == "curricular") head.buffers()[0].assign(Tensor::scalar(0.3f));
    if (kind == "adaface") head.buffers()[1].assign(Tensor::scalar(10.0f));
    const Tensor z = ops::cast(reference_values("margins.check_z", {6, 4}, {.scale = 40}), DType::kFloat64)
                         .detach()
                         .set_requires_grad(true);
    const Tensor labels = labels_of({4, 0, 2, kNoPositive, 1, 3});
    const auto loss = [&] { return to_doubles(head(z, labels))[0]; };
    backward(head(z, labels));
    const auto compare = [&](const Tensor& values, const Tensor& gradient, double step) {
      const Doubles found = to_doubles(gradient);
      double largest = 0.0;
      for (const double each : found) largest = std::max(largest, std::abs(each));
      EXPECT_GT(largest, 0.0);
      for (int64_t i = 0; i < values.numel(); ++i) {
        double& value = values.data<double>()[i];
        const double before = value;
        value = before + step;
        const double above = loss();
        value = before - step;
        const double below = loss();
        value = before;
        // The differences' own error: the third derivative, and 1e-16 of the loss over the step.
        EXPECT_NEAR(found[static_cast<size_t>(i)], (above - below) / (2 * step), 1e-6 * largest) << i;
      }
    };
    compare(head.weight.tensor(), head.weight.grad(), 1e-5);
    if (kind != "adaface") compare(z, z.grad(), 1e-4);
  }
}

class AdaptiveMarginJob : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, AdaptiveMarginJob, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

struct Faces : ModuleOf<Tensor(const Tensor&, const Tensor&)> {
  Faces(const Linear& trunk, const MarginHead& classes)
      : backbone(child("backbone", trunk)), head(child("head", classes)) {}
  Tensor forward(const Tensor& images, const Tensor& labels) const override {
    return head(backbone(images), labels);
  }
  Linear backbone;
  MarginHead head;
};

/// A run of its own, of jobs or eager steps, over a part of the classes.
struct FaceRun {
  PartialFC centres;
  Faces faces;
  SGD sgd;
  std::optional<TrainJob> job;

  FaceRun(const MarginHeadOptions& options, bool with_job, Device device, DType mixed = DType::kFloat32)
      : centres(seeded(options)),
        faces(Linear(kInputs, kDimensions), centres.head()),
        sgd(placed(device, mixed), {.momentum = 0.9}) {
    if (!with_job) return;
    job.emplace(faces, sgd, [this](const Tensor& x, const Tensor& rows) { return faces(x, rows); });
  }
  static PartialFC seeded(const MarginHeadOptions& options) {
    manual_seed(5);
    return PartialFC(kDimensions, 40, {.head = options, .sample_rate = 0.4, .min_classes = kRows, .seed = 3});
  }
  std::vector<Parameter> placed(Device device, DType mixed) {
    faces.to(device);
    centres.to(device);
    if (mixed != DType::kFloat32) faces.to_mixed(mixed);
    return faces.parameters();
  }
  Tensor step(int64_t number) {
    const Device device = faces.head.weight.tensor().device();
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kRows; ++i) labels.push_back((i * 7 + number * 5) % 40);
    const Tensor rows = centres.sample(labels, sgd);
    const Tensor images = ops::cast(floats({kRows, kInputs}, number), faces.backbone.weight.tensor().dtype());
    Tensor loss;
    if (job) {
      loss = job->step(images.to(device), rows, 0.05);
    } else {
      loss = faces(images.to(device), rows);
      sgd.zero_grad();
      backward(loss);
      sgd.step(0.05);
    }
    centres.update(sgd);
    return loss.detach();
  }
};

TEST_P(AdaptiveMarginJob, StepsOfAJobAreThoseOfEagerCalls) {
  const testing::Deterministic deterministic;
  for (const auto& [kind, options] : all_margins(16.0)) {
    SCOPED_TRACE(kind);
    FaceRun eager(options, false, device()), job(options, true, device());
    for (const bool with_job : {false, true}) {
      FaceRun& run = with_job ? job : eager;
      manual_seed(9);
      for (int64_t step = 0; step < 4; ++step) run.step(step);
    }
    const State expected = eager.centres.state(), found = job.centres.state();
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, value] : expected) {
      const Doubles a = to_doubles(value), b = to_doubles(found.at(name));
      // Rewrites of a job may round otherwise: 4 steps of losses near 16.
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(b[i], a[i], 2e-5 * std::max(1.0, std::abs(a[i]))) << name;
    }
  }
}

TEST_P(AdaptiveMarginJob, AStateGoesOnBitForBit) {
  const testing::Deterministic deterministic;
  for (const auto& [kind, options] : all_margins(16.0)) {
    SCOPED_TRACE(kind);
    FaceRun whole(options, true, device()), second(options, true, device());
    for (int64_t step = 0; step < 3; ++step) whole.step(step);
    const State centres = whole.centres.state(), backbone = whole.faces.backbone.state();
    const State optimizer = whole.sgd.state();
    const Generator generator = default_generator();
    const Tensor expected = whole.step(3);
    EXPECT_EQ(centres.contains("norm_mean") && centres.contains("norm_deviation"), kind == "adaface");
    EXPECT_EQ(centres.contains("t") && to_doubles(centres.at("t"))[0] != 0.0, kind == "curricular");
    second.step(0);  // a run that has begun
    second.centres.load_state(centres);
    second.faces.backbone.load_state(backbone);
    second.sgd.load_state(optimizer);
    default_generator() = generator;
    EXPECT_TRUE(testing::same_bits(second.step(3), expected));
    EXPECT_EQ(testing::differences(second.centres.state(), whole.centres.state()), "");
  }
}

TEST_P(AdaptiveMarginJob, TrainsInSixteenBits) {
  for (auto [kind, options] : all_margins(16.0)) {
    for (const bool keep : {false, true}) {
      SCOPED_TRACE(kind + (keep ? ", float32 centres" : ""));
      options.keep_float32 = keep;
      FaceRun run(options, true, device(), DType::kBFloat16);
      EXPECT_EQ(run.faces.head.weight.is_mixed(), !keep);
      const Tensor z = Tensor::zeros({2, kDimensions}, DType::kFloat32, device());
      EXPECT_EQ(run.faces.head.cosine(z).dtype(), keep ? DType::kFloat32 : DType::kBFloat16);
      for (int64_t step = 0; step < 3; ++step) {
        const Tensor loss = run.step(step);
        EXPECT_EQ(loss.dtype(), DType::kFloat32);
        EXPECT_TRUE(std::isfinite(to_doubles(loss.to(Device::cpu()))[0]));
      }
    }
  }
}

TEST(AdaptiveMarginTest, NamesWhatIsWrong) {
  const auto made = [](const MarginHeadOptions& options) {
    return message_of([&] { MarginHead(4, 3, options); });
  };
  EXPECT_EQ(made({.margin = AdaFace{.scale = 0}}), "[margin_head] expected scale > 0 but got 0");
  EXPECT_EQ(made({.margin = AdaFace{.margin = 1}}), "[margin_head] expected margin in [0, 0.7854) but got 1");
  EXPECT_EQ(made({.margin = AdaFace{.h = 0}}), "[margin_head] expected h > 0 but got 0");
  EXPECT_EQ(made({.margin = AdaFace{.momentum = 0}}), "[margin_head] expected momentum in (0, 1] but got 0");
  EXPECT_EQ(made({.margin = ElasticFace{.deviation = -1}}),
            "[margin_head] expected deviation in [0, inf) but got -1");
  EXPECT_EQ(made({.margin = MagFace{.least_norm = 0}}),
            "[margin_head] expected norms in (0, infinity) but got 0 and 110");
  EXPECT_EQ(made({.margin = CurricularFace{.margin = 2}}),
            "[margin_head] expected margin in [0, 1.571) but got 2");
  EXPECT_EQ(made({.sub_centres = 0}), "[margin_head] expected a positive number of sub-centres but got 0");
  PartialFC centres(4, 3, {.head = {.margin = CurricularFace{}}});
  State state = centres.state();
  EXPECT_EQ(state.size(), 2u);
  state["t"] = Tensor::zeros({2});
  EXPECT_EQ(message_of([&] { centres.load_state(state); }),
            "[partial_fc] expected a floating-point scalar 't' but got float32 (2,)");
}

}  // namespace
}  // namespace sinter::nn
