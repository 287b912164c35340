#include <cmath>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/policies/policy_steps.h>
#include <sinter/nn/augment/policies/three_augment.h>

namespace sinter::nn {
namespace {

constexpr int kSolarizeFrom = 128;

void check_probability(double probability, const char* tag) {
  SINTER_CHECK(probability >= 0 && probability <= 1, "[{}] expected a probability but got {}", tag,
               probability);
}

/// Adds an image's two steps to those of the batch.
void add(const std::array<PixelStep, 2>& own, std::vector<std::vector<PixelStep>>& steps) {
  for (size_t k = 0; k < own.size(); ++k) steps[k].push_back(own[k]);
}

}  // namespace

std::array<PixelStep, 2> blur_steps(double sigma) {
  std::array<PixelStep, 2> steps = {PixelStep{ops::ImageStep::kBlurX, {}},
                                    PixelStep{ops::ImageStep::kBlurY, {}}};
  auto& weights = steps[0].parameters;
  double total = 0;
  const auto weight = [sigma](size_t distance) {
    const double d = static_cast<double>(distance) / sigma;
    return std::exp(-0.5 * d * d);
  };
  for (size_t k = 0; k < weights.size(); ++k) total += weight(k) * (k == 0 ? 1 : 2);
  int32_t others = 0;
  for (size_t k = 1; k < weights.size(); ++k) {
    weights[k] = fixed_point(weight(k) / total);
    others += 2 * weights[k];
  }
  weights[0] = ops::kStepOne - others;  // an even picture stays as it is
  steps[1].parameters = weights;
  return steps;
}

PixelStep greyscale_step() {
  return fixed_step(ops::ImageStep::kSaturation, 0);
}

Tensor ThreeAugment::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "three_augment");
  std::vector<std::vector<PixelStep>> steps(2);
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    const uint64_t choice = random.below(3);
    const double sigma = random.uniform(0.1, 2.0);
    if (choice == 0) {
      add({greyscale_step(), PixelStep{}}, steps);
    } else if (choice == 1) {
      add({PixelStep{ops::ImageStep::kSolarize, {kSolarizeFrom}}, PixelStep{}}, steps);
    } else {
      add(blur_steps(sigma), steps);
    }
  }
  return apply_steps(images, steps);
}

RandomGreyscale::RandomGreyscale(const RandomGreyscaleOptions& options) : options_(options) {
  check_probability(options.probability, "random_greyscale");
}

Tensor RandomGreyscale::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "random_greyscale");
  std::vector<PixelStep> steps;
  for (int64_t n = 0; n < draws.size(); ++n) {
    const bool done = static_cast<double>(draws.of(n).uniform()) < options_.probability;
    steps.push_back(done ? greyscale_step() : PixelStep{});
  }
  return apply_steps(images, {steps});
}

RandomBlur::RandomBlur(const RandomBlurOptions& options) : options_(options) {
  check_probability(options.probability, "random_blur");
  SINTER_CHECK(options.min_sigma > 0 && options.min_sigma <= options.max_sigma && options.max_sigma <= 2,
               "[random_blur] expected 0 < min_sigma <= max_sigma <= 2 but got {} and {}", options.min_sigma,
               options.max_sigma);
}

Tensor RandomBlur::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "random_blur");
  std::vector<std::vector<PixelStep>> steps(2);
  for (int64_t n = 0; n < draws.size(); ++n) {
    data::SampleRandom random = draws.of(n);
    const bool done = static_cast<double>(random.uniform()) < options_.probability;
    const double sigma = random.uniform(options_.min_sigma, options_.max_sigma);
    add(done ? blur_steps(sigma) : std::array<PixelStep, 2>{}, steps);
  }
  return apply_steps(images, steps);
}

}  // namespace sinter::nn
