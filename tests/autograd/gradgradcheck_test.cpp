// Second derivatives of every op of the registry: checked with finite differences of the gradient, or refused
// by the name of the op. SINTER_TEST_CASES changes the number of cases per op.
#include <map>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/ops.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

#include "common/error_message.h"
#include "common/test_cases.h"

namespace sinter {
namespace {

using test::message_of;
using Tensors = std::vector<Tensor>;

/// Ops with a gradient that cannot be differentiated again, and what they cannot go through.
const std::map<std::string, std::string>& refusals() {
  static const std::map<std::string, std::string> all = {
      {"batch_norm_act", "batch_norm_act_grad"},
      {"combined_margin", "combined_margin_grad"},
      {"shard_cross_entropy", "shard_cross_entropy_grad"},
  };
  return all;
}

std::vector<std::string> differentiable_ops() {
  std::vector<std::string> names;
  for (const std::string& name : OpRegistry::instance().names()) {
    if (OpRegistry::instance().get(name).definition.gradient != nullptr) names.push_back(name);
  }
  return names;
}

class SecondDerivativeTest : public testing::TestWithParam<std::string> {
 protected:
  /// The differentiable outputs of one call.
  static Tensors run(const Op& op, const ops::OpSample& sample, Tensors inputs) {
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (inputs[j].defined() && op.definition.input_def(j).mutated) inputs[j] = ops::copy(inputs[j]);
    }
    Tensors outputs = call(op, inputs, sample.attributes);
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (!op.definition.outputs[j].differentiable) outputs[j] = Tensor();
    }
    return outputs;
  }
};

TEST_P(SecondDerivativeTest, MatchesFiniteDifferencesOrIsRefused) {
  const Op& op = OpRegistry::instance().get(GetParam());
  const ops::OpSamples& samples = *ops::SampleRegistry::builtin().find(GetParam());
  const uint64_t seed = test::random_seed(20261127);
  const int cases = test::share_of_cases(8);
  int checked = 0;
  for (int i = 0; checked < cases && i < 40 * cases; ++i) {
    ops::SampleMaker maker(seed + static_cast<uint64_t>(i), DType::kFloat64);
    const ops::OpSample sample = samples.make(maker);
    SCOPED_TRACE(fmt::format("SINTER_TEST_SEED={} case {} {}", seed, i, to_string(sample.attributes)));
    Tensors inputs;
    int64_t elements = 0;
    for (size_t j = 0; j < sample.inputs.size(); ++j) {
      const Tensor& input = sample.inputs[j];
      const bool is_checked =
          input.defined() && input.dtype() == DType::kFloat64 && !op.definition.input_def(j).mutated;
      inputs.push_back(is_checked ? ops::copy(input).set_requires_grad(true) : input);
      elements += is_checked ? input.numel() : 0;
    }
    if (elements == 0 || elements > 250) continue;  // two calls and their gradients for each
    ++checked;
    const auto function = [&](const Tensors& tensors) { return run(op, sample, tensors); };
    const auto refusal = refusals().find(GetParam());
    if (refusal != refusals().end()) {
      EXPECT_EQ(
          message_of<Unsupported>([&] { gradgradcheck(function, inputs); }),
          fmt::format("[grad] '{}' has no second derivative: its gradient goes through '{}', which has none "
                      "itself, so that create_graph cannot record it",
                      refusal->first, refusal->second));
      continue;
    }
    const GradcheckResult result = gradgradcheck(function, inputs, {.seed = seed + static_cast<uint64_t>(i)});
    ASSERT_TRUE(result.passed) << result.message;
  }
  EXPECT_GE(checked, cases) << "too many samples are empty or too large";
}

INSTANTIATE_TEST_SUITE_P(Ops, SecondDerivativeTest, testing::ValuesIn(differentiable_ops()),
                         [](const auto& parameter) { return parameter.param; });

// Two calls, of which the one with a gradient is fused.
TEST(SecondDerivative, OfSyncBatchNormIsRefused) {
  const auto alone = Communicator::join(ProcessEnvironment{});
  const Tensor x = Tensor::randn({4, 3}, {.dtype = DType::kFloat64, .requires_grad = true});
  const Tensor y = ops::sync_batch_norm(x, {}, {}, {}, {}, {}, *alone);
  EXPECT_EQ(
      message_of<Unsupported>([&] { grad(ops::sum(ops::square(y)), x, {.create_graph = true}); }),
      "[grad] 'batch_norm_act' has no second derivative: its gradient goes through 'batch_norm_act_grad', "
      "which has none itself, so that create_graph cannot record it");
}

TEST(Gradgradcheck, GoesOnToThirdDerivatives) {
  const Tensor x = Tensor::from_values<double>({0.3, -0.8, 1.1}, {3}).set_requires_grad(true);
  const auto slope = [](const Tensors& inputs) {
    const Tensor y = ops::sum(ops::tanh(inputs[0]) * ops::silu(inputs[0]));
    return Tensors{grad(y, inputs[0], {.create_graph = true})};
  };
  const GradcheckResult result = gradgradcheck(slope, {x});
  EXPECT_TRUE(result.passed) << result.message;
}

/// y = x^3, whose gradient op is right, but whose own gradient has another factor than it should.
const Op& wrong_cube() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const auto same = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; };
    registry.add({.name = "test_cube_grad",
                  .inputs = {{"x"}, {"dy"}},
                  .outputs = {{"dx"}},
                  .infer = same,
                  .gradient =
                      [](const GradientContext& context) {
                        const Tensor x = context.input(0), dy = context.input(1), ddx = context.grad();
                        return Tensors{x * dy * ddx * 5.0, ops::square(x) * ddx * 3.0};
                      },
                  .gradient_reads = {.inputs = reads_of({0, 1})}});
    registry.add_kernel("test_cube_grad", {.run = [](const KernelContext& context) {
                          for (int64_t i = 0; i < context.output(0).numel(); ++i) {
                            const double x = context.input(0).as<double>()[i];
                            context.output(0).as<double>()[i] =
                                3.0 * x * x * context.input(1).as<double>()[i];
                          }
                        }});
    const Op& cube = registry.add(
        {.name = "test_cube",
         .inputs = {{"x"}},
         .outputs = {{"y"}},
         .infer = same,
         .gradient =
             [](const GradientContext& context) {
               return call(OpRegistry::instance().get("test_cube_grad"), {context.input(0), context.grad()});
             },
         .gradient_reads = {.inputs = reads_of({0})}});
    registry.add_kernel("test_cube", {.run = [](const KernelContext& context) {
                          for (int64_t i = 0; i < context.output(0).numel(); ++i) {
                            const double x = context.input(0).as<double>()[i];
                            context.output(0).as<double>()[i] = x * x * x;
                          }
                        }});
    return &cube;
  }();
  return *op;
}

TEST(Gradgradcheck, FindsAWrongSecondDerivative) {
  const Tensor x = Tensor::from_values<double>({0.5, -1.5}, {2}).set_requires_grad(true);
  const auto function = [](const Tensors& inputs) { return call(wrong_cube(), {inputs[0]}); };
  EXPECT_TRUE(gradcheck(function, {x}).passed);
  const GradcheckResult result = gradgradcheck(function, {x});
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.message.find("input 0 element 0: the gradient is"), std::string::npos) << result.message;
}

TEST(Gradgradcheck, RefusesToPassWithNothingToCheck) {
  const Tensor x = Tensor::from_values<double>({1, 2}, {2}).set_requires_grad(true);
  EXPECT_EQ(
      message_of([&] { gradgradcheck([](const Tensors&) { return Tensors{}; }, {x}); }),
      "[gradgradcheck] none of the 0 outputs is a float64 tensor with a gradient, so there is nothing to "
      "check");
}

}  // namespace
}  // namespace sinter
