// differentiate: the bits of backward() for every differentiable op, and its refusals.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/differentiate.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"
#include "common/test_cases.h"

namespace sinter {
namespace {

using test::message_of;
using Tensors = std::vector<Tensor>;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.spec().bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.raw_data(), bytes.size());
  return bytes;
}

/// A call of one op, reduced to a number through which gradients reach every differentiable output.
class SampleCall {
 public:
  SampleCall(const Op& op, ops::OpSample sample, ops::SampleMaker& maker)
      : op_(op), sample_(std::move(sample)) {
    for (size_t i = 0; i < sample_.inputs.size(); ++i) {
      const Tensor& input = sample_.inputs[i];
      const bool is_candidate =
          input.defined() && is_float(input.dtype()) && !op.definition.input_def(i).mutated;
      differentiated_.push_back(is_candidate && maker.chance(0.8));
    }
    const NoGrad no_grad;
    for (const Tensor& output : call(op_, copies(), sample_.attributes)) {
      weights_.push_back(is_float(output.dtype()) ? ops::cast(maker.tensor(output.shape()), output.dtype())
                                                  : Tensor());
    }
  }

  /// Inputs of their own, the differentiated ones as leaves that require a gradient.
  Tensors copies() const {
    Tensors inputs;
    for (size_t i = 0; i < sample_.inputs.size(); ++i) {
      const Tensor& input = sample_.inputs[i];
      inputs.push_back(input.defined() ? ops::copy(input).detach() : Tensor());
      if (differentiated_[i]) inputs.back().set_requires_grad(true);
    }
    return inputs;
  }

  /// Undefined if no gradient flows.
  Tensor loss(const Tensors& inputs) const {
    const Tensors outputs = call(op_, inputs, sample_.attributes);
    Tensor sum;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      const Tensor term = ops::cast(ops::sum(ops::mul(outputs[i], weights_[i])), DType::kFloat64);
      sum = sum.defined() ? ops::add(sum, term) : term;
    }
    return sum;
  }

 private:
  const Op& op_;
  ops::OpSample sample_;
  std::vector<bool> differentiated_;
  Tensors weights_;
};

/// Compares the two ways; gives whether there was a gradient to compare.
bool compare(const SampleCall& sample) {
  const Tensors eager = sample.copies();
  const Tensor loss = sample.loss(eager);
  if (!loss.defined()) return false;
  backward(loss);

  const Tensors leaves = sample.copies();
  auto graph = std::make_unique<Graph>();
  for (const Tensor& leaf : leaves) {
    if (leaf.defined()) graph->memory(leaf, GraphValue::Kind::kLeaf);
  }
  std::vector<std::pair<size_t, size_t>> outputs;  // leaf, and which output of the graph has its gradient
  {
    Tracer tracer(*graph);
    const Tensor traced = sample.loss(leaves);
    graph->add_output(tracer.use_of(traced));
    const std::vector<LeafGradient> gradients = differentiate(tracer, traced);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined()) continue;
      for (const auto& [leaf, gradient] : gradients) {
        if (!leaf->tensor.is_same(leaves[i])) continue;
        outputs.emplace_back(i, graph->outputs().size());
        graph->add_output(tracer.use_of(gradient));
      }
    }
  }
  graph->verify();
  Program program(std::move(graph), Device::cpu());
  const Tensors results = program.run({});
  EXPECT_EQ(bytes_of(loss), bytes_of(results[0]));
  std::set<size_t> compared;
  for (const auto& [leaf, output] : outputs) {
    if (!eager[leaf].grad().defined()) {
      ADD_FAILURE() << "input " << leaf << " has a gradient in the graph only";
      continue;
    }
    EXPECT_EQ(bytes_of(eager[leaf].grad()), bytes_of(results[output])) << "the gradient of input " << leaf;
    compared.insert(leaf);
  }
  for (size_t i = 0; i < eager.size(); ++i) {
    if (!eager[i].defined()) continue;
    EXPECT_EQ(eager[i].grad().defined(), compared.contains(i)) << "the gradient of input " << i;
    EXPECT_EQ(bytes_of(eager[i]), bytes_of(leaves[i])) << "input " << i << " behind the call";
  }
  return true;
}

class DifferentiateTest : public testing::TestWithParam<std::string> {};

TEST_P(DifferentiateTest, HasTheBitsOfBackward) {
  const Op& op = OpRegistry::instance().get(GetParam());
  const ops::OpSamples* const samples = ops::SampleRegistry::builtin().find(GetParam());
  ASSERT_NE(samples, nullptr);
  const uint64_t first = test::random_seed(std::random_device()());
  int compared = 0;
  for (uint64_t seed = first; seed < first + 12; ++seed) {
    const DType dtype = samples->dtypes[seed % samples->dtypes.size()];
    SCOPED_TRACE(fmt::format("SINTER_TEST_SEED={}, {}", seed, dtype));
    ops::SampleMaker maker(seed, dtype);
    const ops::OpSample sample = samples->make(maker);
    compared += compare(SampleCall(op, sample, maker));
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 0) << "no gradient in any of the samples";
}

std::vector<std::string> differentiable_ops() {
  std::vector<std::string> names;
  for (const std::string& name : OpRegistry::instance().names()) {
    if (OpRegistry::instance().get(name).definition.gradient != nullptr) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Ops, DifferentiateTest, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

// ---- sums, flows and refusals

class Differentiate : public testing::Test {
 protected:
  Graph graph_;
  const Tensor w_ = Tensor::full({3}, 2.0).set_requires_grad(true);
};

TEST_F(Differentiate, AddsGradientsInTheOrderOfBackward) {
  // Sums of three different roundings, whose order shows.
  const auto loss = [](const Tensor& w) {
    const Tensor a = ops::affine(w, 0.1, 0.0), b = ops::square(ops::affine(w, 1.0 / 3.0, 1.0)),
                 c = ops::exp(w);
    return ops::sum(ops::add(ops::mul(a, b), ops::add(c, ops::mul(w, a))));
  };
  const Tensor eager = ops::copy(w_).detach().set_requires_grad(true);
  backward(loss(eager));
  auto graph = std::make_unique<Graph>();
  {
    Tracer tracer(*graph);
    const std::vector<LeafGradient> gradients = differentiate(tracer, loss(w_));
    ASSERT_EQ(gradients.size(), 1u);
    graph->add_output(tracer.use_of(gradients[0].gradient));
  }
  EXPECT_EQ(bytes_of(Program(std::move(graph), Device::cpu()).run({})[0]), bytes_of(eager.grad()));
  EXPECT_FALSE(w_.grad().defined()) << "a trace leaves grad() alone";
}

TEST_F(Differentiate, FollowsOnlyDifferentiableUses) {
  const Tensor frozen = Tensor::full({3}, 2.0);
  graph_.memory(frozen, GraphValue::Kind::kLeaf, "frozen");
  graph_.memory(w_, GraphValue::Kind::kLeaf, "w");
  Tracer tracer(graph_);
  Tensor without;
  {
    const NoGrad no_grad;
    without = ops::exp(w_);
  }
  const Tensor product = ops::mul(ops::mul(w_, frozen), ops::mul(ops::square(w_).detach(), without));
  const size_t before = graph_.node_count();
  const std::vector<LeafGradient> gradients = differentiate(tracer, ops::sum(product));
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].leaf->name, "w");
  EXPECT_FALSE(gradients[0].gradient.requires_grad());
  for (const GraphNode* node : graph_.nodes()) {
    EXPECT_NE(node->op->name(), "square_grad") << "nothing flows into what was detached";
  }
  EXPECT_GT(graph_.node_count(), before);
  graph_.verify();
}

TEST_F(Differentiate, TakesAGradientToStartFrom) {
  auto graph = std::make_unique<Graph>();
  {
    Tracer tracer(*graph);
    const Tensor y = ops::square(w_);
    EXPECT_EQ(message_of([&] { differentiate(tracer, y); }),
              "[backward] a result of shape (3,) needs an explicit gradient");
    EXPECT_EQ(message_of([&] { differentiate(tracer, y, Tensor::zeros({2})); }),
              "[backward] expected a gradient of float32 (3,) on cpu but got float32 (2,) on cpu");
    const Tensor start = Tensor::from_values<float>({1, 2, 3}, {3});
    graph->add_output(tracer.use_of(differentiate(tracer, y, start)[0].gradient));
  }
  EXPECT_EQ(Program(std::move(graph), Device::cpu()).run({})[0].to_vector<float>(),
            (std::vector<float>{4, 8, 12}));
}

/// 2 x, with an input that may be absent and whose shape the gradient looks at.
const Op& op_with_optional_input() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added = registry.add(
        {.name = "test_optional_input",
         .inputs = {{"x"}, {"w", true}},
         .outputs = {{"y"}},
         .infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; },
         .gradient =
             [](const GradientContext& context) {
               const int rank = context.input_spec(1).shape.rank();
               return Tensors{ops::affine(context.grad(), 2.0 + rank, 0.0), Tensor()};
             }});
    registry.add_kernel("test_optional_input", {.run = [](const KernelContext& context) {
                          const TensorView& x = context.input(0);
                          for (int64_t i = 0; i < x.numel(); ++i)
                            context.output(0).as<float>()[i] = 2 * x.as<float>()[i];
                        }});
    return &added;
  }();
  return *op;
}

TEST_F(Differentiate, GivesTheSpecOfAnAbsentInputAsBackwardDoes) {
  const auto result = [](const Tensor& x) {
    return ops::sum(call(op_with_optional_input(), {x, Tensor()}, {}).front());
  };
  const Tensor eager = w_.detach().clone().set_requires_grad(true);
  backward(result(eager));
  auto graph = std::make_unique<Graph>();
  {
    Tracer tracer(*graph);
    graph->add_output(tracer.use_of(differentiate(tracer, result(w_))[0].gradient));
  }
  EXPECT_EQ(Program(std::move(graph), Device::cpu()).run({})[0].to_vector<float>(),
            eager.grad().to_vector<float>());
}

constexpr const char* kNoGradient =
    "[backward] the result of the job has no gradient: nothing that it was computed from requires one, or it "
    "was "
    "computed while a NoGrad was alive";

TEST_F(Differentiate, RefusesResultsWithoutAGradient) {
  Tracer tracer(graph_);
  EXPECT_EQ(message_of([&] { differentiate(tracer, ops::sum(ops::square(w_).detach())); }), kNoGradient);
  EXPECT_EQ(message_of([&] { differentiate(tracer, Tensor::full({1}, 1.0)); }), kNoGradient);
  const NoGrad no_grad;
  EXPECT_EQ(message_of([&] { differentiate(tracer, ops::sum(w_)); }), kNoGradient);
}

TEST_F(Differentiate, RefusesLeavesThatWereChangedBehindTheirReading) {
  const Tensor buffer = Tensor::full({2, 3}, 3.0);
  const auto function = [&] {
    const Tensor y = ops::mul(w_, buffer);
    const NoGrad no_grad;
    ops::fill_(buffer, 1.0);
    return y;
  };
  const std::string reason = "[backward] input 1 of 'mul' was changed in place after the forward call";
  EXPECT_EQ(message_of([&] { backward(ops::sum(function())); }).substr(0, reason.size()), reason);
  graph_.memory(buffer, GraphValue::Kind::kLeaf, "buffer");
  Tracer tracer(graph_);
  const Tensor loss = ops::sum(function());
  EXPECT_EQ(message_of([&] { differentiate(tracer, loss); }),
            reason + ", by 'fill_', but its gradient reads it");
}

TEST_F(Differentiate, RefusesChangesThroughOtherViews) {
  const Tensor buffer = Tensor::full({3}, 3.0);
  graph_.memory(buffer, GraphValue::Kind::kLeaf, "buffer");
  const Tensor half = Tensor::over(buffer.storage(), 4, {Shape{1}, DType::kFloat32, Device::cpu()});
  Tracer tracer(graph_);
  const Tensor y = ops::mul(w_, buffer);
  {
    const NoGrad no_grad;
    ops::fill_(half, 1.0);
  }
  const Tensor loss = ops::sum(y);
  EXPECT_NE(message_of([&] { differentiate(tracer, loss); }).find("changed in place"), std::string::npos);
}

TEST_F(Differentiate, AllowsChangesThatNoGradientReads) {
  const Tensor buffer = Tensor::full({3}, 3.0);
  graph_.memory(buffer, GraphValue::Kind::kLeaf, "buffer");
  Tracer tracer(graph_);
  {
    const NoGrad no_grad;
    ops::fill_(buffer, 1.0);  // before it is read
  }
  const Tensor y = ops::add(ops::mul(w_, buffer), buffer);
  const Tensor later = Tensor::full({3}, 0.0);
  {
    const NoGrad no_grad;
    ops::copy_(later, buffer);
    ops::fill_(later, 1.0);
  }
  EXPECT_EQ(differentiate(tracer, ops::sum(ops::add(y, later))).size(), 1u);
}

}  // namespace
}  // namespace sinter
