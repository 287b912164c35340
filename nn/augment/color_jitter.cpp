#include <algorithm>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/color_jitter.h>
#include <sinter/nn/augment/pixel_steps.h>

namespace sinter::nn {
namespace {

using ops::ImageStep;

/// One image's steps in their random order.
std::vector<PixelStep> draw_steps(const ColorJitterOptions& options, data::SampleRandom random) {
  std::vector<PixelStep> steps;
  const std::pair<ImageStep, double> factors[] = {{ImageStep::kBrightness, options.brightness},
                                                  {ImageStep::kContrast, options.contrast},
                                                  {ImageStep::kSaturation, options.saturation}};
  for (const auto& [step, amount] : factors) {
    if (amount > 0) steps.push_back(fixed_step(step, random.uniform(std::max(0.0, 1 - amount), 1 + amount)));
  }
  if (options.hue > 0)
    steps.push_back(fixed_step(ImageStep::kHue, random.uniform(-options.hue, options.hue)));
  for (size_t i = steps.size(); i > 1; --i) std::swap(steps[i - 1], steps[random.below(i)]);
  return steps;
}

}  // namespace

ColorJitter::ColorJitter(const ColorJitterOptions& options) : options_(options) {
  for (const auto& [name, amount] :
       {std::pair{"brightness", options.brightness}, std::pair{"contrast", options.contrast},
        std::pair{"saturation", options.saturation}}) {
    SINTER_CHECK(amount >= 0 && amount <= 100, "[color_jitter] expected a {} from 0 to 100 but got {}", name,
                 amount);
  }
  SINTER_CHECK(options.hue >= 0 && options.hue <= 0.5,
               "[color_jitter] expected a hue from 0 to 0.5 but got {}", options.hue);
}

Tensor ColorJitter::apply(const Tensor& images, Layout, const data::BatchRandom& draws) const {
  check_pixels(images, draws.size(), "color_jitter");
  std::vector<std::vector<PixelStep>> steps;
  for (int64_t n = 0; n < draws.size(); ++n) {
    const std::vector<PixelStep> own = draw_steps(options_, draws.of(n));
    steps.resize(own.size());  // as many for every image
    for (size_t k = 0; k < own.size(); ++k) steps[k].push_back(own[k]);
  }
  return apply_steps(images, steps);
}

}  // namespace sinter::nn
