#include <cmath>
#include <numbers>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>

namespace sinter {

uint32_t Generator::word() {
  const RandomKey key = next_on_host(1);
  return philox(key.seed, key.offset).words[0];
}

uint64_t Generator::below(uint64_t bound) {
  SINTER_CHECK(bound > 0, "[random] expected a bound > 0 but got 0");
  // Rejecting the first 2^64 mod bound values leaves a whole number of copies of [0, bound), so no value is
  // favoured.
  const uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const RandomKey key = next_on_host(1);
    const PhiloxBlock block = philox(key.seed, key.offset);
    const uint64_t value = (uint64_t{block.words[0]} << 32) | block.words[1];
    if (value >= threshold) return value % bound;
  }
}

double Generator::normal() {
  // Box and Muller (1958), with 53-bit uniforms so that the tails reach beyond 8 deviations.
  const RandomKey key = next_on_host(1);
  const PhiloxBlock block = philox(key.seed, key.offset);
  const uint64_t first = (uint64_t{block.words[0]} << 32) | block.words[1];
  const uint64_t second = (uint64_t{block.words[2]} << 32) | block.words[3];
  const double u = (static_cast<double>(first >> 11) + 1.0) * 0x1p-53;  // in (0, 1]
  const double v = static_cast<double>(second >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

double Generator::log_gamma_draw(double shape) {
  SINTER_CHECK(shape > 0 && std::isfinite(shape), "[random] expected a positive, finite shape but got {}",
               shape);
  const auto log_uniform = [this] {
    const RandomKey key = next_on_host(1);
    const PhiloxBlock block = philox(key.seed, key.offset);
    const uint64_t bits = (uint64_t{block.words[0]} << 32) | block.words[1];
    return std::log((static_cast<double>(bits >> 11) + 1.0) * 0x1p-53);  // of a number in (0, 1]
  };
  // Below 1, a draw for shape + 1 times u^(1 / shape); as a logarithm, since that soon is below all doubles.
  const double boost = shape < 1.0 ? log_uniform() / shape : 0.0;
  const double d = (shape < 1.0 ? shape + 1.0 : shape) - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal(), root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (log_uniform() < 0.5 * x * x + d * (1.0 - v + std::log(v))) return boost + std::log(d) + std::log(v);
  }
}

double Generator::gamma(double shape) {
  return std::exp(log_gamma_draw(shape));
}

double Generator::beta(double a, double b) {
  const double first = log_gamma_draw(a), second = log_gamma_draw(b);
  return 1.0 / (1.0 + std::exp(second - first));
}

namespace {

RandomPartScope::Part& present_part() {
  thread_local RandomPartScope::Part part;
  return part;
}

}  // namespace

RandomPartScope::RandomPartScope(int part, int parts) : before_(present_part()) {
  SINTER_CHECK(part >= 0 && part < parts,
               "[random] expected a part below the number of parts but got {} of {}", part, parts);
  present_part() = {static_cast<uint64_t>(part), static_cast<uint64_t>(parts)};
}

RandomPartScope::~RandomPartScope() {
  present_part() = before_;
}

RandomPartScope::Part RandomPartScope::current() {
  return present_part();
}

Generator& default_generator() {
  thread_local Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) {
  default_generator() = Generator(seed);
}

}  // namespace sinter
