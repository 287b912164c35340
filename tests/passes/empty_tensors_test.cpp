// Empty tensors in jobs: for every op, calls with inputs of no elements give what eager calls give, and so do
// their gradients, in training and in inference, with all passes.
#include <set>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/differentiate.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/passes/pipeline.h>

namespace sinter::passes {
namespace {

using ops::OpSample;
using ops::SampleMaker;
using ops::SampleRegistry;

constexpr uint64_t kSeeds = 150;
constexpr int kEnough = 12;  // calls of each op

bool has_empty(const OpSample& sample) {
  return std::ranges::any_of(sample.inputs, [](const Tensor& x) { return x.defined() && x.numel() == 0; });
}

/// The sample without rows in one of its inputs, and in those that have as many.
OpSample without_rows(OpSample sample, uint64_t which) {
  std::vector<Tensor> with_rows;
  std::ranges::copy_if(sample.inputs, std::back_inserter(with_rows),
                       [](const Tensor& x) { return x.defined() && x.rank() > 0; });
  if (with_rows.empty()) return sample;
  const int64_t rows = with_rows[which % with_rows.size()].shape()[0];
  for (Tensor& input : sample.inputs) {
    if (input.defined() && input.rank() > 0 && input.shape()[0] == rows)
      input = ops::copy(ops::slice(input, 0, 0, 0));
  }
  return sample;
}

/// Outputs, inputs that were changed, and gradients; or the error.
struct Outcome {
  std::vector<Tensor> results;
  std::string error;
};

bool is_differentiated(const Op& op, size_t input, const Tensor& value) {
  return op.definition.gradient != nullptr && value.defined() && is_float(value.dtype()) &&
         !op.definition.input_def(input).mutated;
}

/// The sum of all outputs through which gradients flow; undefined if there is none.
Tensor loss_of(const std::vector<Tensor>& outputs) {
  Tensor loss;
  for (const Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    const Tensor sum = ops::sum(ops::cast(output, DType::kFloat32));
    loss = loss.defined() ? loss + sum : sum;
  }
  return loss;
}

std::vector<Tensor> leaves_of(const Op& op, const OpSample& sample, bool trains) {
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    leaves.push_back(sample.inputs[i].defined() ? sample.inputs[i].clone() : Tensor());
    if (trains && is_differentiated(op, i, leaves[i])) leaves[i].set_requires_grad(true);
  }
  return leaves;
}

Outcome run_eagerly(const Op& op, const OpSample& sample, bool trains) {
  Outcome outcome;
  const std::vector<Tensor> leaves = leaves_of(op, sample, trains);
  try {
    const std::vector<Tensor> outputs = call(op, leaves, sample.attributes);
    for (const Tensor& output : outputs) outcome.results.push_back(output.detach());
    const Tensor loss = loss_of(outputs);
    if (loss.defined()) backward(loss);
  } catch (const InvalidArgument& error) {
    return {{}, error.what()};
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].defined() && op.definition.input_def(i).mutated) outcome.results.push_back(leaves[i]);
  }
  for (const Tensor& leaf : leaves) {
    if (leaf.defined() && leaf.grad().defined()) outcome.results.push_back(leaf.grad());
  }
  return outcome;
}

Outcome run_in_a_job(const Op& op, const OpSample& sample, bool trains,
                     const std::vector<std::string>& without) {
  Outcome outcome;
  const std::vector<Tensor> leaves = leaves_of(op, sample, trains);
  auto graph = std::make_unique<Graph>();
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].defined()) graph->memory(leaves[i], GraphValue::Kind::kLeaf, fmt::format("input{}", i));
  }
  PassContext context{.training = trains, .layout = Layout::kNHWC, .memory_limit = 0};
  Pipeline pipeline({.without = without});
  try {
    {
      Tracer tracer(*graph);
      const std::vector<Tensor> outputs = call(op, leaves, sample.attributes);
      const Tensor loss = loss_of(outputs);
      if (loss.defined()) graph->add_output(tracer.use_of(loss));
      for (const Tensor& output : outputs) graph->add_output(tracer.use_of(output.detach()));
    }
    pipeline.run(forward_passes(), *graph, context);
    const bool has_loss = !graph->outputs().empty() && graph->outputs()[0].differentiable;
    if (has_loss) {
      Tracer tracer(*graph);
      for (const LeafGradient& each : differentiate(tracer, tracer.tensor(graph->outputs()[0])))
        graph->add_output(tracer.use_of(each.gradient));
    }
    context.differentiated = true;
    pipeline.run(step_passes(), *graph, context);
    std::vector<Tensor> values = Program(std::move(graph), Device::cpu()).run({});
    values.erase(values.begin(), values.begin() + (has_loss ? 1 : 0));
    outcome.results = std::move(values);
  } catch (const InvalidArgument& error) {
    return {{}, error.what()};
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].defined() && op.definition.input_def(i).mutated) outcome.results.push_back(leaves[i]);
  }
  return outcome;
}

/// Results as texts, which NaN compares equal in; in any order.
std::multiset<std::string> texts_of(const std::vector<Tensor>& results) {
  std::multiset<std::string> texts;
  for (const Tensor& result : results) {
    std::string text = to_string(result.spec());
    for (const double value : ops::reference_of(result.detach()).values)
      text += fmt::format(" {:.4g}", value);
    texts.insert(text);
  }
  return texts;
}

class EmptyTensors : public testing::TestWithParam<std::string> {};

TEST_P(EmptyTensors, GiveInJobsWhatTheyGiveEagerly) {
  const Op& op = OpRegistry::instance().get(GetParam());
  const ops::OpSamples* const samples = SampleRegistry::builtin().find(GetParam());
  ASSERT_NE(samples, nullptr);
  int called = 0, run = 0;
  for (uint64_t seed = 1; seed <= kSeeds && called < kEnough; ++seed) {
    SampleMaker maker(seed, samples->dtypes.front());
    OpSample sample = samples->make(maker);
    if (!has_empty(sample)) sample = without_rows(std::move(sample), seed);
    if (!has_empty(sample)) continue;
    ++called;
    for (const bool trains : {true, false}) {
      std::optional<NoGrad> no_grad;
      if (!trains) no_grad.emplace();
      const Outcome eager = run_eagerly(op, sample, trains);
      run += eager.error.empty() ? 1 : 0;
      for (const std::vector<std::string>& without : {std::vector<std::string>{"all"}, {}}) {
        SCOPED_TRACE(fmt::format("seed {}, {}, {} passes: {}", seed, trains ? "training" : "inference",
                                 without.empty() ? "all" : "no", to_string(sample.attributes)));
        const Outcome job = run_in_a_job(op, sample, trains, without);
        EXPECT_EQ(job.error, eager.error);
        EXPECT_EQ(texts_of(job.results), texts_of(eager.results));
      }
      if (HasFailure()) return;
    }
  }
  // Nothing that they take can be empty.
  const std::set<std::string> refuse{"add_to_mean_", "end_all_reduce", "full",
                                     "loss_scale",   "random_key",     "random_normal"};
  EXPECT_EQ(run > 0, !refuse.contains(GetParam())) << called << " calls";
}

INSTANTIATE_TEST_SUITE_P(Registry, EmptyTensors, testing::ValuesIn(OpRegistry::instance().names()),
                         [](const auto& given) { return given.param; });

}  // namespace
}  // namespace sinter::passes
