// The speed run: 100 of its steps as PyTorch makes them (tests/reference/generate_speedrun.py), and the bars
// of its times.
#include <gtest/gtest.h>
#include <nn/reference_support.h>

#include <sinter/ops/permute/permute.h>
#include <sinter/ops/slice/slice.h>

#include "common/timeline.h"
#include "speedrun/network.h"

namespace speedrun {
namespace {

using namespace sinter;
using sinter::testing::Reference;

constexpr int64_t kBatch = 32, kBatches = 8, kSteps = 100, kThawed = 30;
constexpr double kRate = 1.0 / 16;  // rounding errors grow with the rate: see the generator

Tensor reference_images() {
  return sinter::testing::reference_values("speedrun.images", {kBatches * kBatch, 3, 32, 32}, {.scale = 2.0});
}

Tensor reference_labels() {
  const uint64_t seed = sinter::testing::reference_seed("speedrun.labels");
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kBatches * kBatch; ++i)
    labels.push_back(sinter::testing::reference_word(seed, i) % 10);
  return Tensor::from_values(labels, {kBatches * kBatch});
}

void expect_steps_of_pytorch(Layout layout, double tolerance) {
  Options options;
  options.width = 8;
  options.batch = kBatch;
  const Network network(options, 10);
  network.to(layout);
  for (const nn::Parameter& parameter : network.parameters()) {
    parameter.assign(
        sinter::testing::reference_parameter("speedrun." + parameter.name(), parameter.canonical_shape()));
  }
  const auto turned = [&](const Tensor& x) {
    return layout == Layout::kNHWC ? ops::permute(x, {0, 2, 3, 1}) : x;
  };
  const Tensor images = turned(reference_images()), labels = reference_labels();
  nn::SGD optimizer(groups(network, options), {.momentum = 0.85, .nesterov = true});
  nn::TrainJob job(network, nn::CrossEntropyLoss{.label_smoothing = 0.2, .reduction = nn::Reduction::kSum},
                   optimizer);
  nn::Lookahead lookahead(network);
  const Reference reference("speedrun_float64");
  const std::vector<double> losses = reference["losses"].to_vector<double>();
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  double worst = 0.0;
  for (int64_t step = 0; step < kSteps; ++step) {
    network.whiten.bias.tensor().set_requires_grad(step < kThawed);
    const int64_t from = step % kBatches * kBatch;
    const double loss =
        job.step(ops::slice(images, 0, from, from + kBatch), ops::slice(labels, 0, from, from + kBatch),
                 kRate * learning_rate(step, kSteps))
            .item();
    const double expected = losses[static_cast<size_t>(step)];
    worst = std::max(worst, std::abs(loss - expected) / expected);
    EXPECT_NEAR(loss, expected, tolerance * expected) << "step " << step;
    if ((step + 1) % 5 == 0) lookahead.update(decay_of_lookahead(step + 1, kSteps));
  }
  nn::InferJob infer(network);
  reference.expect_near("logits", ops::cast(infer(ops::slice(images, 0, 0, kBatch)), DType::kFloat64),
                        20 * tolerance);
  std::printf("largest relative error of a loss: %.2g\n", worst);
}

TEST(SpeedrunTest, HundredStepsAreThoseOfPyTorch) {
  expect_steps_of_pytorch(Layout::kNCHW, 1e-3);
}

}  // namespace
}  // namespace speedrun

namespace sinter::examples {
namespace {

TEST(TimelineTest, DrawsPartsInTheOrderOfTheirBegin) {
  Timeline timeline;
  timeline.add("second", 1.0, 2.0);
  timeline.add("first", 0.0, 1.0);
  timeline.add("first", 5.0, 9.0);  // is known
  EXPECT_EQ(timeline.text(), fmt::format("  first     1.00 s  |{}|\n  second    1.00 s  |{}|\n",
                                         std::string(29, '#') + std::string(28, ' '),
                                         std::string(28, ' ') + std::string(29, '#')));
  EXPECT_EQ(timeline.time("third", [] { return 3; }), 3);
  EXPECT_NE(timeline.text().find("third"), std::string::npos);
}

TEST(TimelineTest, AProcessBeganBeforeItsTests) {
  const double age = std::chrono::duration<double>(Timeline::Clock::now() - process_start()).count();
  EXPECT_GE(age, 0.0);
  EXPECT_LT(age, 3600.0);
}

TEST(TimelineTest, MeansComeWithTheirDeviation) {
  EXPECT_EQ(mean_and_deviation({90.0}), "90.00, deviation 0.00");
  EXPECT_EQ(mean_and_deviation({89.0, 91.0}), "90.00, deviation 1.41");
}

}  // namespace
}  // namespace sinter::examples
