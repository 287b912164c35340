// The pass that turns images to the other layout: what it turns, what it leaves, and that values stay.
#include <cmath>

#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/upsample/upsample.h>

#include "passes/function_graph.h"

namespace sinter::passes {
namespace {

using namespace testing;
using namespace ops;

Tensor parameter(const Shape& shape) {
  Tensor tensor = random(shape);
  tensor.set_requires_grad(true);
  return tensor;
}

PassReport turn(Graph& graph, Layout layout = Layout::kNHWC) {
  PassContext context{.layout = layout};
  turn_layout(graph, context);
  graph.verify();
  return context.report;
}

/// The graph of `function` on one input, turned; it computes what it did before.
std::unique_ptr<Graph> expect_same(const Shape& x, const std::vector<std::pair<std::string, Tensor>>& leaves,
                                   const Function& function, Layout layout = Layout::kNHWC) {
  const TensorSpec spec{x, DType::kFloat32, Device::cpu()};
  auto graph = graph_of({spec}, leaves, function);
  const Tensor input = random(x);
  const std::vector<Tensor> expected = run(*graph, {input});
  turn(*graph, layout);
  const std::vector<Tensor> actual = run(*graph, {input});
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].spec(), expected[i].spec());
    const double size = largest_difference(expected[i], Tensor::zeros(expected[i].shape()));
    EXPECT_LE(largest_difference(actual[i], expected[i]), 1e-6 * (1.0 + size)) << graph->to_string();
  }
  return graph;
}

/// Permutations that move something, but for those of leaves.
size_t permutations(const Graph& graph) {
  size_t found = 0;
  for (const GraphNode* node : graph.nodes()) {
    found += node->traits().role == Role::kPermutation && !node->input(0)->root().is_memory() ? 1u : 0u;
  }
  return found;
}

TEST(ChannelsLast, TurnsWhatIsBetweenEntryAndExit) {
  const Tensor w = parameter({4, 3, 3, 3}), v = parameter({4, 4, 1, 1}), bias = parameter({4, 1, 1});
  const auto graph = expect_same({2, 3, 6, 5}, {{"w", w}, {"v", v}, {"bias", bias}}, [&](const auto& x) {
    const Tensor y = relu(add(conv2d(x[0], w, {}, {.padding = {1, 1}}), bias));
    return std::vector{flatten(add(conv2d(y, v), y), 1)};
  });
  EXPECT_EQ(graph->to_string(),
            R"(input %x0: f32(2,3,6,5)
leaf w: f32(4,3,3,3)
leaf v: f32(4,4,1,1)
leaf bias: f32(4,1,1)
%0: f32(2,6,5,3) = permute(%x0) {axes=[0, 2, 3, 1]}
%1: f32(4,3,3,3) = permute(w) {axes=[0, 2, 3, 1]}
%2: f32(2,6,5,4) = conv2d(%0, %1) {stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1, layout=NHWC}
%3: f32(1,1,1,4) = reshape(bias) {extents=[1, 1, 1, 4]}
%4: f32(2,6,5,4) = add(%2, %3)
%5: f32(2,6,5,4) = relu(%4)
%6: f32(4,1,1,4) = reshape(v) {extents=[4, 1, 1, 4]}
%7: f32(2,6,5,4) = conv2d(%5, %6) {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1, layout=NHWC}
%8: f32(2,6,5,4) = add(%7, %5)
%9: f32(2,4,6,5) = permute(%8) {axes=[0, 3, 1, 2]}
%10: f32(2,120) = reshape(%9) {extents=[2, 120]}
return %10
)");
  for (const GraphNode* node : graph->nodes()) {
    if (node->op->name() != "conv2d") continue;
    EXPECT_TRUE(node->inputs[1].differentiable);
    EXPECT_TRUE(node->input(1)->producer->inputs[0].differentiable);
  }
}

TEST(ChannelsLast, TurnsToChannelsFirstToo) {
  const Tensor w = parameter({4, 3, 3, 3});
  const auto graph = expect_same(
      {2, 6, 5, 3}, {{"w", w}},
      [&](const auto& x) {
        return std::vector{global_avg_pool2d(relu(conv2d(x[0], w, {}, {.layout = Layout::kNHWC})),
                                             {.layout = Layout::kNHWC})};
      },
      Layout::kNCHW);
  EXPECT_EQ(count(*graph, Role::kPermutation), 2u) << graph->to_string();  // x and w
}

TEST(ChannelsLast, LeavesWhatIsTurnedAlready) {
  const Tensor w = parameter({4, 3, 3, 3});
  const auto graph = expect_same({2, 6, 5, 3}, {{"w", w}}, [&](const auto& x) {
    return std::vector{relu(conv2d(x[0], w, {}, {.layout = Layout::kNHWC}))};
  });
  EXPECT_EQ(graph->node_count(), 2u) << graph->to_string();
}

TEST(ChannelsLast, CarriesOnThroughOpsThatNameAxes) {
  const Tensor w = parameter({4, 3, 1, 1}), slopes = parameter({4});
  const auto graph = expect_same({2, 3, 4, 6}, {{"w", w}, {"slopes", slopes}}, [&](const auto& x) {
    const Tensor y = prelu(conv2d(x[0], w), slopes);
    const Tensor wide = pad(y, {{0, 0}, {0, 0}, {1, 0}, {2, 1}}, {.mode = PadMode::kReflect});
    const Tensor both = concat({wide, softmax(wide, 1), slice(wide, 3, 0, 9)}, 1);
    const Tensor gate = sigmoid(mean(both, {2, 3}, {.keep_dims = true}));
    const Tensor up = upsample(mul(both, gate), {.size = Size2d(10, 9), .mode = UpsampleMode::kBilinear});
    return std::vector{mean(max_pool2d(up, {2, 2}), {2, 3}), sum(up)};
  });
  EXPECT_EQ(permutations(*graph), 1u) << graph->to_string();  // of x
}

TEST(ChannelsLast, TurnsBroadcastOperandsOfEveryRank) {
  const Tensor w = parameter({4, 3, 1, 1});
  std::vector<std::pair<std::string, Tensor>> leaves{{"w", w}};
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{6}, Shape{5, 6}, Shape{5, 1}, Shape{4, 1, 1}, Shape{4, 5, 6},
        Shape{1, 4, 1, 1}, Shape{2, 4, 1, 1}, Shape{2, 1, 5, 6}, Shape{1, 4, 5, 1}}) {
    leaves.emplace_back(fmt::format("operand{}", leaves.size()), parameter(shape));
  }
  const auto graph = expect_same({2, 3, 5, 6}, leaves, [&](const auto& x) {
    Tensor y = conv2d(x[0], w);
    for (size_t i = 1; i < leaves.size(); ++i) {
      y = i % 2 == 0 ? add(leaves[i].second, y) : maximum(y, leaves[i].second);
    }
    return std::vector{sum(y, {1, 2, 3})};
  });
  EXPECT_EQ(permutations(*graph), 1u) << graph->to_string();
}

TEST(ChannelsLast, CancelsPermutationsOfTheModel) {
  const Tensor w = parameter({4, 3, 3, 3}), v = parameter({4, 4, 3, 3});
  const auto graph = expect_same({2, 3, 6, 7}, {{"w", w}, {"v", v}}, [&](const auto& x) {
    // A norm over the channels of every pixel, as models write it.
    const Tensor last = permute(conv2d(x[0], w), {0, 2, 3, 1});
    const Tensor centered = sub(last, mean(last, {3}, {.keep_dims = true}));
    const Tensor first = relu(
        permute(mul(centered, rsqrt(affine(mean(square(centered), {3}, {.keep_dims = true}), 1.0, 1e-3))),
                {0, 3, 1, 2}));
    return std::vector{global_avg_pool2d(conv2d(first, v)), permute(first, {0, 2, 3, 1})};
  });
  EXPECT_EQ(permutations(*graph), 1u) << graph->to_string();
}

TEST(ChannelsLast, ComposesPermutationsOfTheModel) {
  const Tensor w = parameter({4, 3, 3, 3});
  const auto graph = expect_same({2, 3, 6, 7}, {{"w", w}}, [&](const auto& x) {
    const Tensor y = conv2d(permute(x[0], {0, 1, 3, 2}), w);
    return std::vector{permute(y, {1, 0, 2, 3}), y};
  });
  EXPECT_EQ(permutations(*graph), 3u) << graph->to_string();  // x, and the outputs
}

TEST(ChannelsLast, KeepsOrderWhereTheAxesLeftWouldChangeIt) {
  const Tensor w = parameter({4, 3, 1, 1});
  const auto graph = expect_same({2, 3, 5, 6}, {{"w", w}}, [&](const auto& x) {
    const Tensor y = conv2d(x[0], w);
    return std::vector{sum(y, {2}), mean(y, {1}), max(y, {1, 2})};
  });
  EXPECT_EQ(permutations(*graph), 2u) << graph->to_string();  // of x, and back once
}

TEST(ChannelsLast, LeavesDetachedUsesDetached) {
  const Tensor w = parameter({4, 3, 3, 3});
  const auto graph =
      graph_of({{{2, 3, 6, 6}, DType::kFloat32, Device::cpu()}}, {{"w", w}}, [&](const auto& x) {
        const Tensor first = conv2d(x[0], w);
        return std::vector{sum(add(first, conv2d(x[0], w.detach())))};
      });
  turn(*graph);
  std::vector<bool> flags;
  for (const GraphNode* node : graph->nodes()) {
    if (node->op->name() != "conv2d") continue;
    flags.push_back(node->inputs[1].differentiable);
    EXPECT_EQ(node->input(1)->producer->inputs[0].differentiable, flags.back());
  }
  EXPECT_EQ(flags, (std::vector{true, false}));
}

TEST(ChannelsLast, SaysWhereItPermutesAndWhy) {
  const Tensor w = parameter({4, 3, 3, 3});
  const auto graph = graph_of({{{2, 3, 6, 5}, DType::kFloat32, Device::cpu()}}, {{"w", w}},
                              [&](const auto& x) { return std::vector{flatten(relu(conv2d(x[0], w)), 1)}; });
  const PassReport report = turn(*graph);
  EXPECT_EQ(report.done, std::vector<std::string>{
                             "1 calls in NHWC, 1 more carry it on; 1 filters are permuted at every step"});
  EXPECT_EQ(report.missed,
            (std::vector<std::string>{
                "input 'x0' of the job of float32 (2, 3, 6, 5) on cpu is permuted: conv2d takes it turned",
                "the output of relu of float32 (2, 4, 3, 4) on cpu is permuted: reshape works on the axes as "
                "they are"}));
}

// ---- ops that are not in the tree

struct ShiftAttributes {
  Layout layout = Layout::kNCHW;
  bool operator==(const ShiftAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("layout", &ShiftAttributes::layout)); }
};

/// y[n, c, h, w] = x[n, c, h, w] + c.
void run_shift(const KernelContext& context) {
  const Shape& shape = context.input(0).shape;
  const bool is_first = context.attributes<ShiftAttributes>().layout == Layout::kNCHW;
  const int64_t inner = is_first ? shape.count(2, 4) : 1, channels = shape[is_first ? 1 : 3];
  for (int64_t i = 0; i < shape.numel(); ++i) {
    context.output(0).as<float>()[i] =
        context.input(0).as<const float>()[i] + static_cast<float>(i / inner % channels);
  }
}

void run_identity(const KernelContext& context) {
  for (int64_t i = 0; i < context.output(0).numel(); ++i)
    context.output(0).as<float>()[i] = context.input(0).as<const float>()[i];
}

std::vector<TensorSpec> infer_same(const InferContext& context) {
  return {context.input(0)};
}

const Op& foreign_op(const char* name, LayoutRule rule, void (*run)(const KernelContext&)) {
  OpRegistry& registry = OpRegistry::instance();
  registry.add(
      {.name = name, .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_same, .traits = {.layout = rule}});
  registry.add_kernel(name, {.device = DeviceType::kCpu, .run = run});
  return registry.get(name);
}

TEST(ChannelsLast, AsksForeignOpsWhatTheyCanDo) {
  const Op& shift = foreign_op("test_layout_shift",
                               {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}, run_shift);
  const Op& any = foreign_op("test_layout_any", {.kind = LayoutRule::Kind::kAnyOrder}, run_identity);
  const Op& fixed = foreign_op("test_layout_fixed", {}, run_identity);
  const auto graph = expect_same({2, 3, 4, 5}, {}, [&](const auto& x) {
    Tensor y = call(any, {call(shift, {x[0]}, ShiftAttributes())[0]})[0];
    y = call(shift, {call(fixed, {y})[0]}, ShiftAttributes())[0];
    return std::vector{sum(call(any, {y})[0], {2, 3})};
  });
  EXPECT_EQ(permutations(*graph), 3u) << graph->to_string();  // in, out, in
}

}  // namespace
}  // namespace sinter::passes
