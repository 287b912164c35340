// The functions for results of 16 bits, for every number of both types: on the CPU their formulas, on a GPU
// its approximate instructions, through the ops that use them.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/unary/unary_math.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;
namespace coarse = math::coarse;

struct Case {
  const char* name;
  float (*formula)(float);
  double (*exact)(double);
  Tensor (*op)(const Tensor&);
  double lowest = -1e300;  // below, float32 overflows on the way and gives 0, for tiny results of bfloat16
};

const Case kCases[] = {
    {"log", coarse::log, [](double x) { return std::log(x); }, log},
    {"sqrt", coarse::sqrt, [](double x) { return std::sqrt(x); }, sqrt},
    {"sin", coarse::sin, [](double x) { return std::sin(x); }, sin},
    {"cos", coarse::cos, [](double x) { return std::cos(x); }, cos},
    {"tanh", coarse::tanh, [](double x) { return std::tanh(x); }, tanh},
    {"erf", coarse::erf, [](double x) { return std::erf(x); }, erf},
    {"reciprocal", [](float x) { return Reciprocal<float>().coarse(x); }, [](double x) { return 1 / x; },
     reciprocal},
    {"sigmoid", [](float x) { return Sigmoid<float>().coarse(x); },
     [](double x) { return 1 / (1 + std::exp(-x)); }, sigmoid, -88},
    {"silu", [](float x) { return Silu<float>().coarse(x); }, [](double x) { return x / (1 + std::exp(-x)); },
     silu, -88},
    {"gelu", [](float x) { return Gelu<float>().coarse(x); },
     [](double x) { return x * 0.5 * std::erfc(-x * std::sqrt(0.5)); }, gelu},
    {"softplus", [](float x) { return Softplus<float>().coarse(x); },
     [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::abs(x))); },
     [](const Tensor& x) { return softplus(x); }},
    {"pow 1.5", [](float x) { return coarse::pow(x, 1.5F); }, [](double x) { return std::pow(x, 1.5); },
     [](const Tensor& x) { return pow(x, 1.5); }},
    {"pow 3", [](float x) { return coarse::pow(x, 3.0F); }, [](double x) { return std::pow(x, 3); },
     [](const Tensor& x) { return pow(x, 3); }},
    {"pow -2.7", [](float x) { return coarse::pow(x, -2.7F); },
     [](double x) { return std::pow(x, double{-2.7F}); }, [](const Tensor& x) { return pow(x, -2.7F); }},
    {"pow -4", [](float x) { return coarse::pow(x, -4.0F); }, [](double x) { return std::pow(x, -4); },
     [](const Tensor& x) { return pow(x, -4); }},
};

/// Every number of T.
template <class T>
std::vector<T> all_numbers() {
  std::vector<T> numbers(65536);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i].bits = static_cast<uint16_t>(i);
  return numbers;
}

/// The distance from `value` to the next number of T away from 0.
template <class T>
double step_at(T value) {
  T next = value;
  next.bits = static_cast<uint16_t>((value.bits & 0x7FFFU) + 1U);
  return static_cast<double>(static_cast<float>(next)) -
         std::abs(static_cast<double>(static_cast<float>(value)));
}

/// `got` is the number of T nearest to `exact`, or one beside it that is hardly farther.
template <class T>
testing::AssertionResult is_rounded(T got, double exact) {
  const auto value = static_cast<double>(static_cast<float>(got));
  const auto nearest = static_cast<T>(static_cast<float>(exact));
  const auto wanted = static_cast<double>(static_cast<float>(nearest));
  if (std::isnan(wanted) ? std::isnan(value) : value == wanted && std::signbit(value) == std::signbit(exact))
    return testing::AssertionSuccess();
  if (std::isfinite(wanted) && std::abs(value - exact) <= 0.6 * step_at(nearest))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "got " << value << " for " << exact;
}

template <class T>
void check_formulas() {
  for (const Case& c : kCases) {
    for (const T x : all_numbers<T>()) {
      const auto value = static_cast<float>(x);
      if (value < c.lowest && std::isfinite(value)) continue;
      const bool is_angle = c.formula == coarse::sin || c.formula == coarse::cos;
      if (is_angle && std::abs(value) > coarse::kMostAngle && std::isfinite(value)) continue;
      ASSERT_TRUE(is_rounded(static_cast<T>(c.formula(value)), c.exact(value))) << c.name << " of " << value;
    }
  }
}

TEST(CoarseMath, RoundsToTheNearestNumberOfFloat16) {
  check_formulas<float16>();
}

TEST(CoarseMath, RoundsToTheNearestNumberOfBFloat16) {
  check_formulas<bfloat16>();
}

class CoarseMathOnCuda : public GpuTest {
 protected:
  template <class T>
  void check_ops() {
    const NoGrad no_grad;
    const std::vector<T> numbers = all_numbers<T>();
    const Tensor x = on_gpu(Tensor::from_values(numbers, {std::ssize(numbers)}));
    for (const Case& c : kCases) {
      const auto got = c.op(x).to(Device::cpu()).template to_vector<T>();
      for (size_t i = 0; i < numbers.size(); ++i) {
        const auto value = static_cast<float>(numbers[i]);
        if (value < c.lowest && std::isfinite(value)) continue;
        ASSERT_TRUE(is_rounded(got[i], c.exact(value))) << c.name << " of " << value;
      }
    }
  }
  template <class T>
  void check_quotients(float divisor) {
    const NoGrad no_grad;
    const std::vector<T> numbers = all_numbers<T>();
    const Tensor x = on_gpu(Tensor::from_values(numbers, {std::ssize(numbers)}));
    const auto by = static_cast<T>(divisor);
    const Tensor b = on_gpu(Tensor::from_values(std::vector<T>(numbers.size(), by), {std::ssize(numbers)}));
    const auto got = div(x, b).to(Device::cpu()).template to_vector<T>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double exact = double{static_cast<float>(numbers[i])} / double{static_cast<float>(by)};
      ASSERT_TRUE(is_rounded(got[i], exact)) << static_cast<float>(numbers[i]) << " by " << divisor;
    }
  }
};

TEST_F(CoarseMathOnCuda, OpsRoundToTheNearestNumber) {
  check_ops<float16>();
  check_ops<bfloat16>();
}

TEST_F(CoarseMathOnCuda, QuotientsToo) {
  for (const float divisor : {3.0F, -0.7F, 0.0F, 2.0F, 1e-5F, 6e4F, INFINITY}) {
    check_quotients<float16>(divisor);
    check_quotients<bfloat16>(divisor);
  }
  for (const float divisor : {1e-39F, 2e38F}) check_quotients<bfloat16>(divisor);
}

}  // namespace
}  // namespace sinter::ops
