// Convolutions that take in what follows them: the graph before and after, what stays as it is and why, and
// that the rewritten graph computes the same.
#include <sinter/core/executor/program.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reduce/reduce.h>

#include "passes/function_graph.h"
#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;

using Texts = std::vector<std::string>;

nn::Conv2d conv(int64_t in, int64_t out, bool bias) {
  return {in, out, 3, {.padding = 1, .bias = bias}};
}

/// A block whose shortcut is a convolution.
struct Block : nn::Module {
  Tensor forward(const Tensor& x) const override {
    const Tensor y = act(conv1(x));
    const Tensor main = conv2(y);
    return ops::relu(main + conv3(x));
  }
  nn::Conv2d conv1 = child("conv1", conv(3, 4, true)), conv2 = child("conv2", conv(4, 4, true)),
             conv3 = child("conv3", conv(3, 4, false));
  nn::PReLU act = child("act", nn::PReLU(4));
};

TEST(FuseConvolution, TakesInBiasSumAndActivation) {
  const Block block;
  const auto graph = traced(block, {2, 3, 5, 6});
  const PassReport report = run(fuse_convolution, *graph, false);
  EXPECT_EQ(outline(*graph),
            "%0 = conv2d_bias_act(%x, conv1.weight, conv1.bias, none, act.weight) activation=prelu  # conv1\n"
            "%1 = conv2d(%x, conv3.weight)  # conv3\n"
            "%2 = conv2d_bias_act(%0, conv2.weight, conv2.bias, %1) activation=relu  # conv2\n");
  EXPECT_EQ(report.done, (Texts{"conv2d + bias + prelu in conv1", "conv2d + bias + add + relu in conv2"}));
  EXPECT_EQ(report.missed, Texts{});
}

TEST(FuseConvolution, IsForInference) {
  const Block block;
  const auto graph = traced(block, {2, 3, 5, 6});
  const std::string before = graph->to_string();
  run(fuse_convolution, *graph, true);
  EXPECT_EQ(graph->to_string(), before);
}

const TensorSpec kImages{{2, 3, 5, 6}, DType::kFloat32, Device::cpu()};
const TensorSpec kResults{{2, 4, 5, 6}, DType::kFloat32, Device::cpu()};
const ops::Conv2dOptions kSame{.padding = {1, 1}};

/// The graph of a function of images, an addend and filters `w`, bias `b` and slopes `s`; what the pass said,
/// and that values stay.
struct Fused {
  Tensor w = random({4, 3, 3, 3}), b = random({4}), s = random({4}), one = random({1});
  std::unique_ptr<Graph> graph;
  PassReport report;

  using Body = std::function<std::vector<Tensor>(const Fused&, const Tensor& x, const Tensor& a)>;
  explicit Fused(const Body& body, const TensorSpec& addend = kResults) {
    graph = graph_of({kImages, addend}, {{"w", w}, {"b", b}, {"s", s}, {"one", one}},
                     [&](const std::vector<Tensor>& given) { return body(*this, given[0], given[1]); });
    const std::vector<Tensor> inputs{random(kImages.shape), random(addend.shape)};
    const Tensor kept = ops::cast(w, DType::kFloat64);  // a graph may change it
    const std::vector<Tensor> before = testing::run(*graph, inputs);
    ops::copy_(w, ops::cast(kept, DType::kFloat32));
    report = testing::run(fuse_convolution, *graph, false);
    const std::vector<Tensor> after = testing::run(*graph, inputs);
    EXPECT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      for (int64_t j = 0; j < before[i].numel(); ++j)
        EXPECT_NEAR(before[i].data<float>()[j], after[i].data<float>()[j], 1e-5) << i << " " << j;
    }
  }
};

TEST(FuseConvolution, TakesEachChain) {
  const auto ops_of = [](const Fused::Body& body) {
    const Fused fused(body);
    EXPECT_EQ(fused.report.missed, Texts{});
    return outline(*fused.graph);
  };
  EXPECT_EQ(ops_of([](const Fused& f, const Tensor& x, const Tensor& a) {
              return std::vector{ops::relu(a + ops::conv2d(x, f.w, {}, kSame))};
            }),
            "%0 = conv2d_bias_act(%x0, w, none, %x1) activation=relu\n");
  EXPECT_EQ(ops_of([](const Fused& f, const Tensor& x, const Tensor& a) {
              return std::vector{ops::conv2d(x, f.w, f.b, kSame) + a};
            }),
            "%0 = conv2d_bias_act(%x0, w, b, %x1)\n");
  EXPECT_EQ(ops_of([](const Fused& f, const Tensor& x, const Tensor&) {
              return std::vector{ops::conv2d(x, f.w, f.b, kSame)};
            }),
            "%0 = conv2d_bias_act(%x0, w, b)\n");
  EXPECT_EQ(ops_of([](const Fused& f, const Tensor& x, const Tensor& a) {
              return std::vector{ops::prelu(ops::conv2d(x, f.w, {}, kSame) + a, f.s)};
            }),
            "%0 = conv2d_bias_act(%x0, w, none, %x1, s) activation=prelu\n");
  EXPECT_EQ(ops_of([](const Fused& f, const Tensor& x, const Tensor&) {
              return std::vector{ops::conv2d(x, f.w, {}, kSame)};
            }),
            "%0 = conv2d(%x0, w)\n");
}

TEST(FuseConvolution, LeavesWhatOthersRead) {
  const Fused before_sum([](const Fused& f, const Tensor& x, const Tensor& a) {
    const Tensor y = ops::conv2d(x, f.w, f.b, kSame);
    return std::vector{ops::relu(y + a), y};
  });
  EXPECT_EQ(outline(*before_sum.graph),
            "%0 = conv2d_bias_act(%x0, w, b)\n%1 = add(%0, %x1)\n%2 = relu(%1)\n");
  const Fused before_relu([](const Fused& f, const Tensor& x, const Tensor& a) {
    const Tensor y = ops::conv2d(x, f.w, f.b, kSame) + a;
    return std::vector{ops::relu(y), y};
  });
  EXPECT_EQ(outline(*before_relu.graph), "%0 = conv2d_bias_act(%x0, w, b, %x1)\n%1 = relu(%0)\n");
  const Fused twice([](const Fused& f, const Tensor& x, const Tensor&) {
    const Tensor y = ops::conv2d(x, f.w, {}, kSame);
    return std::vector{y + y};
  });
  EXPECT_EQ(outline(*twice.graph), "%0 = conv2d(%x0, w)\n%1 = add(%0, %0)\n");
}

// As of a norm before padding, which becomes an image to add: taken into its own convolution, the sum would
// have that computed anew in every run.
TEST(FuseConvolution, LeavesTheSumToTheConvolutionOfWhatChanges) {
  const Fused fused([](const Fused& f, const Tensor& x, const Tensor&) {
    const Tensor map = ops::conv2d(ops::broadcast_to(f.one, kImages.shape), f.w, f.b, kSame);
    return std::vector{ops::relu(ops::conv2d(x, f.w, {}, kSame) + map)};
  });
  EXPECT_EQ(fused.report.done, (Texts{"conv2d + bias", "conv2d + add + relu"}));
  const Program program(fused.graph->clone(), Device::cpu());
  EXPECT_EQ(program.stats().calls, 1U) << outline(*fused.graph);
}

TEST(FuseConvolution, SaysWhyItLeavesOthers) {
  const Fused broadcast(
      [](const Fused& f, const Tensor& x, const Tensor& a) {
        return std::vector{ops::relu(ops::conv2d(x, f.w, f.b, kSame) + a)};
      },
      {{1, 4, 1, 1}, DType::kFloat32, Device::cpu()});
  EXPECT_EQ(broadcast.report.missed, Texts{"add behind conv2d: it broadcasts"});
  EXPECT_EQ(broadcast.report.done, Texts{"conv2d + bias"});
  const Fused one_slope([](const Fused& f, const Tensor& x, const Tensor&) {
    return std::vector{ops::prelu(ops::conv2d(x, f.w, {}, kSame), f.one)};
  });
  EXPECT_EQ(one_slope.report.missed, Texts{"prelu behind conv2d: one slope serves all channels"});
  EXPECT_EQ(one_slope.report.done, Texts{});
  const Fused other_layout([](const Fused& f, const Tensor& x, const Tensor&) {
    return std::vector{ops::prelu(ops::conv2d(x, f.w, {}, kSame), random({6}), {.layout = Layout::kNHWC})};
  });
  EXPECT_EQ(other_layout.report.missed, Texts{"prelu behind conv2d: it has another layout"});
}

TEST(FuseConvolution, StaysBeforeAChangeOfItsFilters) {
  const Fused changing([](const Fused& f, const Tensor& x, const Tensor& a) {
    const Tensor y = ops::conv2d(x, f.w, f.b, kSame);
    ops::fill_(f.w, 0.5);
    return std::vector{ops::relu(y + a)};
  });
  EXPECT_EQ(changing.report.done, Texts{});
  ASSERT_EQ(changing.report.missed.size(), 1U);
  EXPECT_NE(changing.report.missed[0].find("changes in between"), std::string::npos)
      << changing.report.missed[0];
}

}  // namespace
}  // namespace sinter::passes
