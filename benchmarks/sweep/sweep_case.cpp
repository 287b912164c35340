#include "sweep_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>

namespace sinter::bench {
namespace {

constexpr int kMostTries = 100'000;  // for one case

/// Draws sides and sizes.
class Dice {
 public:
  explicit Dice(Generator& generator) : generator_(generator) {}

  bool chance(double probability) { return generator_.uniform() < probability; }
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(generator_.below(static_cast<uint64_t>(high - low + 1)));
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(generator_.uniform());
  }
  double log_uniform(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + integer(0, static_cast<int64_t>(choices.size()) - 1));
  }
  /// A power of two, a multiple of 8, a prime or any number near `target`, each as likely.
  int64_t side(double target);

 private:
  Generator& generator_;
};

bool is_prime(int64_t number) {
  if (number < 2) return false;
  for (int64_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) return false;
  }
  return true;
}

int64_t Dice::side(double target) {
  const int64_t near = std::max<int64_t>(1, std::llround(target));
  switch (integer(0, 3)) {
    case 0:
      return int64_t{1} << std::lround(std::log2(static_cast<double>(near)));
    case 1:
      return near < 8 ? near : (near + 4) / 8 * 8;
    case 2: {
      int64_t prime = std::max<int64_t>(2, near);
      while (!is_prime(prime)) ++prime;
      return prime;
    }
    default:
      return near;
  }
}

DType float_dtype(Dice& dice) {
  using enum DType;
  return dice.pick({kFloat32, kFloat32, kFloat32, kFloat16, kFloat16, kFloat16, kBFloat16, kBFloat16,
                    kBFloat16, kFloat64});
}

/// (N, C, H, W) of about so many elements: few and many channels, square and narrow images, and now and then
/// none (1x1).
std::vector<int64_t> draw_images(Dice& dice, double elements) {
  if (dice.chance(0.08)) {
    const int64_t channels = dice.side(dice.log_uniform(16, 8192));
    return {dice.side(elements / static_cast<double>(channels)), channels, 1, 1};
  }
  const int64_t channels = dice.chance(0.15) ? dice.integer(1, 4) : dice.side(dice.log_uniform(4, 2048));
  const int64_t images = dice.chance(0.1) ? 1 : dice.side(dice.log_uniform(1, 512));
  const double pixels = elements / static_cast<double>(channels * images);
  if (pixels < 1)
    return {std::max<int64_t>(1, std::llround(elements / static_cast<double>(channels))), channels, 1, 1};
  const int64_t width = dice.side(std::sqrt(pixels) * (dice.chance(0.5) ? 1.0 : dice.log_uniform(0.25, 4)));
  if (dice.chance(0.5) && pixels < 1e6) return {images, channels, width, width};
  return {images, channels, dice.side(pixels / static_cast<double>(width)), width};
}

SweepCase draw_prelu(Dice& dice, double bytes) {
  SweepCase c{.family = "prelu", .has_layout = true};
  c.dtype = float_dtype(dice);
  c.kind = dice.chance(0.1) ? "one slope" : "channels";
  c.direction = dice.chance(0.4) ? "forward" : "backward";
  c.layout = dice.pick({Layout::kNCHW, Layout::kNHWC});
  c.shape = draw_images(dice, bytes / static_cast<double>(size_of(c.dtype)));
  return c;
}

SweepCase draw_batch_norm(Dice& dice, double bytes) {
  SweepCase c{.family = "batch_norm", .has_layout = true};
  c.dtype = float_dtype(dice);
  const NormTail tail = kNormTails[dice.integer(0, std::ssize(kNormTails) - 1)];
  c.kind = to_string(tail);
  c.direction = dice.pick({"forward", "backward"});
  c.two_gradients = c.direction == "backward" && has_addend(tail) && dice.chance(0.25);
  c.layout = dice.pick({Layout::kNCHW, Layout::kNHWC});
  c.shape = draw_images(dice, bytes / static_cast<double>(size_of(c.dtype)));
  return c;
}

/// Sides whose product is about `elements`, ones among them.
std::vector<int64_t> draw_sides(Dice& dice, double elements, int rank) {
  std::vector<double> shares(static_cast<size_t>(rank));
  for (double& share : shares) share = dice.chance(rank > 2 ? 0.1 : 0.0) ? 0.0 : dice.uniform(0.15, 1.0);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> sides;
  for (const double share : shares)
    sides.push_back(share == 0.0 ? 1 : dice.side(std::pow(elements, share / all)));
  return sides;
}

std::vector<int64_t> draw_axes(Dice& dice, int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (dice.chance(0.2)) {  // the last two exchanged
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return axes;
  }
  for (size_t i = axes.size() - 1; i > 0; --i)
    std::swap(axes[i], axes[static_cast<size_t>(dice.integer(0, static_cast<int64_t>(i)))]);
  return axes;
}

SweepCase draw_permute(Dice& dice, double bytes) {
  using enum DType;
  SweepCase c{.family = "permute"};
  c.dtype = dice.pick({kFloat32, kFloat32, kFloat32, kFloat16, kFloat16, kFloat16, kBFloat16, kFloat64,
                       kInt64, kInt32, kUInt8, kUInt8});
  const double elements = bytes / static_cast<double>(size_of(c.dtype));
  if (dice.chance(0.25)) {  // images from one layout to the other, heads of attention
    c.shape = draw_images(dice, elements);
    c.axes = dice.pick<std::vector<int64_t>>({{0, 2, 3, 1}, {0, 3, 1, 2}, {0, 2, 1, 3}});
    return c;
  }
  const auto rank = static_cast<int>(dice.integer(2, 6));
  c.shape = draw_sides(dice, elements, rank);
  c.axes = draw_axes(dice, rank);
  return c;
}

/// Whether the order of elements in memory changes.
bool moves_something(const SweepCase& c) {
  int64_t last = -1;
  for (const int64_t axis : c.axes) {
    if (c.shape[static_cast<size_t>(axis)] == 1) continue;
    if (axis < last) return true;
    last = axis;
  }
  return false;
}

SweepCase draw_matvec(Dice& dice, double bytes) {
  SweepCase c{.family = "matvec"};
  c.dtype = float_dtype(dice);
  c.vectors = dice.chance(0.5) ? 1 : dice.integer(2, 16);
  c.kind = c.vectors == 1 ? dice.pick({"a x", "aT x"}) : dice.pick({"a x", "aT x", "x a", "x aT"});
  const int64_t batch = dice.chance(0.15) ? dice.side(dice.log_uniform(2, 64)) : 1;
  const double elements = bytes / static_cast<double>(size_of(c.dtype)) / static_cast<double>(batch);
  const int64_t thin = dice.integer(1, 16);
  const int64_t one =
      dice.chance(0.4) ? thin : dice.side(dice.log_uniform(17, std::max(18.0, elements / 17)));
  const int64_t other = dice.side(elements / static_cast<double>(one));
  c.shape = dice.chance(0.5) ? std::vector{one, other} : std::vector{other, one};
  if (batch > 1) c.shape.insert(c.shape.begin(), batch);
  return c;
}

SweepCase draw_one(Dice& dice, const std::string& family, double bytes) {
  if (family == "prelu") return draw_prelu(dice, bytes);
  if (family == "permute") return draw_permute(dice, bytes);
  if (family == "batch_norm") return draw_batch_norm(dice, bytes);
  return draw_matvec(dice, bytes);
}

/// Rounding sides may have led out of the sizes that were asked for, and statistics want some values.
bool is_wanted(const SweepCase& c, const SweepDraw& draw) {
  if (c.bytes() < draw.smallest_bytes || c.bytes() > draw.largest_bytes) return false;
  if (c.family == "permute") return moves_something(c);
  return c.family != "batch_norm" || c.elements() / c.shape[1] >= 16;
}

std::vector<SweepCase> draw_family(const SweepDraw& draw, const std::string& family, uint64_t number) {
  Generator generator(draw.seed * 16 + number);
  Dice dice(generator);
  std::vector<SweepCase> cases;
  std::set<std::string> known;
  for (int tries = 0; std::ssize(cases) < draw.cases; ++tries) {
    SINTER_CHECK(tries < kMostTries * draw.cases, "[sweep] found no more cases of {} between {} and {} bytes",
                 family, draw.smallest_bytes, draw.largest_bytes);
    const SweepCase c = draw_one(dice, family, dice.log_uniform(draw.smallest_bytes, draw.largest_bytes));
    if (!is_wanted(c, draw)) continue;
    if (known.insert(fmt::format("{} {} {}", to_string(c), c.dtype, to_string(c.layout))).second)
      cases.push_back(c);
  }
  return cases;
}

}  // namespace

int64_t SweepCase::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

double SweepCase::bytes() const {
  return static_cast<double>(elements()) * static_cast<double>(size_of(dtype));
}

std::string to_string(const SweepCase& c) {
  const std::string shape = fmt::format("({})", fmt::join(c.shape, ","));
  if (c.family == "permute") return fmt::format("permute {} -> ({})", shape, fmt::join(c.axes, ","));
  if (c.family == "matvec") {
    return fmt::format("matvec {} {}{}", shape, c.kind,
                       c.vectors == 1 ? "" : fmt::format(", {} vectors", c.vectors));
  }
  if (c.family == "prelu") {
    return fmt::format("prelu {} {}{}", c.direction, shape, c.kind == "channels" ? "" : ", " + c.kind);
  }
  return fmt::format("{} {}{} {}", c.direction, c.kind, c.two_gradients ? " dy+dy2" : "", shape);
}

NormCase norm_case_of(const SweepCase& c) {
  for (const NormTail tail : kNormTails) {
    if (to_string(tail) == c.kind)
      return {tail, {c.shape[0], c.shape[1], c.shape[2], c.shape[3]}, c.dtype, c.layout, c.two_gradients};
  }
  throw_error<InvalidArgument>("[sweep] batch_norm has no kind '{}'", c.kind);
}

std::vector<SweepCase> draw_cases(const SweepDraw& draw) {
  SINTER_CHECK(draw.cases > 0 && draw.smallest_bytes > 0 && draw.smallest_bytes < draw.largest_bytes,
               "[sweep] expected some cases and sizes, the smaller first");
  std::vector<std::vector<SweepCase>> lists;
  for (const std::string& family : draw.families) {
    const auto* found = std::find(std::begin(kSweepFamilies), std::end(kSweepFamilies), family);
    SINTER_CHECK(found != std::end(kSweepFamilies), "[sweep] there is no family '{}', only {}", family,
                 fmt::join(kSweepFamilies, ", "));
    lists.push_back(draw_family(draw, family, static_cast<uint64_t>(found - std::begin(kSweepFamilies))));
  }
  std::vector<SweepCase> cases;
  for (size_t i = 0; i < static_cast<size_t>(draw.cases); ++i) {
    for (const std::vector<SweepCase>& list : lists) cases.push_back(list[i]);
  }
  return cases;
}

}  // namespace sinter::bench
