// Random draws that belong to one sample of one epoch, whichever thread makes them and whenever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <sinter/core/runtime/random.h>

namespace sinter::nn::data {

/// The Philox stream of (seed, epoch, sample): a small value, whose copy repeats the same draws.
class SampleRandom {
 public:
  /// A number that no sample has; its stream orders the epoch.
  static constexpr uint64_t kShuffle = ~uint64_t{0};

  SampleRandom() = default;
  /// 2^32 epochs of 2^32 blocks each are distinct.
  SampleRandom(uint64_t seed, int64_t epoch, uint64_t sample)
      : seed_(seed), counter_(static_cast<uint64_t>(epoch) << 32), stream_(sample) {}

  uint32_t word() {
    if (used_ == 4) {
      block_ = philox(seed_, counter_++, stream_);
      used_ = 0;
    }
    return block_.words[used_++];
  }
  /// In [0, 1).
  float uniform() { return uniform_from_word(word()); }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(uniform()); }
  /// In [0, bound), bound > 0; without favour (Lemire, "Fast random integer generation in an interval",
  /// 2019).
  uint64_t below(uint64_t bound) {
    uint64_t high = 0;
    uint64_t low = multiply(bits(), bound, high);
    if (low < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (low < threshold) low = multiply(bits(), bound, high);
    }
    return high;
  }

 private:
  uint64_t bits() {
    const uint64_t high = word();
    return high << 32 | word();
  }
  static uint64_t multiply(uint64_t a, uint64_t b, uint64_t& high) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    high = static_cast<uint64_t>(product >> 64);
    return static_cast<uint64_t>(product);
  }

  uint64_t seed_ = 0;
  uint64_t counter_ = 0;
  uint64_t stream_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

/// 0 ... count - 1 in an order that `seed` and `epoch` give (Fisher and Yates' shuffle).
inline std::vector<int64_t> shuffled_indices(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  SampleRandom random(seed, epoch, SampleRandom::kShuffle);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace sinter::nn::data
