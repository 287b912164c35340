// Results that are computed again instead of kept: which, when, and that steps stay what they were.
#include <cmath>

#include <sinter/core/op/norm_chain.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

#include "passes/function_graph.h"
#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;

using Texts = std::vector<std::string>;
using Tensors = std::vector<Tensor>;

const TensorSpec kRows{Shape{32, 32}, DType::kFloat32, Device::cpu()};

PassReport recompute_within(Graph& graph, size_t limit) {
  PassContext context{.differentiated = true, .memory_limit = limit};
  recompute(graph, context);
  graph.verify();
  return context.report;
}

/// A number that takes four times x's room on the way.
Tensor large(const Tensor& x) {
  return ops::sum(ops::concat({x, x, x, x}, 0) * 2.0);
}

/// The same from both graphs.
void expect_same_results(const Graph& before, const Graph& after, const Tensors& inputs) {
  const Tensors expected = run(before, inputs), got = run(after, inputs);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(largest_difference(expected[i], got[i]), 1e-5) << i;
}

TEST(Recompute, ComputesAgainWhatWaitsWhileMuchIsInUse) {
  const auto graph = graph_of({kRows}, {}, [](Tensors in) {
    const Tensor waiting = ops::exp(in[0]);
    const Tensor first = ops::sum(waiting);
    const Tensor second = large(in[0]);
    return Tensors{waiting * first * second};
  });
  const auto before = graph->clone();
  const PassReport report = recompute_within(*graph, 0);
  EXPECT_EQ(outline(*before),
            "%0 = exp(%x0)\n%1 = sum(%0)\n"
            "%2 = concat(%x0, %x0, %x0, %x0)\n%3 = affine(%2)\n%4 = sum(%3)\n"
            "%5 = mul(%0, %1)\n%6 = mul(%5, %4)\n");
  EXPECT_EQ(outline(*graph),
            "%0 = exp(%x0)\n%1 = sum(%0)\n"
            "%2 = concat(%x0, %x0, %x0, %x0)\n%3 = affine(%2)\n%4 = sum(%3)\n"
            "%5 = exp(%x0)\n%6 = mul(%5, %1)\n%7 = mul(%6, %4)\n");
  ASSERT_FALSE(report.done.empty());
  EXPECT_EQ(report.done[0], "exp: 0.0 MB at mul");
  expect_same_results(*before, *graph, {random({32, 32})});
  EXPECT_LT(Program(graph->clone(), Device::cpu()).stats().arena_bytes,
            Program(before->clone(), Device::cpu()).stats().arena_bytes);
}

TEST(Recompute, DoesNoMoreThanTheLimitAsksFor) {
  const auto graph = graph_of({kRows}, {}, [](Tensors in) {
    const Tensor a = ops::exp(in[0]), b = ops::square(in[0]);
    const Tensor first = ops::sum(a) + ops::sum(b);
    const Tensor second = large(in[0]);
    return Tensors{a * first * second, b * second};
  });
  const size_t all = Program(graph->clone(), Device::cpu()).stats().least_arena_bytes;
  const auto enough = graph->clone(), less = graph->clone(), least = graph->clone();
  EXPECT_EQ(recompute_within(*enough, all).done, Texts{});
  EXPECT_EQ(enough->node_count(), graph->node_count());
  recompute_within(*less, all - 1);
  EXPECT_EQ(count(*less, "exp") + count(*less, "square"), 3U) << "one of two is enough";
  recompute_within(*least, 0);
  EXPECT_EQ(count(*least, "exp") + count(*least, "square"), 4U);
  expect_same_results(*graph, *least, {random({32, 32})});
}

TEST(Recompute, WithoutALimitDoesNothing) {
  const auto graph = graph_of({kRows}, {}, [](Tensors in) {
    const Tensor a = ops::exp(in[0]);
    const Tensor second = large(in[0]);
    return Tensors{a * ops::sum(a) * second};
  });
  const size_t nodes = graph->node_count();
  EXPECT_EQ(testing::run(recompute, *graph, true, true).done, Texts{});
  EXPECT_EQ(graph->node_count(), nodes);
}

/// Graphs in which nothing can be won.
void expect_untouched(const std::vector<std::pair<std::string, Tensor>>& leaves, const Function& function) {
  const auto graph = graph_of({kRows, kRows}, leaves, function);
  const size_t nodes = graph->node_count();
  const PassReport report = recompute_within(*graph, 0);
  EXPECT_EQ(report.done, Texts{}) << graph->to_string();
  EXPECT_EQ(graph->node_count(), nodes);
  ASSERT_EQ(report.missed.size(), 1U);
  EXPECT_NE(report.missed[0].find("nothing there can be computed again"), std::string::npos)
      << report.missed[0];
}

TEST(Recompute, KeepsWhatIsDearOrCannotBeHadAgain) {
  // A product.
  expect_untouched({}, [](Tensors in) {
    const Tensor a = ops::matmul(in[0], in[1]);
    const Tensor first = ops::sum(a), second = large(in[0]);
    return Tensors{a * first * second};
  });
  // What it was made from is gone by then.
  expect_untouched({}, [](Tensors in) {
    const Tensor a = ops::exp(ops::matmul(in[0], in[1]));
    const Tensor first = ops::sum(a), second = large(in[0]);
    return Tensors{a * first * second};
  });
  // A result of the job.
  expect_untouched({}, [](Tensors in) {
    const Tensor a = ops::exp(in[0]);
    const Tensor first = ops::sum(a), second = large(in[0]);
    return Tensors{a, ops::sum(a * first * second)};
  });
  // A sum in which other processes take part.
  const auto alone = Communicator::join(ProcessEnvironment{});
  expect_untouched({}, [&](Tensors in) {
    const Tensor a = ops::all_reduce(in[0], *alone);
    const Tensor first = ops::sum(a), second = large(in[0]);
    return Tensors{a * first * second};
  });
  // A leaf that is changed in between.
  const Tensor leaf = random({32, 32});
  expect_untouched({{"leaf", leaf}}, [&](Tensors in) {
    const Tensor a = ops::exp(leaf);
    const Tensor first = ops::sum(a), second = large(in[0]);
    ops::copy_(leaf, in[1]);
    return Tensors{a * first * second};
  });
}

TEST(Recompute, ReadsLeavesThatNobodyChanges) {
  const Tensor leaf = random({32, 32});
  const auto graph = graph_of({kRows}, {{"leaf", leaf}}, [&](Tensors in) {
    const Tensor a = in[0] * leaf;
    const Tensor first = ops::sum(a), second = large(in[0]);
    return Tensors{a * first * second};
  });
  const auto before = graph->clone();
  EXPECT_GE(recompute_within(*graph, 0).done.size(), 1U);
  EXPECT_EQ(graph->node_count(), before->node_count() + 1);
  expect_same_results(*before, *graph, {random({32, 32})});
}

/// Makes two steps with two copies of a model, one within a limit, and compares: the second loss depends on
/// all gradients.
template <class Model>
void expect_same_training(const Model& model, const Tensor& x, const Tensor& y, size_t limit,
                          nn::TrainJobOptions options, double most_of_memory) {
  const Model kept = nn::clone(model), limited = nn::clone(model);
  nn::SGD kept_sgd(kept.parameters(), {.momentum = 0.9}),
      limited_sgd(limited.parameters(), {.momentum = 0.9});
  nn::TrainJob kept_job(kept, nn::CrossEntropyLoss{}, kept_sgd, options);
  options.memory_limit = limit;
  nn::TrainJob limited_job(limited, nn::CrossEntropyLoss{}, limited_sgd, options);
  for (int step = 0; step < 2; ++step) {
    const double loss = kept_job.step(x, y, 0.05).item();
    EXPECT_NEAR(limited_job.step(x, y, 0.05).item(), loss, 1e-4 * (1.0 + std::abs(loss))) << step;
  }
  EXPECT_LE(static_cast<double>(limited_job.program().stats().arena_bytes),
            most_of_memory * static_cast<double>(kept_job.program().stats().arena_bytes))
      << limited_job.report();
}

Tensor images(int64_t count, int64_t size) {
  return random({count, 3, size, size});
}

Tensor classes(int64_t count) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(i * 3 % 5);
  return Tensor::from_values(values, {count});
}

TEST(Recompute, LetsResNetsTrainInLessMemory) {
  manual_seed(3);
  const nn::ResNet model = nn::resnet50({.classes = 5, .width = 8});
  expect_same_training(model, images(4, 64), classes(4), 0, {}, 0.85);
  expect_same_training(model, images(4, 64), classes(4), 0, {.layout = Layout::kNHWC}, 0.85);
}

// Buffers cannot always lie as close as their sizes add up to: what a program takes is what counts.
TEST(Recompute, KeepsWhatAProgramTakesWithinTheLimit) {
  manual_seed(3);
  const nn::ResNet model = nn::resnet18({.classes = 5, .width = 12});
  const auto bytes_within = [&](std::optional<size_t> limit) {
    nn::SGD sgd(model.parameters(), {});
    nn::TrainJob job(model, nn::CrossEntropyLoss{}, sgd, {.memory_limit = limit});
    job.step(images(6, 40), classes(6), 0.0);
    return job.program().stats().arena_bytes;
  };
  const size_t most = bytes_within(std::nullopt), least = bytes_within(0);
  ASSERT_LT(least, most);
  for (size_t i = 1; i < 40; ++i) {
    const size_t limit = least + (most - least) * i / 40;
    EXPECT_LE(bytes_within(limit), limit);
  }
}

struct PreActivated : nn::Module {
  Tensor forward(const Tensor& x) const override {
    Tensor y = stem(x);
    y = y + first(ops::gelu(norm1(y)));
    y = y + second(ops::prelu(norm2(y), slope.tensor()));
    return head(ops::reshape(pool(y), {x.shape()[0], 8}));
  }
  nn::Conv2d stem = child("stem", nn::Conv2d(3, 8, 3, {.padding = 1}));
  nn::Conv2d first = child("first", nn::Conv2d(8, 8, 3, {.padding = 1}));
  nn::Conv2d second = child("second", nn::Conv2d(8, 8, 3, {.padding = 1}));
  nn::BatchNorm2d norm1 = child("norm1", nn::BatchNorm2d(8)), norm2 = child("norm2", nn::BatchNorm2d(8));
  nn::Parameter slope = parameter("slope", Tensor::full({8}, 0.25));
  nn::AdaptiveAvgPool2d pool = child("pool", nn::AdaptiveAvgPool2d({1, 1}));
  nn::Linear head = child("head", nn::Linear(8, 5));
};

TEST(Recompute, TakesNormsAndActivationsOfOtherNetworks) {
  manual_seed(4);
  const PreActivated model;
  const nn::TrainJobOptions unfused{.passes = {.without = {"fuse_normalization"}}};
  expect_same_training(model, images(4, 16), classes(4), 0, {}, 0.95);
  expect_same_training(model, images(4, 16), classes(4), 0, unfused, 0.95);
}

TEST(RecomputeRules, AreUniqueAndHaveAFunction) {
  EXPECT_NE(find_recompute_rule("batch_norm"), nullptr);
  EXPECT_EQ(find_recompute_rule("conv2d"), nullptr);
  const auto compute = [](const FoundCall& call, const Tensors&) { return call.inputs[0]; };
  EXPECT_THROW(add_recompute_rule({.op = "batch_norm", .compute = compute}), InvalidArgument);
  EXPECT_THROW(add_recompute_rule({.op = "test_nothing"}), InvalidArgument);
}

}  // namespace
}  // namespace sinter::passes
