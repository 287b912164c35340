// The pass that casts for 16 bits: what computes in which dtype, and which casts are made once.
#include <cmath>
#include <utility>

#include <sinter/core/op/call.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

#include "passes/function_graph.h"

namespace sinter::passes {
namespace {

using namespace testing;
using namespace ops;

Tensor parameter(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor tensor = cast(random(shape), dtype);
  tensor.set_requires_grad(true);
  return tensor;
}

PassReport make_mixed(Graph& graph, DType dtype = DType::kFloat16,
                      std::function<Tensor(const Tensor&, DType)> working_copy = {}) {
  PassContext context{.precision = dtype, .working_copy = std::move(working_copy)};
  passes::make_mixed(graph, context);
  graph.verify();
  return context.report;
}

TensorSpec floats(const Shape& shape) {
  return {shape, DType::kFloat32, Device::cpu()};
}

TEST(MixedPrecision, ReadsWorkingCopiesAndCastsOnce) {
  const Tensor w = parameter({4, 3, 1, 1}, DType::kFloat16), b = parameter({4}, DType::kFloat16);
  const auto graph =
      graph_of({floats({2, 3, 5, 5})}, {{"w", w}, {"b", b}}, [&](const std::vector<Tensor>& x) {
        const Tensor weight = cast(w, DType::kFloat32), bias = cast(b, DType::kFloat32);
        const Tensor first = relu(conv2d(x[0], weight, bias));
        return std::vector{mean(add(first, relu(conv2d(x[0], weight, bias))))};
      });
  make_mixed(*graph);
  EXPECT_EQ(graph->to_string(),
            R"(input %x0: f32(2,3,5,5)
leaf w: f16(4,3,1,1)
leaf b: f16(4)
%0: f16(2,3,5,5) = cast(%x0) {dtype=float16}
%1: f16(2,4,5,5) = conv2d(%0, w, b) {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1, layout=NCHW}
%2: f16(2,4,5,5) = relu(%1)
%3: f16(2,4,5,5) = conv2d(%0, w, b) {stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1, layout=NCHW}
%4: f16(2,4,5,5) = relu(%3)
%5: f16(2,4,5,5) = add(%2, %4)
%6: f32(2,4,5,5) = cast(%5) {dtype=float32}
%7: f32() = mean(%6) {axes=[], keep_dims=false}
return %7
)");
  // Gradients arrive at the working copies.
  for (const GraphNode* node : graph->nodes()) {
    EXPECT_TRUE(node->op->name() != "conv2d" || node->inputs[1].differentiable);
  }
}

TEST(MixedPrecision, TakesTheWorkingCopyThatTheContextGives) {
  const Tensor w = parameter({4, 6}), copy = cast(w.detach(), DType::kBFloat16);
  const auto graph = graph_of({floats({2, 6})}, {{"w", w}}, [&](const std::vector<Tensor>& x) {
    return std::vector{sum(linear(x[0], w, {}))};
  });
  make_mixed(*graph, DType::kBFloat16,
             [&](const Tensor& leaf, DType) { return leaf.is_same(w) ? copy : Tensor(); });
  const GraphNode& product = *graph->nodes()[1];
  ASSERT_EQ(product.op->name(), "linear");
  EXPECT_TRUE(product.input(1)->tensor.is_same(copy));
  EXPECT_EQ(product.input(1)->kind, GraphValue::Kind::kLeaf);
  EXPECT_TRUE(product.inputs[1].differentiable);
  EXPECT_EQ(count(*graph, Role::kCast), 2u);  // of x, and back for the sum
}

TEST(MixedPrecision, KeepsStatisticsInFloat32) {
  const Tensor w = parameter({8, 8}, DType::kFloat16), gain = parameter({8});
  const auto graph =
      graph_of({floats({4, 8})}, {{"w", w}, {"gain", gain}}, [&](const std::vector<Tensor>& x) {
        const Tensor y = linear(x[0], cast(w, DType::kFloat32), {});
        const Tensor centered = sub(y, mean(y, {1}, {.keep_dims = true}));
        const Tensor scale = rsqrt(affine(mean(square(centered), {1}, {.keep_dims = true}), 1.0, 1e-5));
        const Tensor normed = mul(mul(centered, scale), gain);
        return std::vector{add(linear(normed, cast(w, DType::kFloat32), {}), normed)};
      });
  make_mixed(*graph);
  for (const GraphNode* node : graph->nodes()) {
    const std::string& name = node->op->name();
    if (name == "cast") continue;
    const DType expected = name == "linear" ? DType::kFloat16 : DType::kFloat32;
    EXPECT_EQ(node->outputs[0]->spec.dtype, expected) << name;
  }
  // Of x, of both products' results, and of normed once. The gain is read as it is.
  EXPECT_EQ(count(*graph, Role::kCast), 4u) << graph->to_string();
  EXPECT_EQ(graph->outputs()[0].value->spec.dtype, DType::kFloat32);
}

TEST(MixedPrecision, CastsOfParametersGoThroughViews) {
  const Tensor w = parameter({3, 3, 2, 2}, DType::kFloat16), b = parameter({3}, DType::kFloat16);
  const auto graph =
      graph_of({floats({1, 3, 4, 4})}, {{"w", w}, {"b", b}}, [&](const std::vector<Tensor>& x) {
        const Tensor y = vjp::conv2d_input(x[0], cast(w, DType::kFloat32), {5, 5}, {});
        return std::vector{add(y, reshape(cast(b, DType::kFloat32), {3, 1, 1}))};
      });
  make_mixed(*graph);
  EXPECT_EQ(count(*graph, Role::kCast), 2u) << graph->to_string();  // of x, and of the output
  const PassReport report = make_mixed(*graph);                     // nothing is left to do
  EXPECT_EQ(count(*graph, Role::kCast), 2u) << graph->to_string();
  for (const std::string& line : report.missed) EXPECT_EQ(line.find("every step"), std::string::npos) << line;
}

TEST(MixedPrecision, LeavesOtherDtypesThatTheModelAsksFor) {
  const auto graph = graph_of({floats({4, 8}), floats({8, 8})}, {}, [&](const std::vector<Tensor>& x) {
    const Tensor wide = matmul(cast(x[0], DType::kFloat64), cast(x[1], DType::kFloat64));
    const Tensor half = matmul(cast(x[0], DType::kBFloat16), cast(x[1], DType::kBFloat16));
    return std::vector{wide, half, matmul(x[0], x[1])};
  });
  make_mixed(*graph);
  const std::vector<GraphNode*> nodes = graph->nodes();
  std::vector<DType> products;
  for (const GraphNode* node : nodes) {
    if (node->op->name() == "matmul") products.push_back(node->outputs[0]->spec.dtype);
  }
  EXPECT_EQ(products, (std::vector{DType::kFloat64, DType::kBFloat16, DType::kFloat16}));
  EXPECT_EQ(graph->outputs()[0].value->spec.dtype, DType::kFloat64);
  EXPECT_EQ(graph->outputs()[1].value->spec.dtype, DType::kBFloat16);
  EXPECT_EQ(graph->outputs()[2].value->spec.dtype, DType::kFloat32);
}

TEST(MixedPrecision, ReadsChangedMemoryWhereItStood) {
  const Tensor state = random({4, 4});
  const auto graph = graph_of({floats({4, 4})}, {{"state", state}}, [&](const std::vector<Tensor>& x) {
    const Tensor before = matmul(x[0], state);
    copy_(state, x[0]);
    return std::vector{before, matmul(x[0], state)};
  });
  const Tensor x = random({4, 4}), kept = copy(state);
  make_mixed(*graph);
  const std::vector<Tensor> results = run(*graph, {x});
  EXPECT_LT(largest_difference(results[0], matmul(x, kept)), 0.01);
  EXPECT_LT(largest_difference(results[1], matmul(x, x)), 0.01);
}

TEST(MixedPrecision, KeepsNumbersThatDoNotFit) {
  const Tensor w = parameter({3, 4}, DType::kFloat16), bias = parameter({3}), buffer = random({3});
  const Tensor large = Tensor::full({1}, 1e5), half = Tensor::full({1}, 0.5), several = random({3});
  const auto graph = graph_of(
      {floats({2, 4})}, {{"w", w}, {"bias", bias}, {"buffer", buffer}}, [&](const std::vector<Tensor>& x) {
        const Tensor y = linear(x[0], cast(w, DType::kFloat32), {});
        std::vector<Tensor> results;
        for (const double number : {2.0, -1e9, 1e-6, 0.0, HUGE_VAL, 65504.0})
          results.push_back(add(y, full({3}, number)));
        for (const Tensor& other : {bias, reshape(bias, {1, 3}), buffer, reshape(buffer, {1, 3}), half, large,
                                    several, softplus(bias)})
          results.push_back(add(y, other));
        return results;
      });
  make_mixed(*graph);
  std::vector<DType> dtypes;
  for (const GraphNode* node : graph->nodes()) {
    if (node->op->name() == "add") dtypes.push_back(node->outputs[0]->spec.dtype);
  }
  constexpr DType f32 = DType::kFloat32, f16 = DType::kFloat16;
  EXPECT_EQ(dtypes, (std::vector{f16, f32, f32, f16, f16, f16, /**/ f16, f16, f32, f32, f16, f32, f32, f32}))
      << graph->to_string();
}

TEST(MixedPrecision, SaysWhatItDidAndWhatNot) {
  const auto graph = graph_of({floats({4, 8}), floats({8, 8})}, {}, [&](const std::vector<Tensor>& x) {
    return std::vector{sum(relu(matmul(x[0], x[1])))};
  });
  const PassReport report = make_mixed(*graph);
  EXPECT_EQ(report.done, std::vector<std::string>{"2 calls in float16, 3 casts"});
  EXPECT_EQ(report.missed, std::vector<std::string>{"1 x sum stays as traced: asks for it"});
}

// ---- ops that are not in the tree

std::vector<TensorSpec> infer_same(const InferContext& context) {
  context.expect_float(0);
  return {context.input(0)};
}

void run_doubled(const KernelContext& context) {
  const auto twice = [&]<class T> {
    for (int64_t i = 0; i < context.output(0).numel(); ++i) {
      context.output(0).as<T>()[i] =
          static_cast<T>(2.0f * static_cast<float>(context.input(0).as<const T>()[i]));
    }
  };
  context.input(0).dtype == DType::kFloat16 ? twice.operator()<float16>() : twice.operator()<float>();
}

const Op& foreign_op(const char* name, OpTraits traits) {
  OpRegistry& registry = OpRegistry::instance();
  registry.add({.name = name,
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_same,
                .traits = std::move(traits)});
  registry.add_kernel(name, {.device = DeviceType::kCpu, .run = run_doubled});
  return registry.get(name);
}

TEST(MixedPrecision, AsksForeignOpsWhatTheyWant) {
  const Op& silent = foreign_op("test_mixed_silent", {});
  const Op& reduced = foreign_op("test_mixed_reduced", {.precision = Precision::kReduced});
  const Op& follows = foreign_op("test_mixed_follows", {.precision = Precision::kFollow});
  const Op& wide = foreign_op("test_mixed_float32", {.precision = Precision::kFloat32});
  const auto graph = graph_of({floats({5})}, {}, [&](const std::vector<Tensor>& x) {
    Tensor y = x[0];
    for (const Op* op : {&silent, &follows, &reduced, &follows, &silent, &reduced, &wide, &follows})
      y = call(*op, {y})[0];
    return std::vector{y};
  });
  make_mixed(*graph);
  std::vector<DType> dtypes;
  for (const GraphNode* node : graph->nodes()) {
    if (node->traits().role != Role::kCast) dtypes.push_back(node->outputs[0]->spec.dtype);
  }
  constexpr DType f32 = DType::kFloat32, f16 = DType::kFloat16;
  EXPECT_EQ(dtypes, (std::vector{f32, f32, f16, f16, f32, f16, f32, f32}));
  EXPECT_EQ(run(*graph, {Tensor::full({5}, 1.0)})[0].to_vector<float>(), std::vector<float>(5, 256.0f));
}

}  // namespace
}  // namespace sinter::passes
