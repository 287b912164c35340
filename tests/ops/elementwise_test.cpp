// Elementwise ops: errors by their exact text, special values, integer dtypes, empty tensors, operators.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cpu/elementwise_op_cpu.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
Tensor row(std::vector<T> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Tensor::from_values(values, {count});
}

Tensor bool_row(std::initializer_list<int64_t> values) {
  return cast(row(std::vector<int64_t>(values)), DType::kBool);
}

std::vector<int64_t> flags(const Tensor& x) {
  return cast(x, DType::kInt64).to_vector<int64_t>();
}

TEST(Softplus, NeitherOverflowsNorLosesSmallValues) {
  const Tensor x = Tensor::from_values<float>({-200, -30, 0, 30, 200}, {5}).set_requires_grad(true);
  const Tensor y = softplus(x);
  const std::vector<float> got = y.to_vector<float>();
  const std::vector<float> expected{std::exp(-200.0f), std::exp(-30.0f), std::log(2.0f), 30, 200};
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6f * expected[i]) << i;
}

TEST(Binary, ErrorsNameOpAndInputs) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of([&] {
              add(x, zeros({2, 3}, DType::kFloat64));
            }),
            "[add] expected b and a of one dtype but got float64 and float32");
  EXPECT_EQ(message_of([&] { mul(x, zeros({2})); }),
            "[mul] shapes (2, 3) and (2,) cannot be broadcast together");
  EXPECT_EQ(message_of([&] { sub(bool_row({1}), bool_row({1})); }),
            "[sub] expected a of a numeric dtype but got bool");
  EXPECT_EQ(message_of([&] { div(row<int32_t>({1}), row<int32_t>({1})); }),
            "[div] expected a of a floating-point dtype but got int32");
  EXPECT_EQ(message_of([&] { vjp::maximum(zeros({3}), x, x); }),
            "[maximum_grad] expected dy of shape (2, 3) but got (3,)");
}

TEST(Binary, ExtremesAndComparisonsWithNaN) {
  const Tensor a = row<float>({kNaN, 1, kInf, 2}), b = row<float>({1, kNaN, 3, 2});
  const std::vector<float> largest = maximum(a, b).to_vector<float>(),
                           smallest = minimum(a, b).to_vector<float>();
  for (size_t i : {0u, 1u}) {
    EXPECT_TRUE(std::isnan(largest[i]));
    EXPECT_TRUE(std::isnan(smallest[i]));
  }
  EXPECT_EQ(largest[2], kInf);
  EXPECT_EQ(smallest[2], 3);
  EXPECT_EQ(flags(equal(a, b)), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(flags(less(a, b)), (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(flags(greater(a, b)), (std::vector<int64_t>{0, 0, 1, 0}));
}

TEST(Binary, IntegersWrapAround) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(add(row<int32_t>({kMost}), row<int32_t>({1})).item(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(mul(row<int64_t>({-7}), row<int64_t>({6})).item(), -42);
  EXPECT_EQ(sub(row<uint8_t>({3}), row<uint8_t>({5})).item(), 254);
  EXPECT_EQ(maximum(row<int64_t>({-7}), row<int64_t>({6})).item(), 6);
  EXPECT_EQ(flags(equal(bool_row({0, 1}), bool_row({1, 1}))), (std::vector<int64_t>{0, 1}));
}

TEST(Binary, TiesShareTheGradient) {
  const Tensor a = row<float>({1, 2, 3}).set_requires_grad(true),
               b = row<float>({1, 3, 2}).set_requires_grad(true);
  backward(sum(maximum(a, b)));
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{0.5, 0, 1}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{0.5, 1, 0}));
}

TEST(Binary, BroadcastsEmptyTensors) {
  EXPECT_EQ(add(zeros({0, 3}), zeros({1, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(add(zeros({2, 1}), zeros({0})).shape(), (Shape{2, 0}));
}

TEST(BroadcastPlan, MergesAxes) {
  const auto same = plan_broadcast<2>({2, 3, 4}, {Shape{2, 3, 4}, Shape{2, 3, 4}});
  EXPECT_EQ(same.rank, 1);
  EXPECT_EQ(same.inner(), 24);

  const auto channels = plan_broadcast<2>({2, 3, 4, 5}, {Shape{2, 3, 4, 5}, Shape{3, 1, 1}});
  EXPECT_EQ(channels.rank, 3);
  EXPECT_EQ(channels.inner(), 20);
  EXPECT_TRUE(channels.steps(0));
  EXPECT_FALSE(channels.steps(1));
  EXPECT_EQ(channels.strides[1][1], 1);
  EXPECT_EQ(channels.strides[1][0], 0);

  const auto scalar = plan_broadcast<2>({7, 8}, {Shape{7, 8}, Shape{}});
  EXPECT_EQ(scalar.rank, 1);
  EXPECT_FALSE(scalar.steps(1));

  const auto single = plan_broadcast<2>({1, 1}, {Shape{1, 1}, Shape{}});
  EXPECT_EQ(single.rank, 1);
  EXPECT_EQ(single.inner(), 1);
}

TEST(BroadcastPlan, WalksFromAnyElement) {
  const Shape out{3, 4, 5};
  const auto plan = plan_broadcast<2>(out, {Shape{3, 1, 5}, Shape{4, 1}});
  for (int64_t begin = 0; begin <= out.numel(); ++begin) {
    int64_t next = begin;
    for_each_run(plan, begin, out.numel(), [&](int64_t first, int64_t count, const auto& offsets) {
      ASSERT_EQ(first, next);
      for (int64_t i = first; i < first + count; ++i) {
        const int64_t x = i / 20 * 5 + i % 5, y = i / 5 % 4;
        ASSERT_EQ(offsets[0] + (plan.steps(0) ? i - first : 0), x);
        ASSERT_EQ(offsets[1] + (plan.steps(1) ? i - first : 0), y);
      }
      next = first + count;
    });
    ASSERT_EQ(next, out.numel());
  }
}

TEST(Unary, SpecialValues) {
  const std::vector<float> e = exp(row<float>({kNaN, kInf, -kInf, 0, 89, -104})).to_vector<float>();
  EXPECT_TRUE(std::isnan(e[0]));
  EXPECT_EQ((std::vector<float>(e.begin() + 1, e.end())), (std::vector<float>{kInf, 0, 1, kInf, 0}));
  const std::vector<float> l = log(row<float>({0, -1, kInf})).to_vector<float>();
  EXPECT_EQ(l[0], -kInf);
  EXPECT_TRUE(std::isnan(l[1]));
  EXPECT_EQ(l[2], kInf);
  EXPECT_EQ(sigmoid(row<float>({-kInf, -200, 200, kInf})).to_vector<float>(),
            (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(tanh(row<float>({-kInf, -50, 50, kInf})).to_vector<float>(), (std::vector<float>{-1, -1, 1, 1}));
  EXPECT_TRUE(std::signbit(tanh(row<float>({-0.0F})).item()));
  EXPECT_TRUE(std::isnan(tanh(row<float>({kNaN})).item()));
}

TEST(Unary, LogTakesSubnormalsForWhatTheyAre) {
  // Wherever they stand: in a vector, behind the last whole one, among others or alone.
  for (const int64_t count : {1, 3, 8, 9, 16, 33, 700}) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      const float subnormals[] = {1e-40F, 0x1p-133F, 0x1.fffffcp-127F, 3e-39F};
      values[i] = i % 3 == 1 ? 2.5F : subnormals[i % 4];
    }
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Tensor x = cast(row<float>(values), dtype);
      for (const Device device : {Device::cpu(), Device::cuda()}) {
        if (!is_available(device)) continue;
        const auto y = cast(log(x.to(device)).to(Device::cpu()), DType::kFloat64).to_vector<double>();
        const auto exact = cast(x, DType::kFloat64).to_vector<double>();
        for (size_t i = 0; i < values.size(); ++i) {
          const double expected = std::log(exact[i]);
          const double rounding = dtype == DType::kFloat32 ? 0x1p-23 : 0x1p-8;
          ASSERT_LE(std::abs(y[i] - expected), rounding * std::abs(expected))
              << to_string(device) << ' ' << to_string(dtype) << " element " << i << " of " << count;
        }
      }
    }
  }
}

TEST(Unary, Integers) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(abs(row<int64_t>({-3, 4, kLeast})).to_vector<int64_t>(), (std::vector<int64_t>{3, 4, kLeast}));
  EXPECT_EQ(neg(row<uint8_t>({1, 0})).to_vector<uint8_t>(), (std::vector<uint8_t>{255, 0}));
  EXPECT_EQ(square(row<int32_t>({-5})).item(), 25);
  EXPECT_EQ(message_of([] { exp(row<int32_t>({1})); }),
            "[exp] expected x of a floating-point dtype but got int32");
  EXPECT_EQ(message_of([] { neg(bool_row({1})); }), "[neg] expected x of a numeric dtype but got bool");
}

TEST(Unary, AbsoluteValueHasGradientZeroAtZero) {
  const Tensor x = row<float>({-2, 0, 3}).set_requires_grad(true);
  backward(sum(abs(x)));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{-1, 0, 1}));
}

TEST(Affine, IntegersNeedWholeNumbers) {
  EXPECT_EQ(affine(row<int64_t>({1, -2}), 3, 1).to_vector<int64_t>(), (std::vector<int64_t>{4, -5}));
  EXPECT_EQ(affine(row<uint8_t>({200}), 2, 0).item(), 144);
  EXPECT_EQ(message_of([] { affine(row<int32_t>({1}), 0.5, 0); }),
            "[affine] expected whole numbers as scale and shift of an int32 tensor but got 0.5 and 0");
  EXPECT_EQ(affine(zeros({0}), 2, 1).numel(), 0);
}

TEST(Operators, CombineTensorsAndNumbers) {
  const Tensor a = row<double>({1, 4}), b = row<double>({2, 8});
  EXPECT_EQ(((a + b) * (b - a) / a).to_vector<double>(), (std::vector<double>{3, 12}));
  EXPECT_EQ((1.0 + a * 2.0 - 3.0).to_vector<double>(), (std::vector<double>{0, 6}));
  EXPECT_EQ((8.0 / a).to_vector<double>(), (std::vector<double>{8, 2}));
  EXPECT_EQ((2.0 - a / 4.0).to_vector<double>(), (std::vector<double>{1.75, 1}));
  EXPECT_EQ((-(a + 1.0)).to_vector<double>(), (std::vector<double>{-2, -5}));
}

TEST(Operators, ThatAssignMakeANewTensorWithItsHistory) {
  const Tensor x = row<double>({1, 4}).set_requires_grad(true), b = row<double>({2, 8});
  Tensor a = x;
  a += b;  // of a leaf, too
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1, 4})) << "other handles keep the old tensor";
  a *= a;
  a -= b;
  a /= b;
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{3.5, 17}));
  a += 1.0;
  a *= 4.0;
  a -= 2.0;
  a /= 2.0;
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{8, 35}));
  backward(sum(a));  // 2 ((x + b)^2 - b) / b + 1
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 6}));
  a += row<double>({1});
  EXPECT_EQ(a.to_vector<double>(), (std::vector<double>{9, 36}));
}

TEST(Operators, CloneIsACopyWithHistory) {
  const Tensor x = row<double>({1, 4}).set_requires_grad(true);
  const Tensor y = x.clone();
  EXPECT_FALSE(y.is_same(x));
  EXPECT_NE(y.raw_data(), x.raw_data());
  backward(sum(y * y));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 8}));
}

TEST(Pow, SpecialExponents) {
  const Tensor x = row<float>({-2, 0, 3}).set_requires_grad(true);
  EXPECT_EQ(pow(x, 3).to_vector<float>(), (std::vector<float>{-8, 0, 27}));
  EXPECT_EQ(pow(x, 0).to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_TRUE(std::isnan(pow(x, 0.5).to_vector<float>()[0]));
  backward(sum(pow(x, 0)));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Clip, BoundsAndIntegers) {
  const Tensor x = row<float>({-3, 0.5, kNaN, kInf}).set_requires_grad(true);
  const std::vector<float> y = clip(x, -1, 2).to_vector<float>();
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(y[1], 0.5);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 2);
  EXPECT_EQ(clip(row<int64_t>({-9, 0, 9}), -2.5, kInf).to_vector<int64_t>(),
            (std::vector<int64_t>{-2, 0, 9}));
  EXPECT_EQ(clip(row<uint8_t>({0, 9}), -4, 7.9).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 7}));
  EXPECT_EQ(message_of([&] { clip(x, 2, 1); }), "[clip] expected low <= high but got 2 and 1");
  EXPECT_EQ(message_of([&] { clip(x, kNaN, 1); }), "[clip] expected low <= high but got nan and 1");
}

TEST(Clip, OfIntegersNeedsAWholeNumberBetweenItsBounds) {
  const Tensor x = row<int64_t>({-5, 0, 1, 5});
  EXPECT_EQ(message_of([&] { clip(x, 0.2, 0.8); }),
            "[clip] expected bounds with a whole number between them for int64 but got 0.2 and 0.8");
  EXPECT_EQ(clip(x, 0.2, 1.8).to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(clip(x, -0.5, 1.0).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(clip(row<float>({0, 1}), 0.25, 0.75).to_vector<float>(), (std::vector<float>{0.25F, 0.75F}));
}

TEST(Pow, ExponentsOftenWrittenHaveKernelsOfTheirOwn) {
  const Tensor x = row<double>({-1.5, 0.7}).set_requires_grad(true);
  EXPECT_EQ(pow(x, 2).to_vector<double>(), square(x).to_vector<double>());
  EXPECT_EQ(pow(x, -1).to_vector<double>(), reciprocal(x).to_vector<double>());
  EXPECT_EQ(vjp::pow(x, x, 2).to_vector<double>(), (std::vector<double>{4.5, 2 * 0.7 * 0.7}));
}

TEST(Activation, SpecialValues) {
  const Tensor x = row<float>({-kInf, -3, 0, 3, kInf});
  EXPECT_EQ(relu(x).to_vector<float>(), (std::vector<float>{0, 0, 0, 3, kInf}));
  EXPECT_EQ(hardsigmoid(x).to_vector<float>(), (std::vector<float>{0, 0, 0.5, 1, 1}));
  EXPECT_EQ(hardswish(x).to_vector<float>(), (std::vector<float>{0, 0, 0, 3, kInf}));
  for (const auto function : {relu, sigmoid, silu, gelu, hardsigmoid, hardswish}) {
    EXPECT_TRUE(std::isnan(function(row<float>({kNaN})).item()));
  }
  EXPECT_EQ(message_of([] { hardswish(row<int32_t>({1})); }),
            "[hardswish] expected x of a floating-point dtype but got int32");
  EXPECT_EQ(softplus(row<float>({-kInf, 500, kInf}), 2.0).to_vector<float>(),
            (std::vector<float>{0, 500, kInf}));
  EXPECT_EQ(message_of([] { softplus(row<float>({1}), 0.0); }), "[softplus] expected beta > 0 but got 0");
}

TEST(Activation, GradientsAtCornersAndNaN) {
  const auto gradient = [](Tensor (*function)(const Tensor&)) {
    const Tensor x = row<float>({-3, 0, 3, kNaN}).set_requires_grad(true);
    backward(sum(function(x)));
    return x.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(relu), (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(gradient(hardsigmoid), (std::vector<float>{0, static_cast<float>(1.0 / 6.0), 0, 0}));
  const std::vector<float> hardswish_gradient = gradient(hardswish);
  EXPECT_EQ(std::vector<float>(hardswish_gradient.begin(), hardswish_gradient.begin() + 3),
            (std::vector<float>{0, 0.5, 1}));
  EXPECT_TRUE(std::isnan(hardswish_gradient[3]));
}

/// x exp(rate x), as a program outside of the library defines an op; its gradient reads x and y.
template <class C>
struct Surge {
  static constexpr const char* kName = "surge";
  static constexpr auto kReads = DerivativeReads::kBoth;
  C rate = C{1};
  bool operator==(const Surge&) const = default;
  static constexpr auto fields() { return std::tuple(field("rate", &Surge::rate)); }

  C operator()(C x) const { return x * std::exp(rate * x); }
  C derivative(C x, C y, C dy) const { return dy * (std::exp(rate * x) + rate * y); }
  void check(const InferContext& context) const {
    SINTER_CHECK(rate > 0, "[{}] expected a rate > 0 but got {}", context.tag(), rate);
  }
};

TEST(ElementwiseOp, OneFunctorMakesAnOpWithItsGradient) {
  OpRegistry& registry = OpRegistry::instance();
  add_elementwise_op<Surge>(registry);
  add_elementwise_cpu_kernels<Surge>(registry);
  const auto run = [](const std::vector<Tensor>& x) {
    return std::vector{call_elementwise(Surge<double>{0.5}, x[0])};
  };
  std::vector<double> values;
  for (int i = 0; i < 700; ++i) values.push_back(-2.0 + 0.005 * i);  // more than one block of a loop
  const Tensor x = row(values);
  EXPECT_EQ(run({x})[0].to_vector<double>()[100], values[100] * std::exp(0.5 * values[100]));
  const GradcheckResult result = gradcheck(run, {copy(x).set_requires_grad(true)});
  EXPECT_TRUE(result.passed) << result.message;
  const Tensor half = cast(x, DType::kFloat16).set_requires_grad(true);
  backward(sum(cast(run({half})[0], DType::kFloat64)));
  const double exact = std::exp(0.5 * values[100]) * (1 + 0.5 * values[100]);
  EXPECT_NEAR(static_cast<double>(half.grad().to_vector<float16>()[100]), exact, 2e-3);
  EXPECT_EQ(registry.get("surge_grad").definition.inputs.size(), 3u);
  EXPECT_EQ(to_string(Attributes(Surge<double>{0.5})), "rate=0.5");
  EXPECT_EQ(message_of([&] { call_elementwise(Surge<double>{-1.0}, x); }),
            "[surge] expected a rate > 0 but got -1");
}

TEST(Cast, SaturatesAndCutsOff) {
  const Tensor x = row<float>({-1.9F, 300.7F, kNaN, kInf, -kInf, 1e10F});
  EXPECT_EQ(cast(x, DType::kUInt8).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 255, 0, 255, 0, 255}));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max(), kLeast = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(cast(x, DType::kInt32).to_vector<int32_t>(),
            (std::vector<int32_t>{-1, 300, 0, kMost, kLeast, kMost}));
  EXPECT_EQ(cast(x, DType::kInt64).to_vector<int64_t>()[5], 10000000000);
  EXPECT_EQ(cast(row<int64_t>({257, -1}), DType::kUInt8).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 255}));
  EXPECT_EQ(flags(bool_row({0, -3, 256})), (std::vector<int64_t>{0, 1, 1}));
  EXPECT_TRUE(cast(x, DType::kFloat32).is_same(x));
}

TEST(Cast, CarriesGradientsBetweenFloats) {
  const Tensor x = row<float>({1, 2}).set_requires_grad(true);
  backward(sum(square(cast(cast(x, DType::kBFloat16), DType::kFloat64))));
  EXPECT_EQ(x.grad().dtype(), DType::kFloat32);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_FALSE(cast(x, DType::kInt32).requires_grad());
}

TEST(Copy, OwnsItsMemory) {
  const Tensor x = row<int32_t>({1, 2, 3});
  const Tensor y = copy(x);
  EXPECT_NE(x.raw_data(), y.raw_data());
  fill_(x, 7);
  EXPECT_EQ(y.to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 3}));
  const uint64_t version = y.version();
  copy_(y, x);
  EXPECT_EQ(y.to_vector<int32_t>(), (std::vector<int32_t>{7, 7, 7}));
  EXPECT_GT(y.version(), version);
  EXPECT_EQ(message_of([&] { copy_(y, row<int32_t>({1})); }),
            "[copy_] expected source of shape (3,) but got (1,)");
  EXPECT_EQ(message_of([&] { copy_(zeros({1}).set_requires_grad(true), zeros({1})); }),
            "[copy_] cannot change 'target' in place while its gradient is recorded; use sinter::NoGrad");
}

TEST(Fill, RepresentsTheValueOrThrows) {
  EXPECT_EQ(full({2}, 0.5, DType::kFloat16).to_vector<float16>()[1].bits, float16(0.5).bits);
  EXPECT_EQ(flags(ones({2}, DType::kBool)), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(full({}, -0x1p63, DType::kInt64).item(), -0x1p63);
  EXPECT_EQ(zeros({0, 4}).shape(), (Shape{0, 4}));
  EXPECT_EQ(full_like(row<uint8_t>({1, 2}), 255).to_vector<uint8_t>(), (std::vector<uint8_t>{255, 255}));
  EXPECT_EQ(message_of([] { full({2}, 0.5, DType::kInt32); }),
            "[full] expected a value that int32 can represent but got 0.5");
  EXPECT_EQ(message_of([] { full({2}, 256, DType::kUInt8); }),
            "[full] expected a value that uint8 can represent but got 256");
  EXPECT_EQ(message_of([] { full({2}, kNaN, DType::kInt64); }),
            "[full] expected a value that int64 can represent but got nan");
}

TEST(Fill, OfTensorsMadeOnTheHostRepresentsTheValueOrThrows) {
  EXPECT_EQ(Tensor::full({1}, 0.1, DType::kFloat16).item<float16>().bits, float16(0.1).bits);
  EXPECT_EQ(Tensor::full({1}, -0x1p31, DType::kInt32).item(), -0x1p31);
  EXPECT_EQ(message_of([] { Tensor::full({2}, -100, DType::kUInt8); }),
            "[full] expected a value that uint8 can represent but got -100");
  EXPECT_EQ(message_of([] { Tensor::full({2}, 1e10, DType::kInt32); }),
            "[full] expected a value that int32 can represent but got 10000000000");
  EXPECT_EQ(message_of([] { Tensor::full_like(row<int64_t>({1}), 0.5); }),
            "[full] expected a value that int64 can represent but got 0.5");
  EXPECT_EQ(message_of([] {
              row<int64_t>({0, 1}) < 0.5;
            }),
            "[less] expected a value that int64 can represent but got 0.5");
  EXPECT_EQ(message_of([] {
              0.5 >= row<int64_t>({0, 1});
            }),
            "[greater_equal] expected a value that int64 can represent but got 0.5");
}

}  // namespace
}  // namespace sinter::ops
