#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/nn/init/init.h>
#include <sinter/ops/tensor/fill_pairs_internal.h>

namespace sinter::nn::init {
namespace {

double xavier_deviation(const Shape& shape, double gain) {
  const int64_t fans = fan(shape, Fan::kIn) + fan(shape, Fan::kOut);
  return gain * std::sqrt(2.0 / static_cast<double>(std::max<int64_t>(fans, 1)));
}

double kaiming_deviation(const Shape& shape, const KaimingOptions& options) {
  const int64_t connections = std::max<int64_t>(fan(shape, options.fan), 1);
  return rectifier_gain(options.negative_slope) / std::sqrt(static_cast<double>(connections));
}

Tensor uniform_with_deviation(const Shape& shape, double deviation, Generator& generator) {
  const double bound = std::numbers::sqrt3 * deviation;
  return uniform(shape, -bound, bound, generator);
}

}  // namespace

int64_t fan(const Shape& shape, Fan mode) {
  SINTER_CHECK(shape.rank() >= 2, "[init] expected a weight of rank 2 or more but got shape {}", shape);
  return mode == Fan::kIn ? shape.count(1, shape.rank()) : shape[0] * shape.count(2, shape.rank());
}

double rectifier_gain(double negative_slope) {
  return std::sqrt(2.0 / (1.0 + negative_slope * negative_slope));
}

Tensor constant(const Shape& shape, double value) {
  return Tensor::full(shape, value);
}

Tensor uniform(const Shape& shape, double low, double high, Generator& generator) {
  SINTER_CHECK(low <= high, "[init] expected low <= high but got {} and {}", low, high);
  return ops::fill_pairs(shape, generator, [low, width = high - low](const ops::UniformPair& u) {
    return std::pair(low + width * (1.0 - u.above_zero), low + width * u.below_one);
  });
}

Tensor normal(const Shape& shape, double mean, double deviation, Generator& generator) {
  SINTER_CHECK(deviation >= 0.0, "[init] expected a deviation >= 0 but got {}", deviation);
  return ops::fill_pairs(shape, generator,
                         [=](const ops::UniformPair& u) { return ops::normal_pair(u, mean, deviation); });
}

Tensor kaiming_normal(const Shape& shape, Generator& generator, const KaimingOptions& options) {
  return normal(shape, 0.0, kaiming_deviation(shape, options), generator);
}

Tensor kaiming_uniform(const Shape& shape, Generator& generator, const KaimingOptions& options) {
  return uniform_with_deviation(shape, kaiming_deviation(shape, options), generator);
}

Tensor xavier_normal(const Shape& shape, Generator& generator, double gain) {
  return normal(shape, 0.0, xavier_deviation(shape, gain), generator);
}

Tensor xavier_uniform(const Shape& shape, Generator& generator, double gain) {
  return uniform_with_deviation(shape, xavier_deviation(shape, gain), generator);
}

Tensor default_weight(const Shape& weight_shape, Generator& generator) {
  return kaiming_uniform(weight_shape, generator, {.negative_slope = std::sqrt(5.0)});
}

Tensor default_bias(const Shape& weight_shape, Generator& generator) {
  const double bound =
      1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(fan(weight_shape, Fan::kIn), 1)));
  return uniform({weight_shape[0]}, -bound, bound, generator);
}

Tensor dirac(const Shape& shape, Generator& generator) {
  SINTER_CHECK(shape.rank() == 4, "[init] expected filters of rank 4 but got shape {}", shape);
  const int64_t out = shape[0], in = shape[1], height = shape[2], width = shape[3];
  const Tensor made = Tensor::zeros(shape);
  float* const values = made.data<float>();
  if (height * width == 0) return made;
  const int64_t handed_on = std::min(out, in);
  for (int64_t i = 0; i < handed_on; ++i)
    values[((i * in + i) * height + height / 2) * width + width / 2] = 1.0f;
  if (out > handed_on) {
    const Tensor drawn = default_weight({out - handed_on, in, height, width}, generator);
    std::copy_n(drawn.data<float>(), drawn.numel(), values + handed_on * in * height * width);
  }
  return made;
}

}  // namespace sinter::nn::init
