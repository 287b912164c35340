// backward(): accumulation, retained graphs, stale saved tensors, long chains, and gradcheck itself.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/metrics/metrics.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/put_rows/put_rows.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

Tensor leaf(const std::vector<double>& values) {
  return Tensor::from_values(values, {static_cast<int64_t>(values.size())}).set_requires_grad(true);
}

TEST(Backward, GivesTheGradientOfAProduct) {
  const Tensor x = leaf({1, 2, 3}), y = leaf({4, 5, 6});
  backward(ops::sum(x * y));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(y.grad().to_vector<double>(), (std::vector<double>{1, 2, 3}));
}

TEST(Backward, AddsUpWhereATensorIsUsedTwice) {
  const Tensor x = leaf({3});
  const Tensor square = x * x;
  backward(ops::sum(square * x + square));  // x^3 + x^2
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{33}));
}

TEST(Backward, AccumulatesOverCallsUntilCleared) {
  const Tensor x = leaf({2});
  backward(ops::sum(x * x));
  backward(ops::sum(x * x));
  EXPECT_EQ(x.grad().item(), 8);
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  backward(ops::sum(x * x));
  EXPECT_EQ(x.grad().item(), 4);
}

TEST(Backward, GivesEachLeafAnArrayOfItsOwn) {
  const Tensor x = leaf({1, 1}), y = leaf({1, 1});
  backward(ops::sum(x + y));
  {
    const NoGrad no_grad;
    ops::fill_(x.grad(), 7.0);
  }
  EXPECT_EQ(y.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

/// An op that adds two tensors, whose gradient rule makes one array and gives each input a part of it.
const Op& op_with_gradients_in_one_array() {
  static const Op& op = OpRegistry::instance().add(
      {.name = "test_gradients_in_one_array",
       .inputs = {{"a"}, {"b"}},
       .outputs = {{"y"}},
       .infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; },
       .gradient =
           [](const GradientContext& context) {
             const Tensor both = ops::concat({context.grad(), context.grad()}, 0);
             const int64_t count = context.grad().numel();
             return std::vector<Tensor>{ops::slice(both, 0, 0, count), ops::slice(both, 0, count, 2 * count)};
           }});
  static const bool has_kernel = [] {
    OpRegistry::instance().add_kernel(
        "test_gradients_in_one_array", {.run = [](const KernelContext& context) {
          for (int64_t i = 0; i < context.output(0).numel(); ++i) {
            context.output(0).as<double>()[i] =
                context.input(0).as<double>()[i] + context.input(1).as<double>()[i];
          }
        }});
    return true;
  }();
  (void)has_kernel;
  return op;
}

TEST(Backward, GivesEachLeafMemoryOfItsOwn) {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4});
  backward(ops::sum(call(op_with_gradients_in_one_array(), {x, y})[0]));
  EXPECT_NE(x.grad().storage(), y.grad().storage());
  for (const Tensor& grad : {x.grad(), y.grad()}) {
    EXPECT_EQ(grad.to_vector<double>(), (std::vector<double>{1, 1}));
    EXPECT_EQ(grad.storage()->bytes(), grad.spec().bytes());
  }
}

TEST(Backward, KeepsTheGradientThatItWasGivenApart) {
  const Tensor x = leaf({1, 2});
  const Tensor gradient = Tensor::from_values(std::vector<double>{10, 20}, {2});
  backward(ops::reshape(x, {2}), {.gradient = gradient});
  EXPECT_NE(x.grad().storage(), gradient.storage());
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{10, 20}));
}

TEST(Backward, TakesAFreshGradientWithoutACopy) {
  const Tensor x = leaf({1, 2});
  const auto allocations = [] { return backend_of(Device::cpu()).memory_pool(0).stats().allocations; };
  const Tensor y = x * 3.0;
  const Tensor gradient = Tensor::from_values(std::vector<double>{1, 1}, {2});
  const uint64_t before = allocations();
  backward(y, {.gradient = gradient});
  EXPECT_EQ(allocations() - before, 1u);  // the product 3 * gradient, which becomes x.grad()
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 3}));
}

TEST(Backward, TakesAnExplicitGradient) {
  const Tensor x = leaf({1, 2});
  backward(x * x, {.gradient = Tensor::from_values(std::vector<double>{10, 100}, {2})});
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{20, 400}));
}

TEST(Backward, RunsTwiceThroughARetainedGraphOnly) {
  const Tensor x = leaf({2});
  const Tensor y = ops::sum(x * x);
  backward(y, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(x.grad().item(), 8);
  EXPECT_EQ(
      message_of([&] { backward(y); }),
      "[backward] the graph through 'sum' was released by an earlier backward; pass retain_graph = true to "
      "that one");
}

TEST(Backward, CreateGraphLeavesGradientsThatCanBeDifferentiated) {
  const Tensor x = Tensor::from_values<double>({3}, {1}).set_requires_grad(true);
  (x * x * x).backward({.create_graph = true});
  const Tensor slope = x.grad();
  EXPECT_EQ(slope.item(), 27);
  EXPECT_EQ(grad(slope, x).item(), 18);
  x.set_grad({});  // it held the graph, which holds x
  {
    const NoGrad no_grad;
    EXPECT_THROW((x * x).backward({.create_graph = true}), InvalidArgument);
  }
  (x * x).backward();
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST(Backward, NoticesASavedTensorThatWasChanged) {
  const Tensor x = leaf({2});
  const Tensor factor = Tensor::full({1}, 3.0, DType::kFloat64);
  const Tensor y = ops::sum(x * factor);
  ops::fill_(factor, 5.0);
  EXPECT_EQ(
      message_of([&] { backward(y); }),
      "[backward] input 1 of 'mul' was changed in place after the forward call, but its gradient reads it "
      "(version 1, expected 0)");
}

TEST(Backward, AllowsChangesOfWhatNoGradientReads) {
  const Tensor x = leaf({2});
  const Tensor addend = Tensor::full({1}, 3.0, DType::kFloat64);
  const Tensor y = ops::sum(x + addend);
  ops::fill_(addend, 5.0);
  backward(y);
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(Backward, RefusesWhatWasNotRecorded) {
  const Tensor x = Tensor::full({}, 1.0);
  EXPECT_EQ(
      message_of([&] { backward(x); }),
      "[backward] the tensor has no history: either nothing that it was computed from requires a gradient, "
      "or it was computed while a NoGrad was alive");
  const Tensor z = leaf({1, 2});
  {
    const NoGrad no_grad;
    EXPECT_EQ(message_of([&] { backward(ops::sum(z)); }),
              "[backward] the tensor has no history: either nothing that it was computed from requires a "
              "gradient, or it was computed while a NoGrad was alive, as one is now");
  }
  EXPECT_EQ(message_of([&] { backward(z * z); }),
            "[backward] a result of shape (2,) needs an explicit gradient");
  EXPECT_EQ(message_of([&] { backward(z * z, {.gradient = Tensor::full({3}, 1.0, DType::kFloat64)}); }),
            "[backward] expected a gradient of float64 (2,) on cpu but got float64 (3,) on cpu");
}

TEST(Backward, RefusesToChangeALeafWhileRecording) {
  const Tensor x = leaf({1});
  EXPECT_EQ(message_of([&] { ops::fill_(x, 0.0); }),
            "[fill_] cannot change 'target' in place while its gradient is recorded; use sinter::NoGrad");
  const NoGrad no_grad;
  ops::fill_(x, 9.0);
  EXPECT_EQ(x.item(), 9.0);
}

TEST(NoGradTest, StopsRecordingAndRestores) {
  const Tensor x = leaf({2});
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * x).requires_grad());
  }
  EXPECT_TRUE((x * x).requires_grad());
}

TEST(Backward, TakesLongChainsApartWithoutRecursion) {
  Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = ops::affine(y, 1.0, 0.0);
  backward(ops::sum(y));
  EXPECT_EQ(x.grad().item(), 1);
  Tensor z = x;
  for (int i = 0; i < 200'000; ++i) z = ops::affine(z, 1.0, 0.0);
  z = Tensor();  // released without backward
}

TEST(Backward, TakesChainsApartWhoseCallsReadAResultTwice) {
  const Tensor x = leaf({1}), c = leaf({-1});
  Tensor z = x;
  for (int i = 0; i < 200'000; ++i) z = z * z + c;
  z = Tensor();
}

TEST(Backward, ChangesInPlaceThatWouldLoseAGradientAreRefused) {
  const Tensor x = leaf({1, 2}), target = ops::zeros({2}, DType::kFloat64);
  EXPECT_EQ(message_of([&] { target.copy_(x * x); }),
            "[copy_] 'source' requires a gradient, which would be lost in a change in place; detach() it, or "
            "use sinter::NoGrad");
  const Tensor first = Tensor::from_values<int64_t>({1, 0}, {2});
  EXPECT_EQ(
      message_of([&] { ops::index_copy_(target, 0, first, x * x); }),
      "[put_rows_] 'rows' requires a gradient, which would be lost in a change in place; detach() it, or "
      "use sinter::NoGrad");
  EXPECT_EQ(target.to_vector<double>(), (std::vector<double>{0, 0}));
  target.copy_((x * x).detach());
  EXPECT_EQ(target.to_vector<double>(), (std::vector<double>{1, 4}));
  const NoGrad no_grad;
  target.copy_(x);
  EXPECT_EQ(target.to_vector<double>(), (std::vector<double>{1, 2}));
}

TEST(Backward, CountersReadWhatRequiresAGradient) {
  const Tensor counts = ops::zeros({2}, DType::kInt64), logits = ops::reshape(leaf({1, 2}), {1, 2});
  ops::update::count_ranks_(counts, logits, Tensor::from_values<int64_t>({1}, {1}));
  EXPECT_EQ(counts.to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
}

TEST(Backward, DetachCutsTheGraph) {
  const Tensor x = leaf({3});
  backward(ops::sum((x * x).detach() * x));
  EXPECT_EQ(x.grad().item(), 9);
}

TEST(Gradcheck, PassesARightGradient) {
  const auto result = gradcheck([](const auto& in) { return std::vector<Tensor>{ops::exp(in[0] * in[1])}; },
                                {leaf({0.5, -0.25}), leaf({1.0, 2.0})});
  EXPECT_TRUE(result.passed) << result.message;
  EXPECT_LT(result.largest_error, 1e-6);
}

/// A copy of `square` whose gradient forgets the factor 2.
void register_wrong_square() {
  OpRegistry& registry = OpRegistry::instance();
  if (registry.find("test_wrong_square") != nullptr) return;
  registry.add(
      {.name = "test_wrong_square",
       .inputs = {{"x"}},
       .outputs = {{"y"}},
       .infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; },
       .gradient =
           [](const GradientContext& context) {
             return std::vector<Tensor>{ops::mul(context.input(0), context.grad())};
           },
       .gradient_reads = {.inputs = reads_of({0})}});
  registry.add_kernel("test_wrong_square", {.run = [](const KernelContext& context) {
                        for (int64_t i = 0; i < context.input(0).numel(); ++i) {
                          const double x = context.input(0).as<double>()[i];
                          context.output(0).as<double>()[i] = x * x;
                        }
                      }});
}

TEST(Gradcheck, FindsAWrongGradientOfAnOpFromOutside) {
  register_wrong_square();
  const Op& op = OpRegistry::instance().get("test_wrong_square");
  const auto result = gradcheck([&](const auto& in) { return call(op, {in[0]}); }, {leaf({3.0})});
  EXPECT_FALSE(result.passed);
  // 3 |w| / (1 + 6 |w|) for the output's random weight w, 0.5 <= |w| < 1.5.
  EXPECT_GE(result.largest_error, 1.5 / 4.0 - 1e-6);
  EXPECT_LE(result.largest_error, 4.5 / 10.0 + 1e-6);
  EXPECT_TRUE(result.message.starts_with("input 0 element 0: the gradient is ")) << result.message;
}

TEST(Gradcheck, IsAsExactBesideLargeAndManyOutputs) {
  // The sum of all outputs has no digits left for a difference of 1e-6.
  const Tensor large = Tensor::full({1000}, 1e9, DType::kFloat64);
  const auto result = gradcheck(
      [&](const auto& in) {
        return std::vector<Tensor>{large, ops::exp(in[0])};
      },
      {leaf({0.5, -0.25})});
  EXPECT_TRUE(result.passed) << result.message;
}

TEST(Gradcheck, LeavesTheInputsAsTheyWere) {
  const Tensor x = leaf({0.1, 0.2});
  gradcheck([](const auto& in) { return std::vector<Tensor>{ops::exp(in[0])}; }, {x});
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{0.1, 0.2}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Gradcheck, RefusesToPassWithNothingToCheck) {
  const Tensor x = Tensor::full({2}, 0.5, DType::kFloat64);
  const auto square = [](const auto& in) { return std::vector<Tensor>{ops::square(in[0])}; };
  EXPECT_EQ(message_of([&] { gradcheck(square, {x}); }),
            "[gradcheck] none of the 1 inputs requires a gradient, so there is nothing to check: "
            "set_requires_grad(true) on those that should");
  const Tensor leaf = x.detach().set_requires_grad(true);
  EXPECT_TRUE(gradcheck(square, {leaf}));
  const auto narrow = [](const auto& in) { return std::vector<Tensor>{ops::cast(in[0], DType::kFloat32)}; };
  EXPECT_EQ(message_of([&] { gradcheck(narrow, {leaf}); }),
            "[gradcheck] none of the 1 outputs is a float64 tensor, so there is nothing to check");
}

TEST(Gradcheck, RefusesOtherDtypes) {
  const Tensor x = Tensor::full({1}, 1.0).set_requires_grad(true);
  EXPECT_EQ(message_of([&] { gradcheck([](const auto& in) { return std::vector<Tensor>{in[0]}; }, {x}); }),
            "[gradcheck] expected float64 inputs on the cpu but got float32 (1,) on cpu");
}

}  // namespace
}  // namespace sinter
