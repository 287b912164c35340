// Convolutions that give the sums for the norms behind them: which are found, the graph before and after, and
// that the rewritten graph computes the same.
#include <cmath>

#include <sinter/core/executor/program.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/passes/norm/convolution_sums.h>

#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;

using Texts = std::vector<std::string>;

class FakeJudge {
 public:
  explicit FakeJudge(bool prefers_sums) : prefers_sums_(prefers_sums) {}
  Verdict operator()(const SummableNorm& norm) {
    ++asked;
    EXPECT_NE(norm.convolution, nullptr);
    return {prefers_sums_, prefers_sums_ ? "faster" : "slower"};
  }
  int asked = 0;

 private:
  bool prefers_sums_;
};

nn::Conv2d conv(int64_t in, int64_t out, bool bias = false) {
  return {in, out, 3, {.padding = 1, .bias = bias}};
}

/// A block whose shortcut is a convolution with a norm of its own.
struct Block : nn::Module {
  Tensor forward(const Tensor& x) const override {
    const Tensor y = ops::relu(bn1(conv1(x)));
    const Tensor main = bn2(conv2(y));
    return ops::relu(main + bn3(conv3(x)));
  }
  nn::Conv2d conv1 = child("conv1", conv(3, 4)), conv2 = child("conv2", conv(4, 4)),
             conv3 = child("conv3", conv(3, 4, true));
  nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(4)), bn2 = child("bn2", nn::BatchNorm2d(4)),
                  bn3 = child("bn3", nn::BatchNorm2d(4));
};

std::unique_ptr<Graph> fused_graph(const Block& block, bool training = true) {
  block.train(training);
  auto graph = traced(block, {2, 3, 5, 6});
  run(fuse_normalization, *graph, training);
  return graph;
}

TEST(ConvolutionSums, GoToEveryNormThatAConvolutionFeeds) {
  manual_seed(1);
  const Block block;
  const auto graph = fused_graph(block);
  EXPECT_EQ(summable_norms(*graph).size(), 3U);
  FakeJudge judge(true);
  PassContext context;
  sum_in_convolutions(*graph, context, std::ref(judge));
  graph->verify();
  EXPECT_EQ(judge.asked, 3);
  EXPECT_EQ(context.report.done.size(), 3U);
  EXPECT_EQ(context.report.missed, Texts{});
  EXPECT_TRUE(summable_norms(*graph).empty());
  EXPECT_EQ(outline(*graph),
            "%0, %1 = conv2d_sums(%x, conv1.weight)  # conv1\n"
            "%2, %3, %4, %5 = batch_norm_act(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var, %1)"
            " activation=relu  # bn1\n"
            "%6, %7 = conv2d_sums(%2, conv2.weight)  # conv2\n"
            "%8, %9 = conv2d_sums(%x, conv3.weight, conv3.bias)  # conv3\n"
            "%10, %11, %12, %13, %14, %15 = batch_norm_act(%6, bn2.weight, bn2.bias, bn2.running_mean,"
            " bn2.running_var, %7, none, %8, bn3.weight, bn3.bias, bn3.running_mean, bn3.running_var, %9)"
            " activation=relu normalize_addend=true  # bn2\n");
}

TEST(ConvolutionSums, KeepWhatIsComputed) {
  const Tensor x = nn::init::normal({2, 3, 5, 6}, 0.3, 1.0, default_generator());
  const auto run_graph = [&](bool sums) {
    manual_seed(2);
    const Block block;
    auto graph = fused_graph(block);
    FakeJudge judge(sums);
    PassContext context;
    sum_in_convolutions(*graph, context, std::ref(judge));
    Program program(std::move(graph), Device::cpu());
    std::vector<Tensor> results = program.run({&x, 1});
    results.push_back(block.bn2.running_mean.tensor());
    results.push_back(block.bn3.running_var.tensor());
    return results;
  };
  const std::vector<Tensor> plain = run_graph(false), summed = run_graph(true);
  ASSERT_EQ(plain.size(), summed.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    for (int64_t j = 0; j < plain[i].numel(); ++j)
      ASSERT_NEAR(plain[i].data<float>()[j], summed[i].data<float>()[j], 1e-5) << i << " " << j;
  }
}

TEST(ConvolutionSums, StayAwayWhereTheyDoNotPay) {
  const Block block;
  const auto graph = fused_graph(block);
  const std::string before = graph->to_string();
  FakeJudge judge(false);
  PassContext context;
  sum_in_convolutions(*graph, context, std::ref(judge));
  EXPECT_EQ(graph->to_string(), before);
  EXPECT_EQ(context.report.missed, Texts{"sums of bn1 and 2 more: slower"});
  EXPECT_EQ(run(sum_in_convolutions, *graph).missed,
            Texts{"sums of bn1 and 2 more: nothing on a cpu sums while it computes"});
}

TEST(ConvolutionSums, AreForTrainingAndForConvolutionsOnly) {
  const Block block;
  EXPECT_TRUE(summable_norms(*fused_graph(block, false)).empty());
  const nn::Sequential other(nn::ReLU(), nn::BatchNorm2d(3), nn::ReLU());
  auto graph = traced(other, {2, 3, 5, 6});
  run(fuse_normalization, *graph);
  EXPECT_TRUE(summable_norms(*graph).empty());
}

TEST(ConvolutionSums, AreComputedOnceForTwoNorms) {
  struct Twice : nn::Module {
    Tensor forward(const Tensor& x) const override {
      const Tensor y = conv1(x);
      const Tensor first = ops::relu(bn1(y));
      return first * ops::relu(bn2(y));
    }
    nn::Conv2d conv1 = child("conv1", conv(3, 4));
    nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(4)), bn2 = child("bn2", nn::BatchNorm2d(4));
  };
  const Twice model;
  auto graph = traced(model, {2, 3, 5, 6});
  run(fuse_normalization, *graph);
  FakeJudge judge(true);
  PassContext context;
  sum_in_convolutions(*graph, context, std::ref(judge));
  graph->verify();
  EXPECT_EQ(judge.asked, 1);
  EXPECT_EQ(outline(*graph),
            "%0, %1 = conv2d_sums(%x, conv1.weight)  # conv1\n"
            "%2, %3, %4, %5 = batch_norm_act(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var, %1)"
            " activation=relu  # bn1\n"
            "%6, %7, %8, %9 = batch_norm_act(%0, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var, %1)"
            " activation=relu  # bn2\n"
            "%10 = mul(%2, %6)\n");
}

}  // namespace
}  // namespace sinter::passes
