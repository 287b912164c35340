// Functions that are made of other ops, and cumulative sums and flips beyond their samples: values and
// gradients against PyTorch's, first and second derivatives against finite differences, errors.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/base/error.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/ops.h>

#include "common/error_message.h"
#include "ops/float_places.h"
#include "ops/function_values.h"

namespace sinter::ops {
namespace {

using test::message_of;
using Doubles = std::vector<double>;
using Ints = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

/// As in function_values.py.
Tensor pattern(const Shape& shape, int64_t seed) {
  Doubles values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<double>((7 * i + 3 * seed) % 11 - 5) / 8);
  return Tensor::from_values(values, shape);
}

struct FunctionCase {
  const char* name;
  std::vector<Shape> shapes;
  Function function;
};

/// The same cases as in function_values.py.
std::vector<FunctionCase> function_cases() {
  return {
      {"prod", {{4, 5}}, [](const Tensors& x) { return prod(x[0], {1}); }},
      {"prod.one_zero",
       {{5}},
       [](const Tensors& x) {
         const Tensor zero = Tensor::from_values<double>({0, 0, 0.25, 0, 0}, {5});
         return prod(x[0] + zero.to(x[0].device(), x[0].dtype()));
       }},
      {"cumsum", {{3, 4}}, [](const Tensors& x) { return cumsum(x[0], 0); }},
      {"cumsum.last", {{2, 5}}, [](const Tensors& x) { return cumsum(x[0], -1); }},
      {"flip",
       {{2, 3, 2}},
       [](const Tensors& x) {
         return flip(x[0], {0, -1});
       }},
      {"conv1d",
       {{2, 3, 5}, {4, 3, 3}, {4}},
       [](const Tensors& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1}); }},
      {"conv1d.groups",
       {{1, 4, 6}, {4, 2, 2}},
       [](const Tensors& x) { return conv1d(x[0], x[1], {}, {.dilation = 2, .groups = 2}); }},
      {"layer_norm",
       {{2, 3, 4}, {3, 4}, {3, 4}},
       [](const Tensors& x) {
         return layer_norm(x[0], {3, 4}, x[1], x[2]);
       }},
      {"group_norm",
       {{2, 4, 2, 3}, {4}, {4}},
       [](const Tensors& x) { return group_norm(x[0], 2, x[1], x[2], {.epsilon = 0.25}); }},
      {"instance_norm",
       {{2, 2, 2, 3}, {2}, {2}},
       [](const Tensors& x) { return instance_norm(x[0], x[1], x[2], {.epsilon = 0.25}); }},
      {"adaptive_max_pool2d",
       {{1, 2, 5, 4}},
       [](const Tensors& x) {
         return adaptive_max_pool2d(x[0], {3, 3});
       }},
      {"adaptive_max_pool2d.even",
       {{1, 2, 4, 6}},
       [](const Tensors& x) {
         return adaptive_max_pool2d(x[0], {2, 3});
       }},
      {"pixel_shuffle", {{1, 8, 2, 3}}, [](const Tensors& x) { return pixel_shuffle(x[0], 2); }},
      {"pixel_unshuffle", {{1, 2, 4, 6}}, [](const Tensors& x) { return pixel_unshuffle(x[0], 2); }},
  };
}

class Functions : public FloatPlaceTest {
 protected:
  Tensor tensor(const Tensor& values) const { return cast(values, GetParam().dtype).to(GetParam().device); }
  Tensor tensor(const Doubles& values, const Shape& shape) const {
    return tensor(Tensor::from_values(values, shape));
  }
  Doubles values_of(const Tensor& x) const {
    return cast(x.to(Device::cpu()), DType::kFloat64).to_vector<double>();
  }
  /// 16-bit dtypes compute in float32 and round once.
  double tolerance() const {
    switch (GetParam().dtype) {
      case DType::kFloat64:
        return 1e-13;
      case DType::kFloat32:
        return 2e-6;
      default:
        return GetParam().dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
    }
  }
  void expect_values(const std::string& name, const Tensor& got) const {
    SCOPED_TRACE(name);
    const Doubles &want = kFunctionValues.at(name), values = values_of(got);
    ASSERT_EQ(values.size(), want.size());
    EXPECT_EQ(got.dtype(), GetParam().dtype);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(values[i], want[i], tolerance() * std::max(1.0, std::abs(want[i]))) << i;
  }
};

TEST_P(Functions, GivePyTorchsValuesAndGradients) {
  for (const auto& [name, shapes, function] : function_cases()) {
    Tensors inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(tensor(pattern(shape, static_cast<int64_t>(inputs.size()))).set_requires_grad(true));
    }
    const Tensor y = function(inputs);
    expect_values(name, y);
    backward(y, {.gradient = tensor(pattern(y.shape(), 5))});
    for (size_t i = 0; i < inputs.size(); ++i) expect_values(fmt::format("{}.{}", name, i), inputs[i].grad());
  }
}

TEST_P(Functions, WorkOnChannelsLast) {
  const auto last = [](const Tensor& x) { return permute(x, {0, 2, 3, 1}); };
  const auto expect_same = [&](const Tensor& first, const Tensor& turned) {
    EXPECT_EQ(values_of(last(first)), values_of(turned));
  };
  const Tensor x = tensor(pattern({2, 8, 5, 4}, 1)), w = tensor(pattern({8}, 2));
  expect_same(adaptive_max_pool2d(x, {3, 3}), adaptive_max_pool2d(last(x), {3, 3}, {.layout = Layout::kNHWC}));
  expect_same(pixel_shuffle(x, 2), pixel_shuffle(last(x), 2, {.layout = Layout::kNHWC}));
  const Tensor shuffled = pixel_shuffle(x, 2);
  EXPECT_EQ(values_of(pixel_unshuffle(shuffled, 2)), values_of(x));
  expect_same(x, pixel_unshuffle(last(shuffled), 2, {.layout = Layout::kNHWC}));
  const auto expect_near = [&](const Tensor& first, const Tensor& turned) {
    const Doubles want = values_of(last(first)), got = values_of(turned);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 2 * tolerance() * std::max(1.0, std::abs(want[i])));
  };
  expect_near(group_norm(x, 2, w, w), group_norm(last(x), 2, w, w, {.layout = Layout::kNHWC}));
  expect_near(instance_norm(x, w), instance_norm(last(x), w, {}, {.layout = Layout::kNHWC}));
}

// Shapes that have chunks, many columns, one long row, odd ends: of whole numbers, so that sums are exact.
TEST_P(Functions, LongCumulativeSums) {
  if (is_half(GetParam().dtype)) GTEST_SKIP() << "sums beyond what 16 bits hold";
  for (const Shape& shape :
       {Shape{1, 5001}, Shape{3, 2049}, Shape{300, 129}, Shape{1000, 2}, Shape{70, 1, 65}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      SCOPED_TRACE(fmt::format("{} along {}", shape, axis));
      const Tensor x = tensor(pattern(shape, 3) * 8.0);
      const Doubles values = values_of(x);
      Doubles forwards = values, backwards = values;
      const int64_t stride = shape.stride(axis), extent = shape[axis], count = shape.numel();
      for (int64_t i = 0; i < count; ++i) {
        if (i / stride % extent > 0)
          forwards[static_cast<size_t>(i)] += forwards[static_cast<size_t>(i - stride)];
        const int64_t j = count - 1 - i;
        if (j / stride % extent < extent - 1)
          backwards[static_cast<size_t>(j)] += backwards[static_cast<size_t>(j + stride)];
      }
      x.set_requires_grad(true);
      const Tensor y = cumsum(x, axis);
      EXPECT_EQ(values_of(y), forwards);
      backward(y, {.gradient = x.detach()});
      EXPECT_EQ(values_of(x.grad()), backwards);
    }
  }
}

TEST_P(Functions, NanIsTheLargestOfAWindow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = tensor({1, nan, 3, /**/ 4, 2, 0, /**/ 0, 5, 1}, {1, 1, 3, 3}).set_requires_grad(true);
  const Tensor y = adaptive_max_pool2d(x, {2, 2});
  const Doubles values = values_of(y);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_EQ(Doubles(values.begin() + 2, values.end()), (Doubles{5, 5}));
  backward(y, {.gradient = tensor({1, 2, 4, 8}, {1, 1, 2, 2})});
  EXPECT_EQ(values_of(x.grad()), (Doubles{0, 3, 0, 0, 0, 0, 0, 12, 0}));
}

TEST_P(Functions, TellNumbersFromOthers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({1, infinity, -infinity, std::nan(""), 0}, {5});
  const auto flags = [](const Tensor& t) { return cast(t, DType::kUInt8).to_vector<uint8_t>(); };
  EXPECT_EQ(flags(isnan(x)), (std::vector<uint8_t>{0, 0, 0, 1, 0}));
  EXPECT_EQ(flags(isinf(x)), (std::vector<uint8_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(flags(isfinite(x)), (std::vector<uint8_t>{1, 0, 0, 0, 1}));
  EXPECT_FALSE(allclose(x, x));
  EXPECT_TRUE(allclose(x, x, {.equal_nan = true}));
  EXPECT_TRUE(allclose(tensor({1, infinity}, {2}), tensor({1, infinity}, {2})));
  EXPECT_FALSE(allclose(tensor({1, infinity}, {2}), tensor({1, -infinity}, {2})));
  EXPECT_FALSE(allclose(tensor({0}, {1}), tensor({infinity}, {1})));
  EXPECT_TRUE(allclose(tensor({1.125}, {1}), tensor({1}, {1}), {.rtol = 0.125}));
  EXPECT_FALSE(allclose(tensor({1.25}, {1}), tensor({1}, {1}), {.rtol = 0.125}));
  EXPECT_TRUE(allclose(tensor({0.25}, {1}), tensor({0}, {1}), {.atol = 0.25}));
  EXPECT_TRUE(allclose(tensor({}, {0}), tensor({}, {0})));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Functions, testing::ValuesIn(float_places()), float_place_name);

TEST(FunctionsTest, DerivativesOfBothOrders) {
  for (const auto& [name, shapes, function] : function_cases()) {
    SCOPED_TRACE(name);
    SampleMaker maker(17, DType::kFloat64);
    Tensors inputs;
    for (const Shape& shape : shapes) inputs.push_back(maker.distinct(shape).set_requires_grad(true));
    const auto run = [function = function](const Tensors& in) { return Tensors{function(in)}; };
    const GradcheckResult first = gradcheck(run, inputs), second = gradgradcheck(run, inputs);
    EXPECT_TRUE(first) << first.message;
    EXPECT_TRUE(second) << second.message;
  }
}

// Where elements are 0 the gradient is the product of the others, and so on: nothing is divided.
TEST(FunctionsTest, DerivativesOfProductsWithZeros) {
  for (const Doubles& values :
       {Doubles{2, 0, 3}, Doubles{0, 0, 3}, Doubles{0, 0, 0}, Doubles{1, 2, 0, 4, 5, 0, 7}}) {
    const auto run = [](const Tensors& in) { return Tensors{prod(in[0])}; };
    const Tensor x =
        Tensor::from_values(values, {static_cast<int64_t>(values.size())}).set_requires_grad(true);
    const GradcheckResult first = gradcheck(run, {x}), second = gradgradcheck(run, {x});
    EXPECT_TRUE(first) << first.message;
    EXPECT_TRUE(second) << second.message;
  }
}

TEST(FunctionsTest, ProductsOfAnyExtentAndDType) {
  for (int64_t count = 0; count <= 20; ++count) {
    const Tensor x = Tensor::ones({3, count, 2}, DType::kFloat64) * 2.0;
    const Tensor y = prod(x, {1});
    EXPECT_EQ(y.shape(), (Shape{3, 2}));
    EXPECT_EQ(y.to_vector<double>(), Doubles(6, std::exp2(count)));
    EXPECT_EQ(prod(x, {0, 2}, {.keep_dims = true}).shape(), (Shape{1, count, 1}));
  }
  EXPECT_EQ(prod(Tensor::from_values<float>({}, {0})).item(), 1.0);
  EXPECT_EQ(prod(Tensor::scalar(3.0f)).item(), 3.0);
  const Tensor bytes = prod(Tensor::from_values<uint8_t>({200, 2, 3}, {3}));
  EXPECT_EQ(bytes.dtype(), DType::kInt64);
  EXPECT_EQ(bytes.item<int64_t>(), 1200);
  EXPECT_EQ(prod(Tensor::from_values<bool>({true, false}, {2})).item<int64_t>(), 0);
  EXPECT_EQ(message_of([] { prod(Tensor::zeros({2}), {1}); }).substr(0, 6), "[prod]");
}

TEST(FunctionsTest, CumulativeSumsOfIntegersAreInt64) {
  const Tensor bytes = cumsum(Tensor::from_values<uint8_t>({200, 100, 7}, {3}), 0);
  EXPECT_EQ(bytes.dtype(), DType::kInt64);
  EXPECT_EQ(bytes.to_vector<int64_t>(), (Ints{200, 300, 307}));
  EXPECT_EQ(cumsum(Tensor::from_values<bool>({true, false, true}, {3}), -1).to_vector<int64_t>(),
            (Ints{1, 1, 2}));
  const int64_t large = int64_t{1} << 60;
  EXPECT_EQ(cumsum(Tensor::from_values<int64_t>({large, 1}, {2}), 0).to_vector<int64_t>(),
            (Ints{large, large + 1}));
  EXPECT_EQ(cumsum(Tensor::zeros({0, 3}), 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(cumsum(Tensor::zeros({2, 0}), 0).shape(), (Shape{2, 0}));
}

TEST(FunctionsTest, FlipsOfEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor x = cast(Tensor::from_values(Ints{1, 0, 0, 1, 1, 0}, {2, 3}), dtype);
    const Tensor y = flip(x, {1});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(cast(y, DType::kInt64).to_vector<int64_t>(), (Ints{0, 0, 1, 0, 1, 1}));
  }
  const Tensor x = Tensor::arange(3 * 70000);
  EXPECT_EQ(flip(x, {0}).to_vector<int64_t>(), Tensor::arange(3 * 70000 - 1, -1, -1).to_vector<int64_t>());
  EXPECT_EQ(flip(Tensor::zeros({0, 2}), {0}).shape(), (Shape{0, 2}));
  EXPECT_EQ(flip(Tensor::ones({1, 1}), {0, 1}).item(), 1.0);
}

TEST(FunctionsTest, SayWhatIsWrong) {
  const Tensor x = Tensor::zeros({2, 3, 4, 5});
  EXPECT_EQ(message_of([&] { flip(x, {}); }), "[flip] expected at least one axis but got none");
  EXPECT_EQ(message_of([&] { flip(x, {1, -3}); }), "[flip] axis -3 is named twice");
  EXPECT_THROW(flip(x, {4}), InvalidArgument);
  EXPECT_THROW(cumsum(x, 4), InvalidArgument);
  EXPECT_THROW(cumsum(Tensor::scalar(1.0f), 0), InvalidArgument);
  EXPECT_EQ(
      message_of([&] {
        conv1d(x, Tensor::zeros({3, 3, 1}));
      }),
      "[conv1d] expected x (N, C, L) and weight (O, C/groups, K) but got shapes (2, 3, 4, 5) and (3, 3, 1)");
  EXPECT_THROW(conv1d(Tensor::zeros({1, 2, 4}), Tensor::zeros({3, 1, 2})), InvalidArgument);
  EXPECT_EQ(message_of([&] {
              layer_norm(x, {4, 4});
            }),
            "[layer_norm] expected an input whose last axes are (4, 4) but got shape (2, 3, 4, 5)");
  EXPECT_EQ(message_of([&] { layer_norm(x, {5}, Tensor::ones({4})); }),
            "[layer_norm] expected weight and bias of shape (5,) but got (4,)");
  EXPECT_EQ(message_of([&] { layer_norm(x, {5}, {}, {}, {.epsilon = -1}); }),
            "[layer_norm] expected epsilon >= 0 but got -1");
  EXPECT_EQ(message_of([&] { group_norm(x, 2); }),
            "[group_norm] expected channels that are a multiple of the groups but got 3 and 2");
  EXPECT_EQ(message_of([&] { group_norm(x, 0); }),
            "[group_norm] expected channels that are a multiple of the groups but got 3 and 0");
  EXPECT_EQ(message_of([&] { group_norm(x[0], 1); }),
            "[group_norm] expected (N, C) or images but got shape (3, 4, 5)");
  EXPECT_EQ(message_of([&] { instance_norm(x, {}, Tensor::ones({2})); }),
            "[instance_norm] expected weight and bias of shape (3,) but got (2,)");
  EXPECT_EQ(message_of([&] { pixel_shuffle(x, 2); }),
            "[pixel_shuffle] expected channels that are a multiple of 4 but got 3");
  EXPECT_EQ(message_of([&] { pixel_unshuffle(x, 2); }),
            "[pixel_unshuffle] expected a height and a width that are multiples of 2 but got 4 and 5");
  EXPECT_EQ(message_of([&] { pixel_shuffle(x, 0); }), "[pixel_shuffle] expected a factor > 0 but got 0");
  EXPECT_EQ(message_of([&] {
              adaptive_max_pool2d(x, {2, 0});
            }),
            "[adaptive_max_pool2d] expected a size in [1, 2^30] but got 2 x 0");
  EXPECT_EQ(message_of([&] { isnan(Tensor::zeros({2}, DType::kInt64)); }),
            "[isnan] expected a floating-point dtype but got int64");
  EXPECT_EQ(message_of([&] { allclose(x, x.to(DType::kFloat64)); }),
            "[allclose] expected one dtype but got float32 and float64");
}

}  // namespace
}  // namespace sinter::ops
