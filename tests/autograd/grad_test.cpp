// grad(): gradients of activations, second derivatives, what it leaves alone, in eager code and in a trace,
// and its refusals.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/differentiate.h>
#include <sinter/autograd/grad.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/ops.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;
using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;

Tensor leaf(const Values& values) {
  return Tensor::from_values(values, {static_cast<int64_t>(values.size())}).set_requires_grad(true);
}

TEST(Grad, GivesGradientsOfLeavesAndActivations) {
  const Tensor x = leaf({1, 2, 3}), w = leaf({4, 5, 6});
  const Tensor y = x * w;
  const Tensor result = ops::sum(ops::square(y));
  const Tensors gradients = grad({result}, {x, y, w});
  EXPECT_EQ(gradients[0].to_vector<double>(), (Values{32, 100, 216}));
  EXPECT_EQ(gradients[1].to_vector<double>(), (Values{8, 20, 36}));
  EXPECT_EQ(gradients[2].to_vector<double>(), (Values{8, 40, 108}));
  EXPECT_FALSE(gradients[0].requires_grad());
  EXPECT_FALSE(x.grad().defined()) << "grad() touches no grad()";
  EXPECT_FALSE(w.grad().defined());
}

TEST(Grad, AddsUpOverResultsAndUses) {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  const Tensor a = ops::sum(y * x), b = ops::sum(y);  // x^3 and x^2
  EXPECT_EQ(grad({a, b}, {x}, {.retain_graph = true})[0].item(), 33);
  const Tensors weights = {Tensor::scalar(2.0), Tensor::scalar(10.0)};
  EXPECT_EQ(grad({a, b}, {x}, {.gradients = weights, .retain_graph = true})[0].item(), 2 * 27 + 10 * 6);
  EXPECT_EQ(grad({a, b}, {y}, {.gradients = {Tensor(), weights[1]}})[0].item(), 3 + 10);
}

TEST(Grad, OfATensorWithRespectToItselfIsOne) {
  const Tensor x = leaf({2});
  EXPECT_EQ(grad(x, x).item(), 1);
  const Tensor y = x * 3.0;
  EXPECT_EQ(grad(y, y).item(), 1);
}

TEST(Grad, RunsOnlyTheRulesThatLeadToAnInput) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor hidden = ops::exp(w);
  const Tensor y = x * hidden;
  {
    const NoGrad no_grad;
    ops::fill_(hidden, 1.0);  // exp's gradient reads it, and x's does
  }
  EXPECT_NE(message_of([&] { grad(ops::sum(y), x, {.retain_graph = true}); }).find("was changed in place"),
            std::string::npos);
  const Tensor z = ops::exp(w);
  const Tensor sum = ops::sum(x + z);
  {
    const NoGrad no_grad;
    ops::fill_(z, 1.0);
  }
  EXPECT_EQ(grad(sum, x, {.retain_graph = true}).to_vector<double>(), (Values{1, 1}));
  EXPECT_NE(message_of([&] { grad(sum, w); }).find("was changed in place"), std::string::npos);
}

TEST(Grad, GivesArraysThatNobodyElseHolds) {
  const Tensor x = leaf({1, 1}), y = leaf({1, 1});
  const Tensors gradients = grad({ops::sum(x + y)}, {x, y, x});
  ops::fill_(gradients[0], 7.0);
  EXPECT_EQ(gradients[1].to_vector<double>(), (Values{1, 1}));
  EXPECT_EQ(gradients[2].to_vector<double>(), (Values{1, 1}));
}

TEST(Grad, CreateGraphGivesDerivativesOfAnyOrder) {
  const Tensor x = leaf({2});
  Tensor y = ops::pow(x, 5.0);
  for (const double expected : {80.0, 160.0, 240.0, 240.0, 120.0}) {
    y = grad(y, x, {.create_graph = true});
    EXPECT_DOUBLE_EQ(y.item(), expected);
  }
}

TEST(Grad, AGradientPenaltyReachesParametersThroughBackward) {
  // f = sum(tanh(w x)); penalty = sum((df/dx)^2), differentiated by w in closed form.
  const Tensor w = leaf({0.5, -0.7}), x = leaf({1.2, 0.4});
  const Tensor slope = grad(ops::sum(ops::tanh(w * x)), x, {.create_graph = true});
  EXPECT_TRUE(slope.requires_grad());
  backward(ops::sum(ops::square(slope)));
  for (size_t i = 0; i < 2; ++i) {
    const double wi = w.to_vector<double>()[i], xi = x.to_vector<double>()[i];
    const double t = std::tanh(wi * xi), s = 1 - t * t;
    EXPECT_NEAR(w.grad().to_vector<double>()[i], 2 * wi * s * s - 4 * wi * wi * xi * t * s * s, 1e-14);
    EXPECT_NEAR(x.grad().to_vector<double>()[i], -4 * wi * wi * wi * t * s * s, 1e-14);
  }
}

TEST(Grad, CreateGraphKeepsTheBitsOfFirstDerivatives) {
  const Tensor x = Tensor::randn({64}).set_requires_grad(true);
  const Tensor y = ops::sum(ops::gelu(ops::sigmoid(x) * ops::softmax(x, 0)));
  const Tensor plain = grad(y, x, {.retain_graph = true}), recorded = grad(y, x, {.create_graph = true});
  EXPECT_EQ(plain.to_vector<float>(), recorded.to_vector<float>());
}

TEST(Grad, ReleasesTheGraphUnlessItIsRetained) {
  const Tensor x = leaf({3});
  const Tensor y = ops::square(x);
  grad(y, x, {.retain_graph = true});
  grad(y, x, {.create_graph = true});
  grad(y, x);
  EXPECT_EQ(
      message_of([&] { grad(y, x); }),
      "[grad] the graph through 'square' was released by an earlier call, and no gradient reaches input 0 "
      "without it; pass retain_graph = true to that one");
  EXPECT_NE(message_of([&] { backward(y); }).find("was released by an earlier backward"), std::string::npos);
}

TEST(Grad, RefusesWhatHasNoGradientToGive) {
  const Tensor x = leaf({1, 2}), other = leaf({1}), plain = Tensor::ones({2}, DType::kFloat64);
  const Tensor y = ops::sum(ops::square(x));
  EXPECT_EQ(message_of([&] { grad(y, other, {.retain_graph = true}); }),
            "[grad] the results were not computed from input 0, float64 (1,) on cpu; pass allow_unused = "
            "true to get "
            "an undefined tensor for it");
  EXPECT_FALSE(grad(y, other, {.retain_graph = true, .allow_unused = true}).defined());
  EXPECT_EQ(message_of([&] { grad(y, plain); }),
            "[grad] input 0, float64 (2,) on cpu, does not require a gradient");
  EXPECT_EQ(message_of([&] { grad(y, Tensor()); }),
            "[grad] input 0, an undefined tensor, does not require a gradient");
  EXPECT_EQ(message_of([&] { grad(ops::sum(plain), x); }).substr(0, 32), "[grad] result 0 has no history: ");
  EXPECT_EQ(message_of([&] { grad(ops::square(x), x); }),
            "[grad] a result of shape (2,) needs an explicit gradient");
  EXPECT_EQ(message_of([&] {
              grad({y}, {x}, {.gradients = {Tensor(), Tensor()}});
            }),
            "[grad] expected a gradient for each of 1 results but got 2");
  EXPECT_EQ(message_of([&] { grad(Tensors{}, {x}); }), "[grad] expected results and inputs but got 0 and 1");
  const NoGrad no_grad;
  EXPECT_EQ(message_of([&] { grad(y, x, {.create_graph = true}); }),
            "[grad] expected no NoGrad under create_graph, which records, but one is alive");
  EXPECT_EQ(grad(y, x).to_vector<double>(), (Values{2, 4})) << "without it nothing is recorded anyway";
}

// The mean of a batch is an output of batch_norm without a gradient of its own; here a rule reads it.
TEST(Grad, RefusesRulesThatTakeAnOutputWithoutAGradientForAConstant) {
  OpRegistry& registry = OpRegistry::instance();
  const Op& op = registry.add(
      {.name = "test_scaled_by_saved",
       .inputs = {{"x"}},
       .outputs = {{"y"}, {.name = "saved", .differentiable = false}},
       .infer =
           [](const InferContext& context) {
             return std::vector<TensorSpec>{context.input(0), context.input(0)};
           },
       .gradient = [](const GradientContext& context) { return Tensors{context.grad() * context.output(1)}; },
       .gradient_reads = {.outputs = reads_of({1})}});
  registry.add_kernel("test_scaled_by_saved", {.run = [](const KernelContext& context) {
                        for (int64_t i = 0; i < context.input(0).numel(); ++i) {
                          const double x = context.input(0).as<double>()[i];
                          context.output(0).as<double>()[i] = x * x / 2;
                          context.output(1).as<double>()[i] = x;
                        }
                      }});
  const Tensor x = leaf({1, 2});
  const Tensor slope = grad(ops::sum(call(op, {x})[0]), x, {.create_graph = true});
  EXPECT_EQ(slope.to_vector<double>(), (Values{1, 2}));
  EXPECT_EQ(message_of<Unsupported>([&] { backward(ops::sum(slope)); }),
            "[grad] 'test_scaled_by_saved' has no second derivative: its gradient depends on its output "
            "'saved', which "
            "has no gradient");
}

// ---- in a trace

class GradInTrace : public testing::Test {
 protected:
  /// Traces `function` of x and w, both (2), x an input and w a leaf, and runs it.
  template <class Function>
  Values run(Function&& function) {
    auto graph = std::make_unique<Graph>();
    {
      Tracer tracer(*graph);
      const Tensor x = tracer.tensor(graph->add_input({Shape{2}, DType::kFloat64, Device::cpu()}, "x"));
      graph->add_output(tracer.use_of(function(tracer, x, w_)));
    }
    graph->verify();
    return Program(std::move(graph), Device::cpu()).run(Tensors{x_})[0].to_vector<double>();
  }

  const Tensor w_ = leaf({0.5, -0.7});
  const Tensor x_ = Tensor::from_values<double>({1.2, 0.4}, {2});
};

Tensor penalty_of(const Tensor& x, const Tensor& w) {
  const Tensor slope = grad(ops::sum(ops::tanh(w * x)), x, {.create_graph = true});
  return ops::sum(ops::square(slope));
}

TEST_F(GradInTrace, GivesWhatEagerCodeGives) {
  const Tensor x = ops::copy(x_).set_requires_grad(true);
  const Tensor penalty = penalty_of(x, w_);
  const Values by_w = grad(penalty, w_).to_vector<double>();
  EXPECT_EQ(run([](Tracer&, const Tensor& traced, const Tensor& w) {
              return penalty_of(traced.set_requires_grad(true), w);
            }),
            penalty.to_vector<double>());
  // By grad() once more, and by the differentiation of the job's loss.
  EXPECT_EQ(run([](Tracer&, const Tensor& traced, const Tensor& w) {
              return grad(penalty_of(traced.set_requires_grad(true), w), w);
            }),
            by_w);
  EXPECT_EQ(run([](Tracer& tracer, const Tensor& traced, const Tensor& w) {
              return differentiate(tracer, penalty_of(traced.set_requires_grad(true), w))[0].gradient;
            }),
            by_w);
}

TEST_F(GradInTrace, KeepsGradientsOfALeafMadeThereApart) {
  // hidden depends on w, leaf does not, although both hold the same.
  const auto gradients = [&](const Tensor& of_leaf, const Tensor& leaf_itself, const Tensor& w) {
    return grad({of_leaf}, {leaf_itself, w}, {.allow_unused = true});
  };
  EXPECT_EQ(run([&](Tracer&, const Tensor& x, const Tensor& w) {
              const Tensor hidden = w * x, cut = hidden.detach().set_requires_grad(true);
              const Tensors found = gradients(ops::sum(ops::square(cut)), cut, w);
              EXPECT_FALSE(found[1].defined());
              return found[0];
            }),
            (Values{2 * 0.5 * 1.2, 2 * -0.7 * 0.4}));
}

TEST_F(GradInTrace, GivesGradientsOfActivations) {
  EXPECT_EQ(run([&](Tracer&, const Tensor& x, const Tensor& w) {
              const Tensor hidden = w * x;
              return grad(ops::sum(ops::square(hidden)), hidden);
            }),
            (Values{2 * (0.5 * 1.2), 2 * (-0.7 * 0.4)}));
}

TEST_F(GradInTrace, RefusesWhatIsNotPartOfIt) {
  const Tensor outside = ops::sum(ops::square(w_));
  Graph graph;
  Tracer tracer(graph);
  EXPECT_EQ(message_of([&] { grad(outside, w_); }),
            "[grad] expected a result that the traced code computed, but it was computed outside of the job");
  const Tensor inside = ops::sum(ops::square(w_));
  const Tensor unused = Tensor::ones({2}, DType::kFloat64).set_requires_grad(true);
  EXPECT_NE(message_of([&] { grad(inside, unused); }).find("were not computed from input 0"),
            std::string::npos);
}

}  // namespace
}  // namespace sinter
