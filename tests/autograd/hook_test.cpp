// Hooks of tensors and gradients of activations that are kept.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
#include <sinter/autograd/hook.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/ops.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;
using Values = std::vector<double>;

Tensor leaf(const Values& values) {
  return Tensor::from_values(values, {static_cast<int64_t>(values.size())}).set_requires_grad(true);
}

TEST(RetainGrad, KeepsTheGradientOfAnActivation) {
  const Tensor x = leaf({1, 2});
  const Tensor y = ops::square(x).retain_grad(), z = ops::square(x);
  backward(ops::sum(y * 3.0 + z), {.retain_graph = true});
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{3, 3}));
  EXPECT_FALSE(z.grad().defined());
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{8, 16}));
  backward(ops::sum(y * 3.0));
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{6, 6})) << "as of leaves, gradients add up";
}

TEST(RetainGrad, KeepsEachGradientInMemoryOfItsOwn) {
  const Tensor x = leaf({1, 2});
  const Tensor a = (x * 1.0).retain_grad(), b = (x * 1.0).retain_grad();
  backward(ops::sum(a + b));
  ops::fill_(a.grad(), 7.0);
  EXPECT_EQ(b.grad().to_vector<double>(), (Values{1, 1}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 2}));
}

TEST(RetainGrad, OfATensorThatIsGoneIsKeptNowhere) {
  const Tensor x = leaf({1});
  Tensor sum;
  {
    const Tensor y = ops::square(x).retain_grad();
    sum = ops::sum(y);
  }
  backward(sum);
  EXPECT_EQ(x.grad().item(), 2);
}

TEST(TensorHook, ReplacesTheGradientWhileItLives) {
  const Tensor x = leaf({1, 2});
  const Tensor y = ops::square(x);
  {
    const Hook hook = y.register_hook([](const Tensor& gradient) { return gradient * 10.0; });
    backward(ops::sum(y), {.retain_graph = true});
    EXPECT_EQ(x.grad().to_vector<double>(), (Values{20, 40}));
    EXPECT_EQ(grad(ops::sum(y), y, {.retain_graph = true}).to_vector<double>(), (Values{10, 10}));
  }
  x.set_grad({});
  backward(ops::sum(y));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 4}));
}

TEST(TensorHook, SeesAllThatArrivesOnce) {
  const Tensor x = leaf({1, 2});
  Values seen;
  int calls = 0;
  Hook hook = x.register_hook([&](const Tensor& gradient) {
    seen = gradient.to_vector<double>();
    ++calls;
    return ops::clip(gradient, -5.0, 5.0);
  });
  x.set_grad(Tensor::full({2}, 100.0, DType::kFloat64));
  backward(ops::sum(x * 4.0 + x * 3.0));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, (Values{7, 7}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{105, 105}));
  EXPECT_EQ(grad({ops::sum(x * 9.0)}, {x, x})[1].to_vector<double>(), (Values{5, 5}));
  EXPECT_EQ(calls, 2);
  hook.remove();
  EXPECT_EQ(grad(ops::sum(x * 9.0), x).to_vector<double>(), (Values{9, 9}));
}

TEST(TensorHook, SeveralRunInTheirOrderAndBeforeWhatIsKept) {
  const Tensor x = leaf({1});
  const Tensor y = (x * 2.0).retain_grad();
  const Hook first = y.register_hook([](const Tensor& gradient) { return gradient + 1.0; });
  const Hook second = y.register_hook([](const Tensor& gradient) { return gradient * 10.0; });
  const Hook looks = y.register_hook([](const Tensor&) { return Tensor(); });
  std::vector<Values> seen;
  const Hook gives_nothing =
      y.register_hook([&](const Tensor& gradient) { seen.push_back(gradient.to_vector<double>()); });
  backward(ops::sum(y));
  EXPECT_EQ(y.grad().item(), 20);
  EXPECT_EQ(x.grad().item(), 40);
  EXPECT_EQ(seen, (std::vector<Values>{{20}}));
}

TEST(TensorHook, IsRecordedUnderCreateGraph) {
  const Tensor x = leaf({3});
  const Tensor y = ops::square(x);
  const Hook hook = y.register_hook([](const Tensor& gradient) { return gradient * 5.0; });
  const Tensor slope = grad(y, x, {.create_graph = true});
  EXPECT_EQ(slope.item(), 30);
  EXPECT_EQ(grad(slope, x).item(), 10);
}

TEST(TensorHook, RefusesOtherSpecsAndTensorsWithoutAGradient) {
  const Tensor x = leaf({1, 2});
  const Hook hook = x.register_hook([](const Tensor& gradient) { return ops::sum(gradient); });
  EXPECT_EQ(
      message_of([&] { backward(ops::sum(x)); }),
      "[register_hook] expected a gradient of float64 (2,) on cpu from the hook but got float64 () on cpu");
  const Tensor plain = Tensor::ones({2});
  EXPECT_EQ(message_of([&] { plain.retain_grad(); }),
            "[retain_grad] expected a tensor that requires a gradient, which this one of float32 (2,) on cpu "
            "does not");
  EXPECT_EQ(message_of([&] { (void)x.register_hook(nullptr); }),
            "[register_hook] expected a function but got none");
  EXPECT_EQ(message_of([&] { (void)x.register_hook(std::function<void(const Tensor&)>()); }),
            "[register_hook] expected a function but got none");
  Graph graph;
  Tracer tracer(graph);
  EXPECT_NE(message_of([&] {
              (void)(x * 2.0).register_hook([](const Tensor& g) { return g; });
            }).find("gradients stay within a job"),
            std::string::npos);
}

}  // namespace
}  // namespace sinter
