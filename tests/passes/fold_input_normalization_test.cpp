// Norms that convolutions read: the graph before and after, what stays as it is and why, and that the
// rewritten graph computes the same.
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/unary/unary.h>

#include "passes/function_graph.h"
#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;

using Texts = std::vector<std::string>;

/// The graph of a function of images and a norm's tensors, what the passes said, and that values stay.
struct Folded {
  Layout layout = Layout::kNCHW;
  int64_t channels = 6;
  Tensor weight = random({channels}), bias = random({channels}), mean = random({channels}),
         variance = ops::square(random({channels})) + 0.5;
  std::unique_ptr<Graph> graph;
  PassReport report;

  using Body = std::function<std::vector<Tensor>(const Folded&, const Tensor& x)>;
  Folded(const Body& body, std::vector<std::pair<std::string, Tensor>> leaves, Layout given = Layout::kNCHW,
         int64_t images = 2)
      : layout(given) {
    const Shape shape =
        layout == Layout::kNHWC ? Shape{images, 5, 7, channels} : Shape{images, channels, 5, 7};
    leaves.insert(leaves.end(), {{"weight", weight}, {"bias", bias}, {"mean", mean}, {"variance", variance}});
    graph = graph_of({{shape, DType::kFloat32, Device::cpu()}}, leaves,
                     [&](const std::vector<Tensor>& inputs) { return body(*this, inputs[0]); });
    const std::vector<Tensor> inputs{random(shape)};
    const std::vector<Tensor> before = testing::run(*graph, inputs);
    report = testing::run(fold_input_normalization, *graph, false);
    compare(before, testing::run(*graph, inputs));
    testing::run(fuse_convolution, *graph, false);
    compare(before, testing::run(*graph, inputs));
  }
  Tensor norm(const Tensor& x) const {
    return ops::batch_norm(x, weight, bias, mean, variance, {.training = false, .layout = layout});
  }
  int count(const std::string& op) const {
    int count = 0;
    for (const GraphNode* node : graph->nodes()) count += node->op->name() == op ? 1 : 0;
    return count;
  }

 private:
  static void compare(const std::vector<Tensor>& before, const std::vector<Tensor>& after) {
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(before[i].shape(), after[i].shape());
      for (int64_t j = 0; j < before[i].numel(); ++j)
        ASSERT_NEAR(before[i].data<float>()[j], after[i].data<float>()[j], 2e-5) << i << " " << j;
    }
  }
};

TEST(FoldInputNormalization, IsAMapWherePaddingIsAndABiasElsewhere) {
  const Tensor w = random({4, 6, 3, 3}), b = random({4});
  for (const int64_t images : {1, 2}) {
    for (const int64_t padding : {0, 1, 2}) {
      for (const int64_t stride : {1, 2}) {
        for (const int64_t dilation : {1, 2}) {
          SCOPED_TRACE(fmt::format("{} images, padding {}, stride {}, dilation {}", images, padding, stride,
                                   dilation));
          const Folded folded(
              [&](const Folded& f, const Tensor& x) {
                return std::vector{ops::relu(ops::conv2d(f.norm(x), w, b,
                                                         {.stride = {stride, stride},
                                                          .padding = {padding, 0},
                                                          .dilation = {dilation, dilation}}))};
              },
              {{"w", w}, {"b", b}}, Layout::kNCHW, images);
          EXPECT_EQ(folded.report.done, Texts{"batch_norm in "});
          EXPECT_EQ(folded.count("batch_norm"), 0);
          EXPECT_EQ(folded.count("add"),
                    1);  // of the variance and epsilon; that of the map is the convolution's
          EXPECT_EQ(folded.count("relu"), 0);
        }
      }
    }
  }
}

TEST(FoldInputNormalization, FollowsGroupsAndLayout) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const int64_t groups : {1, 2, 3, 6}) {
      SCOPED_TRACE(fmt::format("{} groups, {}", groups, to_string(layout)));
      const Tensor w =
          random(layout == Layout::kNHWC ? Shape{12, 3, 3, 6 / groups} : Shape{12, 6 / groups, 3, 3});
      const Folded folded(
          [&](const Folded& f, const Tensor& x) {
            return std::vector{
                ops::conv2d(f.norm(x), w, {}, {.padding = {1, 1}, .groups = groups, .layout = layout})};
          },
          {{"w", w}}, layout);
      EXPECT_EQ(folded.count("batch_norm"), 0);
      EXPECT_EQ(folded.count("conv2d_bias_act"), 1);
    }
  }
}

TEST(FoldInputNormalization, ServesSeveralConvolutionsAndANormWithoutWeights) {
  const Tensor v = random({4, 6, 3, 3}), w = random({4, 6, 1, 1});
  const Folded folded(
      [&](const Folded& f, const Tensor& x) {
        const Tensor y = ops::batch_norm(x, {}, {}, f.mean, f.variance, {.training = false});
        return std::vector{ops::conv2d(y, v, {}, {.padding = {1, 1}}), ops::conv2d(y, w)};
      },
      {{"v", v}, {"w", w}});
  EXPECT_EQ(folded.report.done, Texts{"batch_norm in "});
  EXPECT_EQ(folded.count("batch_norm"), 0);
}

TEST(FoldInputNormalization, SaysWhyItLeavesOthers) {
  const Tensor w = random({6, 6, 3, 3});
  const auto missed = [&](const Folded::Body& body) {
    const Folded folded(body, {{"w", w}});
    EXPECT_EQ(folded.count("batch_norm"), 1);
    EXPECT_EQ(folded.report.done, Texts{});
    return folded.report.missed;
  };
  const ops::Conv2dOptions same{.padding = {1, 1}};
  EXPECT_EQ(missed([&](const Folded& f, const Tensor& x) { return std::vector{ops::relu(f.norm(x))}; }),
            Texts{"batch_norm in : others than convolutions read it"});
  EXPECT_EQ(missed([&](const Folded& f, const Tensor& x) {
              const Tensor y = f.norm(x);
              return std::vector{ops::conv2d(y, w, {}, same), y};
            }),
            Texts{"batch_norm in : no convolution is behind it"});
  EXPECT_EQ(missed([&](const Folded& f, const Tensor& x) {
              return std::vector{ops::conv2d(f.norm(x), w, {}, same) + x};
            }),
            Texts{"batch_norm in : the convolution behind has an addend already"});
  EXPECT_EQ(missed([&](const Folded& f, const Tensor& x) {
              return std::vector{ops::conv2d(f.norm(x), random({4, 3, 3, 7}), {}, {.layout = Layout::kNHWC})};
            }),
            Texts{"batch_norm in : the convolution behind has another layout"});
}

TEST(FoldInputNormalization, IsForInference) {
  const Tensor w = random({4, 6, 3, 3});
  const Folded folded(
      [&](const Folded& f, const Tensor& x) { return std::vector{ops::conv2d(f.norm(x), w)}; }, {{"w", w}});
  const auto graph = graph_of(
      {{{2, 6, 5, 7}, DType::kFloat32, Device::cpu()}},
      {{"w", w}, {"mean", folded.mean}, {"variance", folded.variance}},
      [&](const std::vector<Tensor>& inputs) {
        return std::vector{ops::conv2d(
            ops::batch_norm(inputs[0], {}, {}, folded.mean, folded.variance, {.training = false}), w)};
      });
  const std::string before = graph->to_string();
  run(fold_input_normalization, *graph, true);
  EXPECT_EQ(graph->to_string(), before);
}

}  // namespace
}  // namespace sinter::passes
