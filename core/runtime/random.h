// Random numbers: the counter-based generator Philox4x32-10, which gives the same stream on every device.
//
// Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter {

struct PhiloxBlock {
  uint32_t words[4];
};

/// Four random words for the 128-bit counter (`counter`, `stream`) under the 64-bit key `seed`.
SINTER_HOST_DEVICE inline PhiloxBlock philox(uint64_t seed, uint64_t counter, uint64_t stream = 0) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// A random word as a float in [0, 1), with 24 random bits.
SINTER_HOST_DEVICE inline float uniform_from_word(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// A position in a Philox stream. Element i of a tensor drawn at (seed, offset) takes word i % 4 of the block
/// with counter offset + i / 4.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

/// While one lives, Generator::next() gives this thread part `part` of what `parts` equal parts draw
/// together, and moves on behind all of them: ranks whose generators stand alike draw numbers of their own,
/// and stand alike afterwards. Where the elements of a part are a multiple of 4 in number, they get the words
/// that they would get in one tensor with the elements of all parts, one part behind the other: as processes
/// with a part of a batch each then drop what one process with the batch does. Numbers for host code are not
/// divided. The innermost counts.
class RandomPartScope {
 public:
  /// Throws InvalidArgument unless 0 <= part < parts.
  [[nodiscard]] RandomPartScope(int part, int parts);
  ~RandomPartScope();
  RandomPartScope(const RandomPartScope&) = delete;
  RandomPartScope& operator=(const RandomPartScope&) = delete;

  struct Part {
    uint64_t part = 0, parts = 1;
    bool operator==(const Part&) const = default;
  };
  /// That of this thread.
  static Part current();

 private:
  Part before_;
};

/// Hands out consecutive pieces of one random stream. Small, copyable, and saved whole in a checkpoint.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : key_{seed, 0} {}
  explicit Generator(RandomKey key) : key_(key) {}

  /// The key for `count` elements; the next call continues behind them. Within a RandomPartScope, for those
  /// of its part.
  RandomKey next(int64_t count) {
    const auto [part, parts] = RandomPartScope::current();
    const RandomKey key{key_.seed, key_.offset + part * blocks_of(count)};
    key_.offset += parts * blocks_of(count);
    return key;
  }
  /// For elements that host code computes.
  RandomKey next_on_host(int64_t count) {
    ++host_draws_;
    const RandomKey key = key_;
    key_.offset += blocks_of(count);
    return key;
  }
  /// How often that was asked for, by the functions below too, since this generator was made.
  uint64_t host_draws() const { return host_draws_; }
  RandomKey key() const { return key_; }

  /// One word, float in [0, 1), integer in [0, bound), or draw of the standard normal distribution, for host
  /// code.
  uint32_t word();
  float uniform() { return uniform_from_word(word()); }
  uint64_t below(uint64_t bound);
  double normal();
  /// A draw of the gamma distribution with this shape and a scale of 1, or of the beta distribution, as
  /// mixup's share of an image, in [0, 1]. Throws InvalidArgument unless the parameters are positive and
  /// finite. Source: G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", ACM
  /// Transactions on Mathematical Software 26, 2000.
  double gamma(double shape);
  double beta(double a, double b);

 private:
  static uint64_t blocks_of(int64_t count) { return (static_cast<uint64_t>(count) + 3) / 4; }
  double log_gamma_draw(double shape);

  RandomKey key_;
  uint64_t host_draws_ = 0;
};

/// The calling thread's generator, used where none is given. Starts from seed 0.
Generator& default_generator();

/// Restarts the calling thread's generator.
void manual_seed(uint64_t seed);

}  // namespace sinter
