// cast gives the nearest value, ties to even, from every dtype to every floating-point one: against a search
// among neighbours in exact arithmetic, on every device.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>

namespace sinter::ops {
namespace {

/// A non-negative finite number of a 16-bit format, by its bits.
template <class T>
long double magnitude(uint16_t bits) {
  T value;
  value.bits = bits;
  return static_cast<long double>(static_cast<float>(value));
}

/// The bits of the nearest number to `value`, by bisection; long double holds every double and int64.
template <class T>
uint16_t nearest_bits(long double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const long double size = std::fabs(value);
  const uint16_t infinity = std::is_same_v<T, float16> ? 0x7c00 : 0x7f80;
  uint16_t low = 0, high = infinity;  // magnitude(low) <= size
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (magnitude<T>(middle) <= size ? low : high) = middle;
  }
  // What would follow the largest number if the exponent went on stands for infinity.
  const long double below = magnitude<T>(low);
  const long double above =
      high == infinity ? 2 * below - magnitude<T>(static_cast<uint16_t>(low - 1)) : magnitude<T>(high);
  const bool up = size - below > above - size || (size - below == above - size && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

template <class To, class From>
void check(const std::vector<From>& values, Device device) {
  const Tensor x = Tensor::from_values(values, {static_cast<int64_t>(values.size())}).to(device);
  const auto got = cast(x, dtype_of<To>).template to_vector<To>();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i].bits, nearest_bits<To>(static_cast<long double>(values[i])))
        << to_string(dtype_of<From>) << " to " << to_string(dtype_of<To>) << " element " << i << ": "
        << values[i];
  }
}

/// Doubles on and right beside the numbers of a format and the middles between them.
template <class To>
std::vector<double> hard_doubles(Generator& generator) {
  std::vector<double> values = {0.0, -0.0, 5e-324, -5e-324, 1e300, -1e300, 3.4e38, 65519.999999999};
  const uint64_t infinity = std::is_same_v<To, float16> ? 0x7c00 : 0x7f80;
  for (int i = 0; i < 20000; ++i) {
    // Subnormal numbers, and all others.
    const auto bits = static_cast<uint16_t>(generator.below(i < 64 ? 64 : infinity - 1));
    const auto a = static_cast<double>(magnitude<To>(bits)),
               b = static_cast<double>(magnitude<To>(static_cast<uint16_t>(bits + 1)));
    const double places[] = {a, b, a + (b - a) / 2, a + (b - a) * static_cast<double>(generator.uniform())};
    double value = places[generator.below(4)];
    // One step, or few, to either side: what a rounding to float forgets.
    for (uint64_t steps = generator.below(4); steps > 0; --steps) {
      value = std::nextafter(value, generator.below(2) == 0 ? -1.0 : 1e300);
    }
    values.push_back(generator.below(2) == 0 ? value : -value);
  }
  return values;
}

/// Whole numbers of every length, with few bits set or cleared beside their middle.
template <class Integer>
std::vector<Integer> hard_integers(Generator& generator) {
  std::vector<Integer> values = {0, 1, -1, std::numeric_limits<Integer>::max(),
                                 std::numeric_limits<Integer>::lowest()};
  constexpr int kBits = std::numeric_limits<Integer>::digits;
  for (int i = 0; i < 20000; ++i) {
    const auto length = static_cast<int>(1 + generator.below(uint64_t{kBits}));
    uint64_t value = generator.below(1 << 13);  // a bit more than either format holds
    value = length > 13 ? value << (length - 13) : value >> (13 - length);
    value ^= generator.below(8);
    const auto whole =
        static_cast<Integer>(value & static_cast<uint64_t>(std::numeric_limits<Integer>::max()));
    values.push_back(generator.below(2) == 0 ? whole : static_cast<Integer>(-whole));
  }
  return values;
}

class CastRounding : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CastRounding, OfDoublesIsOneRounding) {
  Generator generator(20261122);
  check<float16>(hard_doubles<float16>(generator), GetParam());
  check<bfloat16>(hard_doubles<bfloat16>(generator), GetParam());
}

TEST_P(CastRounding, OfIntegersIsOneRounding) {
  Generator generator(20261123);
  const auto long_ones = hard_integers<int64_t>(generator);
  check<float16>(long_ones, GetParam());
  check<bfloat16>(long_ones, GetParam());
  const auto short_ones = hard_integers<int32_t>(generator);
  check<float16>(short_ones, GetParam());
  check<bfloat16>(short_ones, GetParam());
}

TEST_P(CastRounding, KeepsWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor x =
      Tensor::from_values<double>({kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}, {3});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const auto got = cast(cast(x.to(GetParam()), dtype), DType::kFloat64).to_vector<double>();
    EXPECT_EQ(got[0], kInfinity);
    EXPECT_EQ(got[1], -kInfinity);
    EXPECT_TRUE(std::isnan(got[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CastRounding, testing::Values(Device::cpu(), Device::cuda()),
                         [](const auto& place) { return place.param.is_cpu() ? "cpu" : "cuda"; });

}  // namespace
}  // namespace sinter::ops
