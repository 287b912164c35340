#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/init/init.h>

namespace sinter::nn::init {
namespace {

constexpr int64_t kBlocksPerTask = 1 << 14;

/// The two 53-bit words of a Philox block as numbers in (0, 1] and [0, 1).
struct UniformPair {
  double above_zero;
  double below_one;
};

UniformPair uniform_pair(const PhiloxBlock& block) {
  const uint64_t first = (uint64_t{block.words[0]} << 32) | block.words[1];
  const uint64_t second = (uint64_t{block.words[2]} << 32) | block.words[3];
  return {(static_cast<double>(first >> 11) + 1.0) * 0x1p-53, static_cast<double>(second >> 11) * 0x1p-53};
}

/// Fills a tensor with two elements from each block of the generator's stream, independent of the thread
/// count.
template <class Draw>
Tensor fill_pairs(const Shape& shape, Generator& generator, const Draw& draw) {
  const Tensor made = Tensor::empty(shape);
  float* const values = made.data<float>();
  const int64_t count = shape.numel();
  const int64_t blocks = (count + 1) / 2;
  const RandomKey key = generator.next_on_host(4 * blocks);
  parallel_for(blocks, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto [even, odd] = draw(uniform_pair(philox(key.seed, key.offset + static_cast<uint64_t>(b))));
      values[2 * b] = static_cast<float>(even);
      if (2 * b + 1 < count) values[2 * b + 1] = static_cast<float>(odd);
    }
  });
  return made;
}

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
  return fill_pairs(shape, generator, [low, width = high - low](const UniformPair& u) {
    return std::pair(low + width * (1.0 - u.above_zero), low + width * u.below_one);
  });
}

Tensor normal(const Shape& shape, double mean, double deviation, Generator& generator) {
  SINTER_CHECK(deviation >= 0.0, "[init] expected a deviation >= 0 but got {}", deviation);
  // G. Box, M. Muller, "A note on the generation of random normal deviates", 1958: both of the pair are used.
  return fill_pairs(shape, generator, [mean, deviation](const UniformPair& u) {
    const double radius = deviation * std::sqrt(-2.0 * std::log(u.above_zero));
    const double angle = 2.0 * std::numbers::pi * u.below_one;
    return std::pair(mean + radius * std::cos(angle), mean + radius * std::sin(angle));
  });
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
