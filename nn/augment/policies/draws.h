// Draws from distributions that policies of augmentation use, from a sample's own stream.
#pragma once

#include <cmath>
#include <numbers>

#include <sinter/nn/data/sample_random.h>

namespace sinter::nn {

/// In (0, 1].
inline double positive_uniform(data::SampleRandom& random) {
  return 1.0 - static_cast<double>(random.uniform());
}

/// Of mean 0 and deviation 1 (Box and Muller).
inline double draw_normal(data::SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(positive_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(random.uniform()));
}

/// Of the gamma distribution with this shape, > 0, and scale 1. Source: G. Marsaglia, W. W. Tsang, "A simple
/// method for generating gamma variables", 2000.
inline double draw_gamma(data::SampleRandom& random, double shape) {
  if (shape < 1) {
    const double share = std::pow(positive_uniform(random), 1 / shape);
    return draw_gamma(random, shape + 1) * share;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(random), root = 1 + c * x, v = root * root * root;
    if (root > 0 && std::log(positive_uniform(random)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return d * v;
  }
}

}  // namespace sinter::nn
