// The methods of Tensor that stand for ops, its factories, and its operators.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/base/error.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/ops.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;
using Ints = std::vector<int64_t>;

Tensor counted(const Shape& shape) {
  return Tensor::arange(shape.numel()).reshape(shape);
}
Ints ints(const Tensor& x) {
  return x.to(DType::kInt64).to_vector<int64_t>();
}

TEST(TensorMethods, AreTheirOps) {
  const Tensor x = counted({2, 3, 4}).to(DType::kFloat32);
  EXPECT_EQ(x.sum(1).to_vector<float>(), sum(x, {1}).to_vector<float>());
  EXPECT_EQ(x.mean({0, -1}, {.keep_dims = true}).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(x.max().item(), 23);
  EXPECT_EQ(x.min({0, 1, 2}).item(), 0);
  EXPECT_NEAR(x.norm().item(), norm(x).item(), 1e-6);
  EXPECT_NEAR(x.var().item(), 50.0, 1e-4);
  EXPECT_NEAR(x.std({}, {.unbiased = false}).item(), std::sqrt(575.0 / 12), 1e-5);
  EXPECT_EQ(x.argmax().item<int64_t>(), 23);
  EXPECT_EQ(x.argmax(1).shape(), (Shape{2, 4}));
  EXPECT_EQ(x.argmin(-1, {.keep_dims = true}).shape(), (Shape{2, 3, 1}));
  EXPECT_TRUE((x >= 0).all().item<bool>());
  EXPECT_FALSE((x < 0).any().item<bool>());
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 12}));
  EXPECT_EQ(x.flatten().shape(), Shape{24});
  EXPECT_EQ(x.flatten(0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(Tensor::scalar(1.0f).flatten().shape(), Shape{1});
  EXPECT_EQ(x.reshape({4, -1}).shape(), (Shape{4, 6}));
  EXPECT_EQ(x.reshape(24).shape(), Shape{24});
  EXPECT_EQ(x.unsqueeze(-1).squeeze(-1).shape(), x.shape());
  EXPECT_EQ(x.permute({2, 0, 1}).to_vector<float>(), permute(x, {2, 0, 1}).to_vector<float>());
  EXPECT_EQ(x.transpose().shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(x.transpose(0, 1).shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(x[0].unsqueeze(0).broadcast_to({5, 3, 4}).shape(), (Shape{5, 3, 4}));
  EXPECT_EQ(ints(x.masked_fill(x > 3, 0).sum()), Ints{6});
  EXPECT_EQ(ints(x.gather(2, Tensor::zeros({2, 3, 1}, DType::kInt64))), (Ints{0, 4, 8, 12, 16, 20}));
  EXPECT_EQ(message_of([&] { (void)x.flatten(2, 1); }), "[flatten] expected axes in order but got 2 and 1");
}

TEST(TensorMethods, ConvertAndCopy) {
  const Tensor x = counted({3}).to(DType::kFloat32);
  EXPECT_EQ(x.to(DType::kFloat16).dtype(), DType::kFloat16);
  EXPECT_EQ(x.to(Device::cpu(), DType::kFloat64).dtype(), DType::kFloat64);
  EXPECT_TRUE(x.to(DType::kFloat32).is_same(x));
  const Tensor copy = x.clone();
  copy.fill_(7);
  EXPECT_EQ(ints(copy), (Ints{7, 7, 7}));
  EXPECT_EQ(ints(x), (Ints{0, 1, 2}));
  EXPECT_EQ(ints(copy.copy_(x)), ints(x));
  EXPECT_EQ(ints(copy.zero_()), (Ints{0, 0, 0}));
  x[1].fill_(5);  // a view
  EXPECT_EQ(ints(x), (Ints{0, 5, 2}));
  EXPECT_EQ(Tensor::scalar((int64_t{1} << 62) + 1).item<int64_t>(), (int64_t{1} << 62) + 1);
  EXPECT_EQ(Tensor::scalar(2.5).item<float>(), 2.5f);
  EXPECT_THROW((void)x.item<float>(), InvalidArgument);
  EXPECT_EQ(Tensor::scalar(-2.75).item<int32_t>(), -2);
  EXPECT_TRUE(Tensor::scalar(2.5).item<bool>());
  EXPECT_THROW((void)Tensor::scalar(3e9).item<int32_t>(), InvalidArgument);
  EXPECT_THROW((void)Tensor::scalar(-1.0).item<uint8_t>(), InvalidArgument);
  EXPECT_THROW((void)Tensor::scalar(std::nan("")).item<int64_t>(), InvalidArgument);
}

// As NumPy has it.
TEST(TensorMethods, Index) {
  const Tensor x = counted({3, 4, 5});
  EXPECT_EQ(ints(x[-1]), ints(slice(x, 0, 2, 3)));
  EXPECT_EQ(x[1].shape(), (Shape{4, 5}));
  EXPECT_EQ(ints(x[1][2]), (Ints{30, 31, 32, 33, 34}));
  EXPECT_EQ(ints(x.index({1, 2, 3})), Ints{33});
  EXPECT_EQ(x.index({1, 2, 3}).rank(), 0);
  EXPECT_EQ(ints(x.index({0, Slice(1, -1), -1})), (Ints{9, 14}));
  EXPECT_EQ(x.index({kEllipsis, 0}).shape(), (Shape{3, 4}));
  EXPECT_EQ(x.index({0, kEllipsis, kNewAxis}).shape(), (Shape{4, 5, 1}));
  EXPECT_EQ(x.index({kNewAxis, kEllipsis}).shape(), (Shape{1, 3, 4, 5}));
  EXPECT_EQ(x.index({Slice(), kNewAxis, 1}).shape(), (Shape{3, 1, 5}));
  EXPECT_EQ(ints(x.index({0, 0, Slice({}, {}, 2)})), (Ints{0, 2, 4}));
  EXPECT_EQ(ints(x.index({Slice(0, {}, 2), 1, Slice(-2, {})})), (Ints{8, 9, 48, 49}));
  EXPECT_EQ(ints(x.slice(1, 1, {}, 2).index({0, kEllipsis, 0})), (Ints{5, 15}));
  EXPECT_EQ(x.slice(1, 10, 20).shape(), (Shape{3, 0, 5}));
  EXPECT_EQ(x.slice(-1, -100, 2).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(ints(x[Tensor::from_values<int64_t>({2, 0}, {2})].index({Slice(), 0, 0})), (Ints{40, 0}));
  EXPECT_EQ(message_of([&] { (void)x[3]; }), "[tensor] expected an index in [-3, 3) along axis 0 but got 3");
  EXPECT_EQ(message_of([&] { (void)Tensor::scalar(1.0)[0]; }), "[tensor] a scalar has no element 0");
  EXPECT_EQ(message_of([&] { (void)x.slice(0, 0, 3, 0); }), "[slice] expected a step > 0 but got 0");
  EXPECT_EQ(message_of([&] {
              (void)x.index({0, 0, 0, 0});
            }),
            "[index] expected at most 3 axes and one ellipsis for shape (3, 4, 5) but got 4 and 0");
  EXPECT_THROW((void)x.index({kEllipsis, kEllipsis}), InvalidArgument);
}

TEST(TensorMethods, IndexHasAGradient) {
  const Tensor x = counted({3, 4, 5}).to(DType::kFloat64).set_requires_grad(true);
  const auto expect = [&](const std::function<Tensor(const Tensor&)>& function) {
    const GradcheckResult result =
        gradcheck([&](const auto& in) { return std::vector<Tensor>{function(in[0])}; }, {x});
    EXPECT_TRUE(result) << result.message;
  };
  expect([](const Tensor& t) { return t.index({Slice(0, {}, 2), kNewAxis, Slice(1, 3)}); });
  expect([](const Tensor& t) { return t.slice(2, 1, {}, 2); });
  expect([](const Tensor& t) { return t[1].flatten(); });
}

TEST(TensorMethods, Operators) {
  const Tensor a = Tensor::from_values<float>({1, 2, 3}, {3}), b = Tensor::from_values<float>({3, 2, 1}, {3});
  EXPECT_EQ(ints(a < b), (Ints{1, 0, 0}));
  EXPECT_EQ(ints(a <= b), (Ints{1, 1, 0}));
  EXPECT_EQ(ints(a > b), (Ints{0, 0, 1}));
  EXPECT_EQ(ints(a >= b), (Ints{0, 1, 1}));
  EXPECT_EQ(ints(a < 2), (Ints{1, 0, 0}));
  EXPECT_EQ(ints(2 < a), (Ints{0, 0, 1}));
  EXPECT_EQ(ints((a >= 2) & (b >= 2)), (Ints{0, 1, 0}));
  EXPECT_EQ(ints((a >= 3) | (b >= 3)), (Ints{1, 0, 1}));
  EXPECT_EQ(ints(~(a >= 2)), (Ints{1, 0, 0}));
  static_assert(!std::is_convertible_v<Tensor, bool> && !std::is_constructible_v<bool, Tensor>);
}

TEST(TensorMethods, Factories) {
  EXPECT_EQ(ints(Tensor::arange(3)), (Ints{0, 1, 2}));
  EXPECT_EQ(ints(Tensor::arange(5, 0, -2)), (Ints{5, 3, 1}));
  EXPECT_EQ(Tensor::arange(0, 1, 0.25, {.dtype = DType::kFloat32}).to_vector<float>(),
            (std::vector<float>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(Tensor::arange(3, 3).numel(), 0);
  EXPECT_THROW(Tensor::arange(0, 3, 0), InvalidArgument);
  EXPECT_THROW(Tensor::arange(0, 1e300, 1e-10), InvalidArgument);
  EXPECT_EQ(Tensor::arange(255, -1, -85, {.dtype = DType::kUInt8}).to_vector<uint8_t>(),
            (std::vector<uint8_t>{255, 170, 85, 0}));
  EXPECT_THROW(Tensor::arange(0, 257, 1, {.dtype = DType::kUInt8}), InvalidArgument);
  EXPECT_THROW(Tensor::arange(-1, 3, 1, {.dtype = DType::kUInt8}), InvalidArgument);
  EXPECT_THROW(Tensor::arange(3e9, 3e9 + 2, 1, {.dtype = DType::kInt32}), InvalidArgument);
  const Tensor x = Tensor::ones({2, 3}, {.dtype = DType::kFloat64, .requires_grad = true});
  EXPECT_TRUE(x.requires_grad());
  EXPECT_EQ(Tensor::zeros_like(x).spec(), x.spec());
  EXPECT_EQ(Tensor::full_like(x, 4).to_vector<double>(), std::vector<double>(6, 4.0));
  EXPECT_EQ(Tensor::ones_like(x).to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(Tensor::empty_like(x).spec(), x.spec());
  EXPECT_EQ(Tensor::zeros({2}, {.dtype = DType::kBool}).dtype(), DType::kBool);
  EXPECT_THROW(Tensor::ones({2}, {.dtype = DType::kInt64, .requires_grad = true}), InvalidArgument);
}

TEST(TensorMethods, RandomFactories) {
  Generator generator(3), again(3);
  const int64_t n = 100'001;
  const Tensor uniform = Tensor::rand({n}, {}, &generator);
  EXPECT_EQ(uniform.to_vector<float>(), Tensor::rand({n}, {}, &again).to_vector<float>());
  const auto is_within = [](double value, double expected, double deviation) {
    return std::abs(value - expected) < 6 * deviation / std::sqrt(static_cast<double>(n));
  };
  EXPECT_TRUE(is_within(uniform.mean().item(), 0.5, std::sqrt(1 / 12.0)));
  EXPECT_TRUE((uniform >= 0).all().item<bool>() && (uniform < 1).all().item<bool>());
  for (const DType narrow : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor values = Tensor::rand({n}, {.dtype = narrow}, &generator);
    EXPECT_TRUE((values >= 0).all().item<bool>() && (values < 1).all().item<bool>()) << to_string(narrow);
    EXPECT_TRUE(is_within(values.to(DType::kFloat64).mean().item(), 0.5, std::sqrt(1 / 12.0)));
  }
  const Tensor normal = Tensor::randn({n}, {.dtype = DType::kFloat64}, &generator);
  EXPECT_TRUE(is_within(normal.mean().item(), 0.0, 1.0));
  EXPECT_TRUE(is_within(normal.var().item(), 1.0, std::sqrt(2.0)));
  EXPECT_EQ(normal.dtype(), DType::kFloat64);
  const Tensor die = Tensor::randint(-1, 5, {n}, {.dtype = DType::kInt32}, &generator);
  EXPECT_EQ(die.dtype(), DType::kInt32);
  EXPECT_EQ(ints(die.min()), Ints{-1});
  EXPECT_EQ(ints(die.max()), Ints{4});
  EXPECT_TRUE(is_within(die.to(DType::kFloat64).mean().item(), 1.5, std::sqrt(35 / 12.0)));
  Ints order = ints(Tensor::randperm(1000, {}, &generator));
  EXPECT_FALSE(std::ranges::is_sorted(order));
  std::ranges::sort(order);
  EXPECT_EQ(order, ints(Tensor::arange(1000)));
  EXPECT_EQ(message_of([] { Tensor::randint(3, 3, {1}); }), "[randint] expected low < high but got 3 and 3");
  EXPECT_EQ(Tensor::randint(255, 256, {1}, {.dtype = DType::kUInt8}).item(), 255);
  EXPECT_EQ(message_of([] { Tensor::randint(0, 257, {1}, {.dtype = DType::kUInt8}); }),
            "[randint] expected a value that uint8 can represent but got 256");
  EXPECT_EQ(message_of([] { Tensor::rand({1}, {.dtype = DType::kInt64}); }),
            "[rand] expected a floating-point dtype but got int64");
  manual_seed(5);
  const std::vector<float> first = Tensor::randn({4}).to_vector<float>();
  manual_seed(5);
  EXPECT_EQ(Tensor::randn({4}).to_vector<float>(), first);
}

TEST(TensorMethods, LiesOverMemoryOfSomebodyElse) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  int released = 0;
  {
    const Tensor x = Tensor::from_blob(values.data(), {{2, 3}, kFloat32, {}}, [&] { ++released; });
    const Tensor row = x[1];
    values[3] = 40;
    EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{40, 5, 6}));
    x.fill_(7);
    EXPECT_EQ(values[0], 7);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(best_device().is_cpu(), !is_available(Device::cuda()));
}

}  // namespace
}  // namespace sinter::ops
