// Which calls become one, and which stay, by the graph's text.
#include <sinter/autograd/differentiate.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/prelu/prelu.h>

#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;
using nn::BatchNorm2d;
using nn::BatchNormOptions;
using nn::Conv2d;
using nn::Module;

using Texts = std::vector<std::string>;

Conv2d conv(int64_t in, int64_t out, int64_t kernel = 3, int64_t stride = 1) {
  return Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false});
}

struct BasicBlock : Module {
  Conv2d conv1 = child("conv1", conv(4, 4));
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(4));
  Conv2d conv2 = child("conv2", conv(4, 4));
  BatchNorm2d bn2 = child("bn2", BatchNorm2d(4));
  Tensor forward(const Tensor& x) const override {
    return ops::relu(bn2(conv2(ops::relu(bn1(conv1(x))))) + x);
  }
};

TEST(FuseNormalization, BasicBlock) {
  const auto graph = traced(BasicBlock(), {2, 4, 6, 6});
  EXPECT_EQ(outline(*graph),
            R"(%0 = conv2d(%x, conv1.weight)  # conv1
%1, %2, %3 = batch_norm(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var)  # bn1
%4 = relu(%1)
%5 = conv2d(%4, conv2.weight)  # conv2
%6, %7, %8 = batch_norm(%5, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var)  # bn2
%9 = add(%6, %x)
%10 = relu(%9)
)");
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(outline(*graph),
            R"(%0 = conv2d(%x, conv1.weight)  # conv1
%1, %2, %3, %4 = batch_norm_act(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var) activation=relu  # bn1
%5 = conv2d(%1, conv2.weight)  # conv2
%6, %7, %8, %9 = batch_norm_act(%5, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var, none, none, %x) activation=relu  # bn2
)");
  EXPECT_EQ(report.done, (Texts{"batch_norm + relu in bn1", "batch_norm + add + relu in bn2"}));
  EXPECT_EQ(report.missed, Texts{});
}

struct Bottleneck : Module {
  Conv2d conv1 = child("conv1", conv(4, 2, 1));
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(2));
  Conv2d conv2 = child("conv2", conv(2, 2, 3, 2));
  BatchNorm2d bn2 = child("bn2", BatchNorm2d(2));
  Conv2d conv3 = child("conv3", conv(2, 8, 1));
  BatchNorm2d bn3;
  nn::Sequential downsample = child("downsample", nn::Sequential(conv(4, 8, 1, 2), BatchNorm2d(8)));
  explicit Bottleneck(const BatchNormOptions& last = {}) : bn3(child("bn3", BatchNorm2d(8, last))) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor y = bn3(conv3(ops::relu(bn2(conv2(ops::relu(bn1(conv1(x))))))));
    const Tensor shortcut = downsample(x);
    return ops::relu(y + shortcut);
  }
};

TEST(FuseNormalization, BottleneckWithANormalizedShortcut) {
  const auto graph = traced(Bottleneck(), {2, 4, 6, 6});
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(outline(*graph),
            R"(%0 = conv2d(%x, conv1.weight)  # conv1
%1, %2, %3, %4 = batch_norm_act(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var) activation=relu  # bn1
%5 = conv2d(%1, conv2.weight)  # conv2
%6, %7, %8, %9 = batch_norm_act(%5, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var) activation=relu  # bn2
%10 = conv2d(%6, conv3.weight)  # conv3
%11 = conv2d(%x, downsample.0.weight)  # downsample.0
%12, %13, %14, %15, %16, %17 = batch_norm_act(%10, bn3.weight, bn3.bias, bn3.running_mean, bn3.running_var, none, none, %11, downsample.1.weight, downsample.1.bias, downsample.1.running_mean, downsample.1.running_var) activation=relu normalize_addend=true  # bn3
)");
  EXPECT_EQ(report.done, (Texts{"batch_norm + relu in bn1", "batch_norm + relu in bn2",
                                "batch_norm + add(batch_norm in downsample.1) + relu in bn3"}));
  EXPECT_EQ(report.missed, Texts{});
}

TEST(FuseNormalization, LeavesAShortcutWithOtherOptionsOnItsOwn) {
  const auto graph = traced(Bottleneck({.epsilon = 1e-3}), {2, 4, 6, 6});
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(report.done.back(), "batch_norm + add + relu in bn3");
  ASSERT_EQ(report.missed.size(), 1U);
  EXPECT_EQ(
      report.missed[0],
      "batch_norm + add(batch_norm in downsample.1) + relu in bn3: epsilon is 0.001 here and 1e-05 there");
  const auto other = traced(Bottleneck({.momentum = 0.3}), {2, 4, 6, 6});
  EXPECT_EQ(run(fuse_normalization, *other).missed,
            (Texts{"batch_norm + add(batch_norm in downsample.1) + relu in bn3: momentum is 0.3 here and 0.1 "
                   "there"}));
}

TEST(FuseNormalization, LeavesAShortcutInAnotherModeOnItsOwn) {
  const Bottleneck block;
  block.downsample.eval();
  const auto graph = traced(block, {2, 4, 6, 6});
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(report.done.back(), "batch_norm + add + relu in bn3");
  EXPECT_EQ(report.missed,
            (Texts{"batch_norm + add(batch_norm in downsample.1) + relu in bn3: one normalises "
                   "by its running statistics, the other does not"}));
}

struct PreActivationBlock : Module {
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(4));
  Conv2d conv1 = child("conv1", conv(4, 4));
  BatchNorm2d bn2 = child("bn2", BatchNorm2d(4));
  Conv2d conv2 = child("conv2", conv(4, 4));
  Tensor forward(const Tensor& x) const override {
    return conv2(ops::relu(bn2(conv1(ops::relu(bn1(x)))))) + x;
  }
};

TEST(FuseNormalization, PreActivationBlock) {
  const auto graph = traced(PreActivationBlock(), {2, 4, 6, 6});
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(
      outline(*graph),
      R"(%0, %1, %2, %3 = batch_norm_act(%x, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var) activation=relu  # bn1
%4 = conv2d(%0, conv1.weight)  # conv1
%5, %6, %7, %8 = batch_norm_act(%4, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var) activation=relu  # bn2
%9 = conv2d(%5, conv2.weight)  # conv2
%10 = add(%9, %x)
)");
  EXPECT_EQ(report.missed, Texts{});
}

/// As in iResNets: J. Deng et al., "ArcFace", CVPR 2019, with a normalised shortcut or without one.
struct IResNetBlock : Module {
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(4));
  Conv2d conv1 = child("conv1", conv(4, 4));
  BatchNorm2d bn2 = child("bn2", BatchNorm2d(4));
  nn::PReLU prelu = child("prelu", nn::PReLU(4));
  Conv2d conv2 = child("conv2", conv(4, 4));
  BatchNorm2d bn3 = child("bn3", BatchNorm2d(4));
  nn::Sequential downsample = child("downsample", nn::Sequential(conv(4, 4, 1), BatchNorm2d(4)));
  bool projects;
  explicit IResNetBlock(bool with_projection) : projects(with_projection) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor y = bn3(conv2(prelu(bn2(conv1(bn1(x))))));
    const Tensor shortcut = projects ? downsample(x) : x;
    return y + shortcut;
  }
};

TEST(FuseNormalization, IResNetBlock) {
  const auto plain = traced(IResNetBlock(false), {2, 4, 6, 6});
  const PassReport report = run(fuse_normalization, *plain);
  EXPECT_EQ(outline(*plain),
            R"(%0, %1, %2 = batch_norm(%x, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var)  # bn1
%3 = conv2d(%0, conv1.weight)  # conv1
%4, %5, %6, %7 = batch_norm_act(%3, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var, none, prelu.weight) activation=prelu  # bn2
%8 = conv2d(%4, conv2.weight)  # conv2
%9, %10, %11 = batch_norm_act(%8, bn3.weight, bn3.bias, bn3.running_mean, bn3.running_var, none, none, %x)  # bn3
)");
  EXPECT_EQ(report.done, (Texts{"batch_norm + prelu in bn2", "batch_norm + add in bn3"}));
  EXPECT_EQ(report.missed, Texts{});

  const auto projecting = traced(IResNetBlock(true), {2, 4, 6, 6});
  EXPECT_EQ(run(fuse_normalization, *projecting).done.back(),
            "batch_norm + add(batch_norm in downsample.1) in bn3");
  EXPECT_EQ(projecting->node_count(), 6U);
}

/// A normalisation and a function of it and of a second input.
struct Tail : Module {
  using Function = std::function<std::vector<Tensor>(const Tensor& norm, const Tensor& other)>;
  BatchNorm2d bn;
  explicit Tail(Layout layout = Layout::kNCHW) : bn(child("bn", BatchNorm2d(4, {.layout = layout}))) {}
  Tensor forward(const Tensor& x) const override { return bn(x); }
  std::unique_ptr<Graph> trace(const Function& behind, const Shape& x = {2, 4, 4, 4},
                               const Shape& y = {2, 4, 4, 4}) const {
    return traced(*this, [&](std::span<const Tensor> inputs) { return behind(bn(inputs[0]), inputs[1]); },
                  {x, y});
  }
};

struct Case {
  std::string name;
  Tail::Function behind;
  Texts done, missed;
  Shape other = {2, 4, 4, 4};
};

TEST(FuseNormalization, SaysWhatStaysAndWhy) {
  const Case cases[] = {
      {"two users",
       [](auto& y, auto& z) { return std::vector{ops::relu(y) + y * z}; },
       {},
       {"batch_norm in bn: its output has 2 users"}},
      {"twice in one sum",
       [](auto& y, auto&) { return std::vector{y + y}; },
       {},
       {"batch_norm in bn: its output has 2 users"}},
      {"a result",
       [](auto& y, auto&) {
         return std::vector{ops::relu(y), y};
       },
       {},
       {"batch_norm in bn: its output is a result of the job"}},
      {"users that nothing fuses",
       [](auto& y, auto& z) {
         return std::vector{y * z, ops::sigmoid(y)};
       },
       {},
       {}},
      {"broadcasts the addend",
       [](auto& y, auto& z) { return std::vector{ops::relu(y + z)}; },
       {},
       {"batch_norm in bn: add broadcasts (4, 1, 1) to (2, 4, 4, 4)"},
       {4, 1, 1}},
      {"broadcasts the norm",
       [](auto& y, auto& z) { return std::vector{z + y}; },
       {},
       {"add: add broadcasts (2, 4, 4, 4) to (3, 2, 4, 4, 4)"},
       {3, 2, 4, 4, 4}},
      {"sum with two users",
       [](auto& y, auto& z) {
         const Tensor sum = z + y;
         return std::vector{ops::relu(sum) * sum};
       },
       {"batch_norm + add in bn"},
       {"relu behind add: its output has 2 users"}},
      {"another activation",
       [](auto& y, auto& z) { return std::vector{ops::silu(y + z)}; },
       {"batch_norm + add in bn"},
       {}},
      {"one slope",
       [](auto& y, auto&) {
         return std::vector{ops::prelu(y, Tensor::full({1}, 0.25).set_requires_grad(true))};
       },
       {"batch_norm + prelu in bn"},
       {}},
      {"slopes of another axis",
       [](auto& y, auto&) {
         return std::vector{
             ops::prelu(y, Tensor::full({4}, 0.25).set_requires_grad(true), {.layout = Layout::kNHWC})};
       },
       {},
       {"batch_norm + prelu in bn: its channels are another axis"}},
      {"slopes of another axis behind a sum",
       [](auto& y, auto& z) {
         return std::vector{
             ops::prelu(y + z, Tensor::full({4}, 0.25).set_requires_grad(true), {.layout = Layout::kNHWC})};
       },
       {"batch_norm + add in bn"},
       {"batch_norm + add + prelu in bn: its channels are another axis"}},
      {"an addend with an activation of its own",
       [](auto& y, auto& z) { return std::vector{ops::relu(y) + ops::relu(z)}; },
       {"batch_norm + relu in bn"},
       {}},
  };
  for (const Case& each : cases) {
    const Tail model;
    const auto graph = model.trace(each.behind, {2, 4, 4, 4}, each.other);
    const std::string before = outline(*graph);
    const PassReport report = run(fuse_normalization, *graph);
    EXPECT_EQ(report.done, each.done) << each.name;
    EXPECT_EQ(report.missed, each.missed) << each.name;
    EXPECT_EQ(outline(*graph) == before, each.done.empty()) << each.name;
  }
}

TEST(FuseNormalization, LeavesStatisticsThatAreRead) {
  const Tensor x = Tensor::full({2, 4}, 1.0).set_requires_grad(true);
  Graph graph;
  {
    Tracer tracer(graph);
    const std::vector<Tensor> all =
        call(OpRegistry::instance().get("batch_norm"), {x, {}, {}, {}, {}}, ops::BatchNormOptions());
    graph.add_output(tracer.use_of(ops::relu(all[0])));
    graph.add_output(tracer.use_of(all[1]));
  }
  EXPECT_EQ(run(fuse_normalization, graph).missed, Texts{"batch_norm: its output 'mean' is read"});
}

TEST(FuseNormalization, FusesWithoutParametersAndRunningStatistics) {
  const Tensor x = Tensor::full({2, 4}, 1.0).set_requires_grad(true);
  Graph graph;
  {
    Tracer tracer(graph);
    graph.add_output(tracer.use_of(ops::relu(ops::batch_norm(x, {}, {}, {}, {}))));
  }
  EXPECT_EQ(run(fuse_normalization, graph).done, Texts{"batch_norm + relu"});
  EXPECT_EQ(outline(graph), "%0, %1, %2, %3 = batch_norm_act(tensor#0) activation=relu\n");
}

TEST(FuseNormalization, FusesIn16BitBesideFloat32Parameters) {
  const IResNetBlock block(true);
  block.to(DType::kFloat16);
  const auto graph = traced(block, {2, 4, 6, 6}, DType::kFloat16);
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(report.done,
            (Texts{"batch_norm + prelu in bn2", "batch_norm + add(batch_norm in downsample.1) in bn3"}));
  EXPECT_EQ(report.missed, Texts{});
}

TEST(FuseNormalization, FusesInEvaluationAndKeepsNothingForGradientsThere) {
  const BasicBlock block;
  block.eval();
  const auto graph = traced(block, {2, 4, 6, 6});
  EXPECT_EQ(run(fuse_normalization, *graph, /*training=*/false).done.size(), 2U);
  EXPECT_EQ(outline(*graph, {"training", "activation", "save_mask"}),
            R"(%0 = conv2d(%x, conv1.weight)  # conv1
%1, %2, %3 = batch_norm_act(%0, bn1.weight, bn1.bias, bn1.running_mean, bn1.running_var) activation=relu  # bn1
%4 = conv2d(%1, conv2.weight)  # conv2
%5, %6, %7 = batch_norm_act(%4, bn2.weight, bn2.bias, bn2.running_mean, bn2.running_var, none, none, %x) activation=relu  # bn2
)");
}

// ---- gradients flow where they did

struct TwoParts : Module {
  BasicBlock first = child("first", BasicBlock());
  BasicBlock second = child("second", BasicBlock());
  std::function<Tensor(const TwoParts&, const Tensor&)> way;
  Tensor forward(const Tensor& x) const override { return way(*this, x); }
};

std::vector<std::string> leaves_with_gradients(Graph& graph) {
  Tracer tracer(graph);
  const Tensor y = tracer.tensor(graph.outputs()[0]);
  std::vector<std::string> names;
  for (const LeafGradient& each : differentiate(tracer, y, Tensor::full(y.shape(), 1.0))) {
    names.push_back(each.leaf->name);
  }
  std::ranges::sort(names);
  return names;
}

TEST(FuseNormalization, KeepsWhereGradientsFlow) {
  const std::function<Tensor(const TwoParts&, const Tensor&)> ways[] = {
      [](const TwoParts& m, const Tensor& x) { return m.second(m.first(x)); },
      [](const TwoParts& m, const Tensor& x) { return m.second(m.first(x).detach()); },
      [](const TwoParts& m, const Tensor& x) {
        Tensor y;
        {
          const NoGrad no_grad;
          y = m.first(x);
        }
        return m.second(y);
      },
      [](const TwoParts& m, const Tensor& x) {
        return ops::relu(m.first.bn1(m.first.conv1(x)).detach() + m.second.bn1(m.second.conv1(x)));
      },
      [](const TwoParts& m, const Tensor& x) {
        return ops::relu(m.first.bn1(m.first.conv1(x)) + m.second.bn1(m.second.conv1(x)).detach());
      },
  };
  for (size_t i = 0; i < std::size(ways); ++i) {
    TwoParts model;
    model.way = ways[i];
    if (i == 0) model.first.bn2.weight.tensor().set_requires_grad(false);
    const auto plain = traced(model, {2, 4, 6, 6}), fused = traced(model, {2, 4, 6, 6});
    EXPECT_GE(run(fuse_normalization, *fused).done.size(), 1U) << i;
    EXPECT_EQ(leaves_with_gradients(*fused), leaves_with_gradients(*plain)) << i;
  }
}

TEST(FuseNormalization, SavesNoMaskWhereNoGradientComes) {
  TwoParts model;
  model.way = [](const TwoParts& m, const Tensor& x) { return m.second(m.first(x).detach()); };
  const auto graph = traced(model, {2, 4, 6, 6});
  run(fuse_normalization, *graph);
  std::vector<bool> masks;
  for (const GraphNode* node : graph->nodes()) {
    if (const bool* const saves = node->attributes.find<bool>("save_mask")) masks.push_back(*saves);
  }
  // What detach() follows still has a gradient on its way in, but none comes back.
  EXPECT_EQ(masks, (std::vector<bool>{true, false, true, true}));
}

// ---- order

struct Shared : Module {
  BatchNorm2d bn = child("bn", BatchNorm2d(4));
  Conv2d conv1 = child("conv1", conv(4, 4));
  int way;
  explicit Shared(int which) : way(which) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor u = bn(x);
    const Tensor v = bn(conv1(x));
    const auto act = [](const Tensor& norm) { return ops::relu(norm); };
    if (way == 0) {
      const Tensor first = act(u), second = act(v);
      return first * second;
    }
    if (way == 1) return act(u + v);
    if (way == 2) return u + conv1(act(v));
    return conv1(act(u)) + v;
  }
};

TEST(FuseNormalization, KeepsTheOrderOfChangesToRunningStatistics) {
  const auto expect = [](int way, const Texts& done, const Texts& missed) {
    const auto graph = traced(Shared(way), {2, 4, 6, 6});
    const PassReport report = run(fuse_normalization, *graph);
    EXPECT_EQ(report.done, done) << way;
    EXPECT_EQ(report.missed, missed) << way;
    return outline(*graph);
  };
  EXPECT_EQ(
      expect(0, {"batch_norm + relu in bn", "batch_norm + relu in bn"}, {}),
      R"(%0, %1, %2, %3 = batch_norm_act(%x, bn.weight, bn.bias, bn.running_mean, bn.running_var) activation=relu  # bn
%4 = conv2d(%x, conv1.weight)  # conv1
%5, %6, %7, %8 = batch_norm_act(%4, bn.weight, bn.bias, bn.running_mean@1, bn.running_var@1) activation=relu  # bn
%9 = mul(%0, %5)
)");
  // The second call can take the first one's result, but not the other way round.
  EXPECT_EQ(expect(1, {"batch_norm + add + relu in bn"},
                   {"batch_norm + add(batch_norm in bn) + relu in bn: both normalisations change the same "
                    "memory",
                    "batch_norm + add + relu in bn: batch_norm in bn and batch_norm in bn change or read the "
                    "same memory, in this order"}),
            R"(%0, %1, %2 = batch_norm(%x, bn.weight, bn.bias, bn.running_mean, bn.running_var)  # bn
%3 = conv2d(%x, conv1.weight)  # conv1
%4, %5, %6, %7 = batch_norm_act(%3, bn.weight, bn.bias, bn.running_mean@1, bn.running_var@1, none, none, %0) activation=relu  # bn
)");
  // Fused behind conv1, the first call would come after the second.
  expect(2, {"batch_norm + relu in bn"},
         {"batch_norm + add in bn: batch_norm in bn and batch_norm in bn change or read the same memory, in "
          "this order"});
  expect(3, {"batch_norm + relu in bn", "batch_norm + add in bn"}, {});
}

// ---- the definition decides

/// A normalisation of somebody else's that can take in a ReLU, by one of his ops.
FusedNorm fuse_halving(const NormChain& chain);

const Op& halving() {
  static const Op* const op = [] {
    const auto infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; };
    OpRegistry& registry = OpRegistry::instance();
    registry.add({.name = "test_halving",
                  .inputs = {{"x"}},
                  .outputs = {{"y"}},
                  .infer = infer,
                  .traits = {.role = Role::kNormalization, .fuse_norm = fuse_halving}});
    registry.add({.name = "test_halving_relu", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer});
    registry.add({.name = "test_ramp",
                  .inputs = {{"x"}},
                  .outputs = {{"y"}},
                  .infer = infer,
                  .traits = {.role = Role::kRelu}});
    return &registry.get("test_halving");
  }();
  return *op;
}

FusedNorm fuse_halving(const NormChain& chain) {
  if (chain.addend.defined() || chain.addend_norm) return {.reason = "it halves one tensor"};
  return {.y = call(OpRegistry::instance().get("test_halving_relu"), chain.norm.inputs, {}).front()};
}

TEST(FuseNormalization, AsksTheDefinitionsOfOpsAndNotTheirNames) {
  const Op& norm = halving();
  const auto only = [](const Op& op, const Tensor& x) { return call(op, {x}, {}).front(); };
  const nn::JobFunction function = [&](std::span<const Tensor> inputs) {
    const Tensor y = only(OpRegistry::instance().get("test_ramp"), only(norm, inputs[0]));
    return std::vector<Tensor>{only(norm, y) + y};
  };
  const auto graph = traced(BasicBlock(), function, {{3, 5}});
  const PassReport report = run(fuse_normalization, *graph);
  EXPECT_EQ(outline(*graph), R"(%0 = test_halving_relu(%x)
%1 = test_halving(%0)
%2 = add(%1, %0)
)");
  EXPECT_EQ(report.done, Texts{"test_halving + test_ramp"});
  EXPECT_EQ(report.missed, Texts{"test_halving + add: it halves one tensor"});
}

}  // namespace
}  // namespace sinter::passes
