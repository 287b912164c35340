// Graph: editing, what verify() finds, aliases, and its texts.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <sinter/core/graph/graph.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/fill/fill_attributes.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using Kind = GraphValue::Kind;
using test::message_of;

const Op& op(const char* name) {
  return OpRegistry::instance().get(name);
}

TensorSpec spec(const Shape& shape) {
  return {shape, DType::kFloat32, Device::cpu()};
}

/// The only output of a new call at the end, or before another one.
GraphValue& call(Graph& graph, const char* name, const std::vector<GraphValue*>& inputs,
                 const Attributes& attributes = {}, GraphNode* before = nullptr,
                 const std::string& scope = {}) {
  std::vector<GraphUse> uses;
  for (GraphValue* value : inputs) uses.push_back({value, false});
  return *graph.insert(before, op(name), std::move(uses), attributes, scope).outputs[0];
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> all;
  for (const GraphNode* node : graph.nodes()) all.push_back(node->op->name());
  return all;
}

TEST(Graph, InsertsInOrder) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& last = call(graph, "exp", {&x});
  GraphValue& first = call(graph, "relu", {&x}, {}, last.producer);
  GraphValue& middle = call(graph, "neg", {&first}, {}, last.producer);
  EXPECT_EQ(names(graph), (std::vector<std::string>{"relu", "neg", "exp"}));
  EXPECT_TRUE(graph.precedes(*first.producer, *middle.producer));
  EXPECT_FALSE(graph.precedes(*last.producer, *middle.producer));
  EXPECT_EQ(graph.next(*first.producer), middle.producer);
  EXPECT_EQ(graph.next(*last.producer), nullptr);
  EXPECT_EQ(graph.last(), last.producer);
  EXPECT_EQ(graph.node_count(), 3u);
  EXPECT_EQ(x.users, (std::vector<GraphNode*>{last.producer, first.producer}));
  graph.verify();
}

TEST(Graph, InsertRefusesWhatInferenceRefuses) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& y = graph.add_input(spec({2, 4}), "y");
  EXPECT_NE(message_of([&] { call(graph, "add", {&x, &y}); }).find("[add]"), std::string::npos);
  // Nothing is left of it.
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_TRUE(x.users.empty());
  graph.verify();
}

TEST(Graph, ReplacesUsesInNodesAndOutputs) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2}), "x");
  GraphValue& old = call(graph, "exp", {&x});
  GraphNode& twice = graph.insert(nullptr, op("add"), {{&old, true}, {&old, false}}, {});
  graph.add_output({twice.outputs[0], true});
  graph.add_output({&old, true});
  GraphValue& replacement = call(graph, "relu", {&x}, {}, old.producer);
  graph.replace_uses(old, replacement);
  // Whether a gradient flows is a matter of the use, not of the value.
  EXPECT_EQ(twice.inputs, (std::vector<GraphUse>{{&replacement, true}, {&replacement, false}}));
  EXPECT_EQ(graph.outputs()[1], (GraphUse{&replacement, true}));
  EXPECT_FALSE(old.is_used());
  EXPECT_EQ(replacement.users.size(), 2u);
  EXPECT_EQ(replacement.output_uses, 1);
  graph.verify();
  graph.erase(*old.producer);
  EXPECT_EQ(x.users.size(), 1u);
  graph.verify();
}

TEST(Graph, ErasesOnlyWhatNobodyUses) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2}), "x");
  GraphValue& a = call(graph, "exp", {&x}, {}, nullptr, "first");
  GraphValue& b = call(graph, "neg", {&a});
  EXPECT_NE(message_of<InternalError>([&] {
              graph.erase(*a.producer);
            }).find("[graph] the output of exp in first cannot go while it is used"),
            std::string::npos);
  graph.add_output({&b, false});
  EXPECT_NE(message_of<InternalError>([&] { graph.erase(*b.producer); }).find("cannot go"),
            std::string::npos);
  EXPECT_EQ(graph.node_count(), 2u);
}

TEST(Graph, ErasesTheDeadButNotWhatChangesLeaves) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2}), "x");
  GraphValue& leaf = graph.memory(Tensor::zeros({2}), Kind::kLeaf, "buffer");
  GraphValue& dead = call(graph, "exp", {&x});
  call(graph, "neg", {&dead});
  call(graph, "neg", {&call(graph, "relu", {&leaf})});
  GraphValue& source = call(graph, "square", {&x});
  graph.insert(nullptr, op("copy_"), {{&leaf, false}, {&source, false}}, {});
  graph.add_output({&call(graph, "relu", {&x}), false});
  EXPECT_EQ(graph.erase_dead(), 4u);
  EXPECT_EQ(names(graph), (std::vector<std::string>{"square", "copy_", "relu"}));
  graph.verify();
  EXPECT_EQ(graph.erase_dead(), 0u);
}

TEST(Graph, InfersAgain) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& y = graph.add_input(spec({4, 3}), "y");
  GraphValue& sum =
      call(graph, "sum", {&x}, Attributes(ops::ReduceAttributes{.axes = {0}, .keep_dims = true}));
  EXPECT_FALSE(graph.infer_again(*sum.producer));
  graph.set_attributes(*sum.producer, sum.producer->attributes.with("keep_dims", false));
  EXPECT_TRUE(graph.infer_again(*sum.producer));
  EXPECT_EQ(sum.spec, spec({3}));
  GraphValue& negative = call(graph, "neg", {&y});
  graph.set_input(*negative.producer, 0, {&x, false});
  EXPECT_TRUE(graph.infer_again(*negative.producer));
  EXPECT_EQ(negative.spec, spec({2, 3}));
  graph.verify();
}

TEST(Graph, VerifyNamesWhatIsWrong) {
  const auto error = [](const Graph& graph) { return message_of<InternalError>([&] { graph.verify(); }); };
  const auto expect = [&](const Graph& graph, const std::string& text) {
    EXPECT_NE(error(graph).find(text), std::string::npos) << error(graph);
  };
  {
    Graph graph;
    GraphValue& x = graph.add_input(spec({2}), "x");
    GraphValue& a = call(graph, "exp", {&x}, {}, nullptr, "early");
    GraphValue& b = call(graph, "neg", {&a});
    graph.set_input(*a.producer, 0, {&b, false});
    expect(graph, "[graph] input 0 of exp in early is used before it is computed");
  }
  {
    Graph graph;
    GraphValue& x = graph.add_input(spec({2}), "x");
    GraphNode& node = *call(graph, "add", {&x, &x}).producer;
    graph.set_input(node, 1, {});
    expect(graph, "[graph] input 1 of add is not there");
  }
  {
    Graph graph;
    GraphValue& x = graph.add_input(spec({2}), "x");
    GraphValue& y = graph.add_input(spec({3}), "y");
    graph.set_input(*call(graph, "neg", {&x}).producer, 0, {&y, false});
    expect(graph, "[graph] output 0 of neg is float32 (2,) on cpu, expected float32 (3,) on cpu");
  }
  {
    Graph graph;
    GraphValue& constant = graph.memory(Tensor::zeros({2}), Kind::kConstant, "mask");
    graph.insert(nullptr, op("fill_"), {{&constant, false}}, Attributes(ops::FillAttributes{.value = 1.0}));
    expect(graph, "[graph] fill_ changes constant 'mask' of the job, which is no leaf");
  }
  {
    Graph graph;
    GraphValue& x = graph.add_input(spec({2}), "x");
    graph.insert(nullptr, op("fill_"), {{&call(graph, "neg", {&x}), false}},
                 Attributes(ops::FillAttributes{}));
    expect(graph, "[graph] fill_ changes the output of neg, which is no leaf");
  }
  {
    Graph graph;
    GraphValue& x = graph.add_input(spec({2}), "x");
    call(graph, "neg", {&x});
    x.users.clear();
    expect(graph, "[graph] the users of input 'x' of the job are not those listed");
  }
  {
    Graph graph, other;
    GraphValue& x = other.add_input(spec({2}), "x");
    call(graph, "neg", {&x});
    expect(graph, "[graph] input 0 of neg is of another graph");
  }
}

TEST(Graph, ViewsAreAliases) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({4, 3}), "x");
  GraphValue& rows =
      call(graph, "slice", {&x}, Attributes(ops::SliceAttributes{.axis = 0, .begin = 1, .end = 3}));
  GraphValue& flat = call(graph, "reshape", {&rows}, Attributes(ops::ReshapeAttributes{.extents = {6}}));
  GraphValue& columns =
      call(graph, "slice", {&x}, Attributes(ops::SliceAttributes{.axis = 1, .begin = 0, .end = 2}));
  EXPECT_EQ(rows.base, &x);
  EXPECT_EQ(rows.base_offset, 3 * sizeof(float));
  EXPECT_TRUE(rows.producer->is_view());
  EXPECT_EQ(flat.base, &rows);
  EXPECT_EQ(flat.base_offset, 0u);
  EXPECT_EQ(&flat.root(), &x);
  EXPECT_EQ(columns.base, nullptr) << "columns are copied";
  EXPECT_EQ(&columns.root(), &columns);
  GraphValue& y = call(graph, "neg", {&x}, {}, rows.producer);
  graph.replace_uses(x, y);
  graph.set_input(*y.producer, 0, {&x, false});
  EXPECT_EQ(&flat.root(), &y) << "an alias follows what it is a view of";
  graph.verify();
  // What a view of a leaf changes is the leaf; a view of anything else changes nothing that lives on.
  GraphValue& leaf = graph.memory(Tensor::zeros({4, 3}), Kind::kLeaf, "buffer");
  GraphValue& part =
      call(graph, "slice", {&leaf}, Attributes(ops::SliceAttributes{.axis = 0, .begin = 0, .end = 1}));
  graph.insert(nullptr, op("fill_"), {{&part, false}}, Attributes(ops::FillAttributes{}));
  graph.verify();
}

TEST(Graph, KnowsMemoryByPlaceAndShape) {
  Graph graph;
  const Tensor tensor = Tensor::zeros({4, 3});
  const Tensor rows = ops::slice(tensor, 0, 1, 3);
  ASSERT_EQ(rows.storage(), tensor.storage());
  GraphValue& whole = graph.memory(tensor, Kind::kConstant);
  EXPECT_EQ(&graph.memory(tensor.detach(), Kind::kConstant, "mask"), &whole);
  EXPECT_EQ(whole.name, "mask") << "a name may come later";
  EXPECT_EQ(&graph.memory(tensor, Kind::kConstant, "other"), &whole);
  EXPECT_EQ(whole.name, "mask");
  EXPECT_FALSE(graph.is_leaf(tensor));
  EXPECT_FALSE(graph.is_leaf(Tensor::zeros({4, 3})));
  // What shares its storage changes with it.
  GraphValue& part = graph.memory(rows, Kind::kLeaf, "rows");
  EXPECT_NE(&part, &whole);
  EXPECT_EQ(whole.kind, Kind::kLeaf);
  EXPECT_TRUE(graph.is_leaf(tensor));
  EXPECT_EQ(graph.memory(ops::slice(tensor, 0, 0, 1), Kind::kConstant).kind, Kind::kLeaf);
  EXPECT_EQ(graph.memory(tensor, Kind::kConstant).kind, Kind::kLeaf) << "a leaf stays a leaf";
  EXPECT_EQ(graph.memories().size(), 3u);
}

TEST(Graph, TellsItselfWordForWord) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& leaf = graph.memory(Tensor::zeros({3}), Kind::kLeaf, "scale");
  GraphValue& mask = graph.memory(Tensor::zeros({2, 1}, DType::kFloat32), Kind::kConstant);
  graph.memory(Tensor::zeros({5}), Kind::kLeaf, "unused");
  GraphValue& product = call(graph, "mul", {&x, &leaf}, {}, nullptr, "layer1.0");
  GraphValue& sum = call(graph, "add", {&product, &mask});
  GraphValue& mean =
      call(graph, "mean", {&sum}, Attributes(ops::ReduceAttributes{.axes = {0}}), nullptr, "(loss)");
  graph.insert(nullptr, op("copy_"), {{&leaf, false}, {&mean, false}}, {});
  graph.add_output({&mean, false});
  graph.add_output({&x, false});
  EXPECT_EQ(graph.to_string(),
            "input %x: f32(2,3)\n"
            "leaf scale: f32(3)\n"
            "constant tensor#0: f32(2,1)\n"
            "%0: f32(2,3) = mul(%x, scale)  # layer1.0\n"
            "%1: f32(2,3) = add(%0, tensor#0)\n"
            "%2: f32(3) = mean(%1) {axes=[0], keep_dims=false}  # (loss)\n"
            "copy_(scale, %2)\n"
            "return %2, %x\n");
}

TEST(Graph, TellsAbsentInputsAndSeveralOutputs) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& bias = graph.memory(Tensor::zeros({3}), Kind::kLeaf, "bias");
  const GraphNode& norm = *graph
                               .insert(nullptr, op("batch_norm"), {{&x, false}, {}, {&bias, true}, {}, {}},
                                       Attributes(ops::BatchNormOptions{.epsilon = 0.5}))
                               .outputs[0]
                               ->producer;
  graph.add_output({norm.outputs[0], true});
  EXPECT_EQ(graph.to_string(),
            "input %x: f32(2,3)\n"
            "leaf bias: f32(3)\n"
            "%0: f32(2,3), %1: f32(3), %2: f32(3) = batch_norm(%x, none, bias) "
            "{epsilon=0.5, momentum=0.1, training=true, layout=NCHW}\n"
            "return %0\n");
}

/// Fills a graph with one of each kind of value.
void fill_example(Graph& graph) {
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  GraphValue& leaf = graph.memory(Tensor::zeros({3}), Kind::kLeaf, "a \"quoted\" leaf");
  GraphValue& mask = graph.memory(Tensor::zeros({2, 1}), Kind::kConstant);
  GraphNode& product = graph.insert(nullptr, op("mul"), {{&x, false}, {&leaf, true}}, {}, "layer1.0");
  GraphValue& sum = call(graph, "add", {product.outputs[0], &mask});
  GraphValue& rows = call(graph, "slice", {&sum}, Attributes(ops::SliceAttributes{.axis = 0, .end = 1}));
  GraphValue& row = call(graph, "reshape", {&rows}, Attributes(ops::ReshapeAttributes{.extents = {3}}));
  graph.insert(nullptr, op("copy_"), {{&leaf, false}, {&row, false}}, {});
  graph.add_output({&row, true});
  graph.add_output({&x, false});
}

TEST(Graph, DrawsItself) {
  Graph graph;
  fill_example(graph);
  const std::string dot = graph.to_dot();
  std::istringstream lines(dot);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "digraph job {");
  // Statements of Graphviz's language: a box, an edge between boxes that are declared, or defaults.
  const std::string name = R"re(("(?:[^"\\\n]|\\["\\n])*"))re";
  const std::regex box("  " + name + R"( \[(?:(?:label=)" + name +
                       R"()|(?:shape=\w+)|(?:style=\w+)|(?:fillcolor=\w+)|, )+\];)");
  const std::regex edge("  " + name + " -> " + name + R"((?: \[label=)" + name + R"(\])?;)");
  std::set<std::string> boxes;
  size_t edges = 0;
  while (std::getline(lines, line) && line != "}") {
    std::smatch match;
    if (std::regex_match(line, match, edge)) {
      ++edges;
      EXPECT_TRUE(boxes.contains(match[1])) << line;
      EXPECT_TRUE(boxes.contains(match[2])) << line;
    } else if (std::regex_match(line, match, box)) {
      EXPECT_TRUE(boxes.insert(match[1]).second) << line;
    } else {
      EXPECT_EQ(line, "  node [shape=box, fontname=\"monospace\"];");
    }
  }
  EXPECT_EQ(line, "}");
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_EQ(boxes.size(), 3u + graph.node_count() + 2u);
  EXPECT_EQ(edges, 2u + 2u + 1u + 1u + 2u + 2u);
  EXPECT_NE(dot.find(R"([label="mul\nlayer1.0"])"), std::string::npos) << dot;
  EXPECT_NE(dot.find(R"re("a \"quoted\" leaf" [label="a \"quoted\" leaf\nf32(3)")re"), std::string::npos)
      << dot;
}

TEST(Graph, ClonesOnTheSameMemory) {
  auto graph = std::make_unique<Graph>();
  fill_example(*graph);
  const std::unique_ptr<Graph> copy = graph->clone();
  const std::string text = graph->to_string();
  EXPECT_EQ(copy->to_string(), text);
  copy->verify();
  EXPECT_EQ(copy->outputs()[0].differentiable, true);
  EXPECT_EQ(copy->nodes()[0]->inputs[1].differentiable, true);
  ASSERT_EQ(copy->memories().size(), graph->memories().size());
  for (size_t i = 0; i < copy->memories().size(); ++i) {
    EXPECT_NE(copy->memories()[i], graph->memories()[i]);
    EXPECT_TRUE(copy->memories()[i]->tensor.is_same(graph->memories()[i]->tensor));
  }
  const GraphNode* const view = copy->nodes()[3];
  EXPECT_EQ(&view->outputs[0]->root(), copy->nodes()[1]->outputs[0]);
  // Each goes its own way.
  call(*copy, "neg", {copy->inputs()[0]});
  EXPECT_EQ(graph->to_string(), text);
  graph.reset();
  copy->verify();
  EXPECT_EQ(copy->erase_dead(), 1u);
  EXPECT_EQ(copy->to_string(), text);
}

TEST(Graph, ValuesOutliveIt) {
  auto graph = std::make_unique<Graph>();
  fill_example(*graph);
  const std::shared_ptr<GraphValue> result = graph->outputs()[0].value->shared_from_this();
  const std::shared_ptr<GraphValue> input = graph->inputs()[0]->shared_from_this();
  EXPECT_EQ(result->description(), "the output of reshape");
  graph.reset();
  EXPECT_EQ(result->description(), "a tensor of a trace that has ended");
  EXPECT_EQ(&result->root(), result.get());
  EXPECT_EQ(input->graph, nullptr);
}

TEST(Graph, DescribesValues) {
  Graph graph;
  GraphValue& x = graph.add_input(spec({2, 3}), "x");
  EXPECT_EQ(x.description(), "input 'x' of the job");
  EXPECT_EQ(graph.memory(Tensor::zeros({1}), Kind::kLeaf, "w").description(), "leaf 'w' of the job");
  EXPECT_EQ(graph.memory(Tensor::zeros({1}), Kind::kConstant, "c").description(), "constant 'c' of the job");
  const GraphNode& norm = graph.insert(nullptr, op("batch_norm"), {{&x, false}, {}, {}, {}, {}},
                                       Attributes(ops::BatchNormOptions{}), "layer1.bn1");
  EXPECT_EQ(norm.outputs[2]->description(), "output 'inv_std' of batch_norm in layer1.bn1");
}

}  // namespace
}  // namespace sinter
