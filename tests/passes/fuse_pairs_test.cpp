// Which pairs of calls become one, and which stay, by the graph's text.
#include <algorithm>

#include <sinter/autograd/differentiate.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pool/pool.h>

#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;
using nn::BatchNorm2d;
using nn::Conv2d;
using nn::Module;

using Texts = std::vector<std::string>;

/// The beginning of a ResNet, in any layout.
struct Stem : Module {
  Conv2d conv;
  BatchNorm2d bn;
  ops::PoolOptions pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  explicit Stem(Layout layout = Layout::kNCHW)
      : conv(child("conv",
                   Conv2d(3, 4, {.kernel = 3, .stride = 2, .padding = 1, .bias = false, .layout = layout}))),
        bn(child("bn", BatchNorm2d(4, {.layout = layout}))) {
    pool.layout = layout;
  }
  Tensor forward(const Tensor& x) const override { return ops::max_pool2d(ops::relu(bn(conv(x))), pool); }
};

/// The reports of both passes, the second of which is the one under test.
PassReport fuse(Graph& graph, bool training = true) {
  run(fuse_normalization, graph, training);
  return run(fuse_pairs, graph, training);
}

TEST(FusePairs, Stem) {
  const auto graph = traced(Stem(), {2, 3, 16, 16});
  EXPECT_EQ(outline(*graph),
            R"(%0 = conv2d(%x, conv.weight)  # conv
%1, %2, %3 = batch_norm(%0, bn.weight, bn.bias, bn.running_mean, bn.running_var)  # bn
%4 = relu(%1)
%5, %6 = max_pool2d(%4)
)");
  const PassReport report = fuse(*graph);
  EXPECT_EQ(outline(*graph, {"kernel", "stride", "padding", "save_indices"}),
            R"(%0 = conv2d(%x, conv.weight) stride=[2 padding=[1  # conv
%1, %2, %3, %4 = batch_norm_relu_max_pool(%0, bn.weight, bn.bias, bn.running_mean, bn.running_var) kernel=[3 stride=[2 padding=[1 save_indices=true  # bn
)");
  EXPECT_EQ(report.done, Texts{"batch_norm_act + max_pool2d in bn"});
  EXPECT_EQ(report.missed, Texts{});
}

TEST(FusePairs, StemOfChannelsLast) {
  const auto graph = traced(Stem(Layout::kNHWC), {2, 16, 16, 3});
  EXPECT_EQ(fuse(*graph).done, Texts{"batch_norm_act + max_pool2d in bn"});
  EXPECT_NE(graph->to_string().find("layout=NHWC"), std::string::npos);
  EXPECT_EQ(graph->to_string().find("layout=NCHW"), std::string::npos);
}

TEST(FusePairs, KeepsNoIndicesWhereNoGradientComes) {
  const auto graph = traced(Stem(), {2, 3, 16, 16});
  EXPECT_EQ(fuse(*graph, /*training=*/false).done.size(), 1U);
  EXPECT_NE(graph->to_string().find("save_indices=false"), std::string::npos);
}

struct TwoStems : Module {
  Stem first = child("first", Stem());
  Stem second = child("second", Stem());
  Tensor forward(const Tensor& x) const override {
    const Tensor cut = ops::relu(first.bn(first.conv(x))).detach();
    return ops::max_pool2d(cut, first.pool) + second(x);
  }
};

TEST(FusePairs, LetsNoGradientThroughWhereNoneWent) {
  const auto graph = traced(TwoStems(), {2, 3, 16, 16});
  EXPECT_EQ(fuse(*graph).done,
            (Texts{"batch_norm_act + max_pool2d in first.bn", "batch_norm_act + max_pool2d in second.bn"}));
  Tracer tracer(*graph);
  const Tensor y = tracer.tensor(graph->outputs()[0]);
  Texts names;
  for (const LeafGradient& each : differentiate(tracer, y, Tensor::full(y.shape(), 1.0))) {
    names.push_back(each.leaf->name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (Texts{"second.bn.bias", "second.bn.weight", "second.conv.weight"}));
}

struct Case {
  std::string name;
  std::function<std::vector<Tensor>(const Tensor&)> behind;  ///< of the normalised tensor, (2, 4, 8, 8)
  Texts missed;
};

TEST(FusePairs, SaysWhatStaysAndWhy) {
  using ops::max_pool2d;
  using ops::PoolOptions;
  using ops::relu;
  const PoolOptions halved{.kernel = {2, 2}};
  const auto pooled = [](const PoolOptions& options) {
    return [=](const Tensor& z) { return std::vector{max_pool2d(relu(z), options)}; };
  };
  const std::string pair = "batch_norm_act + max_pool2d in bn: ";
  const Case cases[] = {
      {"two users",
       [=](const Tensor& z) {
         const Tensor y = relu(z);
         return std::vector{max_pool2d(y, halved), y * 2.0};
       },
       {pair + "what lies in between has 2 users"}},
      {"a result",
       [=](const Tensor& z) {
         const Tensor y = relu(z);
         return std::vector{max_pool2d(y, halved), y};
       },
       {pair + "what lies in between is a result of the job"}},
      {"overlapping windows",
       pooled({.kernel = {3, 3}, .stride = {1, 1}}),
       {pair + "its 3 x 3 windows overlap more than twice at strides 1 x 1"}},
      {"overlapping windows in one axis",
       pooled({.kernel = {2, 3}, .stride = {2, 1}}),
       {pair + "its 2 x 3 windows overlap more than twice at strides 2 x 1"}},
      {"dilated windows",
       pooled({.kernel = {2, 2}, .dilation = {1, 2}}),
       {pair + "its windows are dilated by 1 x 2"}},
      {"another layout",
       pooled({.kernel = {2, 2}, .layout = Layout::kNHWC}),
       {pair + "their layouts differ"}},
      {"an addend",
       [=](const Tensor& z) { return std::vector{max_pool2d(relu(z + 1.0 * z.detach()), halved)}; },
       {}},
      {"average pooling", [=](const Tensor& z) { return std::vector{ops::avg_pool2d(relu(z), halved)}; }, {}},
      {"no activation", [=](const Tensor& z) { return std::vector{max_pool2d(z, halved)}; }, {}},
      {"another activation",
       [=](const Tensor& z) { return std::vector{max_pool2d(ops::silu(z), halved)}; },
       {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Stem stem;
    const auto graph = traced(
        stem, [&](std::span<const Tensor> inputs) { return c.behind(stem.bn(inputs[0])); }, {{2, 4, 8, 8}});
    const PassReport report = fuse(*graph);
    EXPECT_EQ(report.done, Texts{});
    EXPECT_EQ(report.missed, c.missed);
  }
}

TEST(FusePairs, LeavesWhatIsNotReluInTraining) {
  const auto report_of = [](const ops::BatchNormActOptions& options, bool adds, bool evaluates) {
    const Stem stem;
    if (evaluates) stem.eval();
    const auto graph = traced(stem,
                              [&](std::span<const Tensor> inputs) {
                                const ops::NormParameters norm{.running_mean = stem.bn.running_mean.tensor(),
                                                               .running_var = stem.bn.running_var.tensor()};
                                const Tensor y = ops::batch_norm_act(inputs[0], norm, options, {},
                                                                     adds ? inputs[1] : Tensor());
                                return std::vector{ops::max_pool2d(y, {.kernel = {2, 2}})};
                              },
                              {{2, 4, 8, 8}, {2, 4, 8, 8}});
    const PassReport report = run(fuse_pairs, *graph);
    EXPECT_EQ(report.done, Texts{});
    return report.missed;
  };
  const std::string pair = "batch_norm_act + max_pool2d: ";
  EXPECT_EQ(report_of({}, /*adds=*/true, false), Texts{pair + "it has an addend"});
  EXPECT_EQ(report_of({.activation = ops::Activation::kNone}, false, false),
            Texts{pair + "its activation is none, not relu"});
  EXPECT_EQ(report_of({.training = false}, false, true), Texts{pair + "its statistics are constants"});
}

// ---- rules of others

FusedNorm fuse_thirds(const FoundCall& first, const FoundCall& second);

const Op& thirds() {
  static const Op* const op = [] {
    const auto infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; };
    OpRegistry& registry = OpRegistry::instance();
    for (const char* name : {"test_third", "test_nine", "test_thirds"}) {
      registry.add({.name = name, .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer});
    }
    add_pair_rule({.first = "test_third", .second = "test_nine", .fuse = fuse_thirds});
    return &registry.get("test_third");
  }();
  return *op;
}

FusedNorm fuse_thirds(const FoundCall& first, const FoundCall& second) {
  EXPECT_FALSE(second.inputs[0].defined());
  if (first.inputs[0].rank() == 2) return {.reason = "it is a matrix"};
  return {.y = call(OpRegistry::instance().get("test_thirds"), first.inputs, {}).front()};
}

TEST(FusePairs, AsksTheRuleThatAnOpBringsAlong) {
  const Op& third = thirds();
  const Op& nine = OpRegistry::instance().get("test_nine");
  const auto only = [](const Op& op, const Tensor& x) { return call(op, {x}, {}).front(); };
  const nn::JobFunction function = [&](std::span<const Tensor> inputs) {
    const Tensor once = only(nine, only(third, inputs[0]));
    return std::vector<Tensor>{only(nine, only(third, once)), only(nine, only(third, inputs[1]))};
  };
  const auto graph = traced(Stem(), function, {{3}, {3, 5}});
  const PassReport report = run(fuse_pairs, *graph);
  EXPECT_EQ(outline(*graph), R"(%0 = test_thirds(%x)
%1 = test_thirds(%0)
%2 = test_third(%y)
%3 = test_nine(%2)
)");
  EXPECT_EQ(report.done, (Texts{"test_third + test_nine", "test_third + test_nine"}));
  EXPECT_EQ(report.missed, Texts{"test_third + test_nine: it is a matrix"});
}

TEST(FusePairs, RulesAreOneForTwoOps) {
  thirds();
  EXPECT_TRUE(has_pair_rule("test_third"));
  EXPECT_FALSE(has_pair_rule("test_thir"));
  EXPECT_FALSE(has_pair_rule("test_nine"));
  EXPECT_EQ(find_pair_rule("test_nine", "test_third"), nullptr);
  EXPECT_THROW(add_pair_rule({.first = "test_third", .second = "test_nine", .fuse = fuse_thirds}),
               InvalidArgument);
  EXPECT_THROW(add_pair_rule({.first = "test_third", .second = "test_third", .fuse = nullptr}),
               InvalidArgument);
}

TEST(FusePairs, AreMadeOnAGpuToo) {
  Graph graph;
  Tracer tracer(graph);
  tracer.set_scope("bn");
  const auto input = [&](const Shape& shape, DType dtype, const char* name) {
    return tracer.tensor({&graph.add_input({shape, dtype, Device::cuda()}, name), true});
  };
  const Tensor x = input({2, 16, 16, 8}, DType::kFloat16, "x");
  const ops::NormParameters norm{.weight = input({8}, DType::kFloat32, "w"),
                                 .bias = input({8}, DType::kFloat32, "b")};
  const Tensor y = ops::batch_norm_act(x, norm, {.layout = Layout::kNHWC});
  graph.add_output(tracer.use_of(ops::max_pool2d(y, {.kernel = {2, 2}, .layout = Layout::kNHWC})));
  EXPECT_TRUE(run(fuse_pairs, graph).missed.empty());
  EXPECT_NE(graph.to_string().find("batch_norm_relu_max_pool"), std::string::npos);
}

}  // namespace
}  // namespace sinter::passes
