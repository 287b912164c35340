// Random tensors that host code draws, two elements from each block of the generator's stream.
#pragma once

#include <cmath>
#include <numbers>
#include <utility>

#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Two uniform numbers with 53 random bits, in (0, 1] and in [0, 1).
struct UniformPair {
  double above_zero, below_one;
};

inline UniformPair uniform_pair(const PhiloxBlock& block) {
  const uint64_t first = (uint64_t{block.words[0]} << 32) | block.words[1];
  const uint64_t second = (uint64_t{block.words[2]} << 32) | block.words[3];
  return {(static_cast<double>(first >> 11) + 1.0) * 0x1p-53, static_cast<double>(second >> 11) * 0x1p-53};
}

/// Two draws of a normal distribution. Source: G. Box, M. Muller, "A note on the generation of random normal
/// deviates", 1958.
inline std::pair<double, double> normal_pair(const UniformPair& u, double mean, double deviation) {
  const double radius = deviation * std::sqrt(-2.0 * std::log(u.above_zero));
  const double angle = 2.0 * std::numbers::pi * u.below_one;
  return {mean + radius * std::cos(angle), mean + radius * std::sin(angle)};
}

/// A float32 tensor on the CPU of `draw(UniformPair)`, which gives two elements; independent of the thread
/// count.
template <class Draw>
Tensor fill_pairs(const Shape& shape, Generator& generator, const Draw& draw) {
  constexpr int64_t kBlocksPerTask = 1 << 14;
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

}  // namespace sinter::ops
