// Sums over ranks that are taken together: which, where they begin and end, and that nothing changes.
#include <sinter/core/comm/communicator.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/unary/unary.h>

#include "passes/function_graph.h"

namespace sinter::passes {
namespace {

using namespace testing;

PassReport bucket(Graph& graph) {
  PassContext context;
  bucket_gradients(graph, context);
  graph.verify();
  return context.report;
}

TensorSpec spec(const Shape& shape) {
  return {shape, DType::kFloat32, {}};
}

/// Names of all calls but views, in order.
std::vector<std::string> calls(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphNode* node : graph.nodes()) {
    if (!node->is_view()) names.push_back(node->op->name());
  }
  return names;
}

class GradientBuckets : public ::testing::Test {
 protected:
  Tensor sum(const Tensor& x) const { return ops::bucketed_all_reduce(x, *ranks_); }

  const std::shared_ptr<Communicator> ranks_ = Communicator::join(ProcessEnvironment{});
};

TEST_F(GradientBuckets, BeginBehindTheLastOfTheirGradientsAndEndWhereTheFirstIsRead) {
  const auto graph = graph_of({spec({3, 5}), spec({70})}, {}, [&](std::vector<Tensor> x) {
    const Tensor a = ops::relu(x[0]);
    const Tensor b = ops::square(x[1]);
    const Tensor c = ops::sigmoid(x[0]);  // what the sums run beside
    return std::vector<Tensor>{sum(b), sum(a), c};
  });
  const std::vector<Tensor> inputs = {random({3, 5}), random({70})};
  const std::vector<Tensor> before = run(*graph, inputs);
  EXPECT_EQ(bucket(*graph).done, std::vector<std::string>{"2 gradients, 340 bytes"});
  EXPECT_EQ(calls(*graph),
            (std::vector<std::string>{"relu", "square", "begin_all_reduce", "sigmoid", "end_all_reduce"}));
  const std::vector<Tensor> after = run(*graph, inputs);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(largest_difference(before[i], after[i]), 0.0) << i;
}

TEST_F(GradientBuckets, HoldOneDtypeEachAndNotTooMuch) {
  const int64_t large = 3 << 20;  // 12 MiB
  const auto graph = graph_of({spec({large}), spec({8})}, {}, [&](std::vector<Tensor> x) {
    const Tensor a = ops::relu(x[0]), b = ops::square(x[0]);
    const Tensor c = ops::cast(x[1], DType::kFloat16), d = ops::relu(c);
    return std::vector<Tensor>{sum(c), sum(a), sum(d), sum(b)};  // as weights of convolutions and norms
  });
  EXPECT_EQ(bucket(*graph).done,
            (std::vector<std::string>{"1 gradients, 12582912 bytes", "1 gradients, 12582912 bytes",
                                      "2 gradients, 32 bytes"}));
  EXPECT_EQ(count(*graph, "all_reduce"), 0U);
}

// Ranks measure for themselves, and their graphs differ in the order of calls.
TEST_F(GradientBuckets, AreTheSameWhateverTheOrderOfCalls) {
  const int64_t large = 3 << 20;
  std::vector<std::vector<std::string>> begun;
  for (const bool turned : {false, true}) {
    const auto graph = graph_of({spec({large}), spec({8})}, {}, [&](std::vector<Tensor> x) {
      Tensor a, b;
      if (turned) b = ops::square(x[1]);
      a = ops::relu(x[0]);
      if (!turned) b = ops::square(x[1]);
      const Tensor c = ops::sigmoid(x[0]);
      return std::vector<Tensor>{sum(a), sum(b), sum(c)};
    });
    bucket(*graph);
    std::vector<std::string>& order = begun.emplace_back();
    for (const GraphNode* node : graph->nodes()) {
      if (node->op->name() != "begin_all_reduce") continue;
      for (const GraphUse& use : node->inputs) order.push_back(to_string(use.value->spec));
      order.emplace_back("end");
    }
  }
  EXPECT_EQ(begun[0], begun[1]);
  EXPECT_EQ(begun[0].size(), 5U);  // three gradients in two buckets
}

TEST_F(GradientBuckets, LeaveASingleSumAlone) {
  const auto graph = graph_of(
      {spec({4})}, {}, [&](std::vector<Tensor> x) { return std::vector<Tensor>{sum(ops::relu(x[0]))}; });
  EXPECT_TRUE(bucket(*graph).done.empty());
  EXPECT_EQ(count(*graph, "all_reduce"), 1U);
}

// Others than gradients are read at once, and gradients may depend on them.
TEST_F(GradientBuckets, LeaveSumsAloneThatAreNoGradients) {
  const auto graph = graph_of({spec({64})}, {}, [&](std::vector<Tensor> x) {
    const Tensor mean = ops::all_reduce(x[0], *ranks_);
    const Tensor a = ops::relu(x[0] - mean), b = ops::square(x[0] - mean);
    return std::vector<Tensor>{sum(a), sum(b)};
  });
  const std::vector<Tensor> inputs = {random({64})};
  const std::vector<Tensor> before = run(*graph, inputs);
  EXPECT_EQ(bucket(*graph).done, std::vector<std::string>{"2 gradients, 512 bytes"});
  EXPECT_EQ(count(*graph, "all_reduce"), 1U);
  const std::vector<Tensor> after = run(*graph, inputs);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(largest_difference(before[i], after[i]), 0.0) << i;
}

// A gradient that is made from another one's sum, or that lies in memory which changes before the first sum.
TEST_F(GradientBuckets, LeaveGradientsAloneThatAreNotThereWhereTheFirstSumStands) {
  const Tensor kept = Tensor::full({64}, 2.0);
  const auto graph = graph_of({spec({64})}, {{"kept", kept}}, [&](std::vector<Tensor> x) {
    const Tensor first = ops::relu(x[0]), second = ops::square(x[0]);
    const Tensor a = sum(first), b = sum(second);
    const Tensor of_a = sum(a * 0.5);
    ops::copy_(kept, a);
    return std::vector<Tensor>{a, b, of_a, sum(kept)};
  });
  const std::vector<Tensor> inputs = {random({64})};
  ops::fill_(kept, 2.0);
  const std::vector<Tensor> before = run(*graph, inputs);
  EXPECT_EQ(bucket(*graph).done, std::vector<std::string>{"2 gradients, 512 bytes"});
  EXPECT_EQ(count(*graph, "all_reduce"), 2U);
  ops::fill_(kept, 2.0);
  const std::vector<Tensor> after = run(*graph, inputs);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(largest_difference(before[i], after[i]), 0.0) << i;
}

// Such as a norm of gradients that are not summed themselves, which the update asks for.
TEST_F(GradientBuckets, TakeInWhatIsComputedBehindTheFirstSumOfWhatWasThereBefore) {
  const auto graph = graph_of({spec({64})}, {}, [&](std::vector<Tensor> x) {
    const Tensor own = ops::sigmoid(x[0]), a = ops::relu(x[0]);
    const Tensor b = ops::square(a);
    const std::vector<Tensor> shared = {sum(a), sum(b)};
    return std::vector<Tensor>{shared[0], shared[1], sum(ops::square(ops::exp(own)))};
  });
  const std::vector<Tensor> inputs = {random({64})};
  const std::vector<Tensor> before = run(*graph, inputs);
  EXPECT_EQ(bucket(*graph).done, std::vector<std::string>{"3 gradients, 768 bytes"});
  EXPECT_EQ(calls(*graph), (std::vector<std::string>{"sigmoid", "exp", "square", "relu", "square",
                                                     "begin_all_reduce", "end_all_reduce"}));
  const std::vector<Tensor> after = run(*graph, inputs);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(largest_difference(before[i], after[i]), 0.0) << i;
}

// What is being summed must neither move nor be written over meanwhile.
TEST_F(GradientBuckets, KeepMemoryOfGradientsUntilTheEnd) {
  const auto graph = graph_of({spec({64})}, {}, [&](std::vector<Tensor> x) {
    const Tensor a = ops::relu(x[0]), b = ops::square(x[0]);
    Tensor other = ops::sigmoid(x[0]);
    for (int i = 0; i < 5; ++i) other = ops::sigmoid(other) + ops::square(other);
    return std::vector<Tensor>{sum(a), sum(b), other};
  });
  bucket(*graph);
  const GraphNode* begin = nullptr;
  const GraphNode* end = nullptr;
  for (const GraphNode* node : graph->nodes()) {
    if (node->op->name() == "begin_all_reduce") begin = node;
    if (node->op->name() == "end_all_reduce") end = node;
  }
  ASSERT_NE(begin, nullptr);
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->input(0), begin->outputs[0]);
  for (size_t i = 0; i < begin->inputs.size(); ++i) EXPECT_EQ(end->input(i + 1), begin->input(i));
}

TEST_F(GradientBuckets, NeedACommunicatorThatIsThere) {
  auto ranks = Communicator::join(ProcessEnvironment{});
  const uint64_t id = ranks->id();
  ranks.reset();
  EXPECT_THROW(Communicator::of(id), InvalidArgument);
}

}  // namespace
}  // namespace sinter::passes
