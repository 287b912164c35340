// Checks of passes on the data of a step: passes that are wrong on purpose, and what is said of them.
#include <cstdlib>
#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/passes/pipeline.h>

#include "common/error_message.h"

namespace sinter::passes {
namespace {

using test::message_of;

/// A graph of y = mean(square(relu(x * w) + b)), where b is a buffer that is moved too.
class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    graph_.memory(weight_, GraphValue::Kind::kLeaf, "layer.weight");
    graph_.memory(buffer_, GraphValue::Kind::kLeaf, "layer.mean");
    Tracer tracer(graph_);
    const Tensor x = tracer.tensor(graph_.add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "x"));
    const Tensor y = ops::relu(ops::mul(x, weight_));
    const Tensor shifted = ops::add(y, buffer_);
    {
      const NoGrad no_grad;
      ops::copy_(buffer_, ops::affine(buffer_, 0.5, 1.0));
    }
    graph_.add_output(tracer.use_of(ops::mean(ops::square(shifted))));
    graph_.add_output(tracer.use_of(ops::exp(y).detach()));
  }

  /// The error of a pipeline with one pass that does this.
  std::string error_of(bool keeps_bits, void (*run)(Graph&, PassContext&), const PassContext& given = {}) {
    const Pass passes[] = {{"wrong", "for this test", keeps_bits, run}};
    Pipeline pipeline({.verify = true});
    pipeline.verify_on({&x_, 1}, Device::cpu());
    PassContext context = given;
    return message_of<InternalError>([&] { pipeline.run(passes, graph_, context); });
  }

  static GraphNode& find(Graph& graph, const std::string& op) {
    for (GraphNode* node : graph.nodes()) {
      if (node->op->name() == op) return *node;
    }
    throw_error<InternalError>("no {}", op);
  }

  Graph graph_;
  const Tensor x_ = Tensor::from_values<float>({1, 2, 3, -4, 5, -6}, {2, 3});
  const Tensor weight_ = Tensor::from_values<float>({0.5, 1, 2}, {3}).set_requires_grad(true);
  const Tensor buffer_ = Tensor::from_values<float>({1, 0, 2}, {3});
};

TEST_F(VerifyTest, PassesOverWhatIsRight) {
  const uint64_t versions = weight_.version() + buffer_.version();
  const Pass passes[] = {
      {"idle", "does nothing", true, [](Graph&, PassContext&) {}},
      {"doubles", "x + x for 2 x", false,
       [](Graph& graph, PassContext&) {
         GraphNode& node = find(graph, "square");
         Tracer tracer(graph, &node);
         const Tensor x = tracer.tensor({node.input(0), true});
         graph.replace_uses(*node.outputs[0], *tracer.use_of(ops::mul(x, x)).value);
       }},
  };
  Pipeline pipeline({.verify = true});
  pipeline.verify_on({&x_, 1}, Device::cpu());
  PassContext context;
  pipeline.run(passes, graph_, context);
  ASSERT_EQ(pipeline.reports().size(), 2u);
  EXPECT_TRUE(pipeline.reports()[1].verified);
  // Nobody's tensors have changed.
  EXPECT_EQ(weight_.version() + buffer_.version(), versions);
  EXPECT_EQ(buffer_.to_vector<float>(), (std::vector<float>{1, 0, 2}));
  EXPECT_FALSE(weight_.grad().defined());
}

void add_to_relu(Graph& graph, double value) {
  GraphNode* node = nullptr;
  for (GraphNode* each : graph.nodes()) {
    if (each->op->name() == "relu") node = each;
  }
  Tracer tracer(graph, graph.next(*node));
  const Tensor moved = ops::affine(tracer.tensor({node->outputs[0], true}), 1.0, value);
  GraphValue& replacement = *tracer.use_of(moved).value;
  graph.replace_uses(*node->outputs[0], replacement);
  graph.set_input(*replacement.producer, 0, {node->outputs[0], true});
}

TEST_F(VerifyTest, NamesTheValueThatDiffers) {
  EXPECT_EQ(error_of(false, [](Graph& graph, PassContext&) { add_to_relu(graph, 1.0); }),
            "[passes] wrong: [verify] the loss is 24.208334 at () with the pass and 16.708334 without it, "
            "further apart than 0.0334");
}

TEST_F(VerifyTest, BitsAreKeptOrNotAsThePassSays) {
  const auto nearly = [](Graph& graph, PassContext&) { add_to_relu(graph, 1e-6); };
  EXPECT_EQ(error_of(false, nearly), "no error");
  const std::string error = error_of(true, nearly);
  EXPECT_NE(error.find("but the pass says that it keeps all bits"), std::string::npos) << error;
}

TEST_F(VerifyTest, NamesTheGradientThatDiffersByItsLeaf) {
  // The same values, another gradient.
  const std::string error = error_of(false, [](Graph& graph, PassContext&) {
    GraphNode& node = find(graph, "square");
    Tracer tracer(graph, &node);
    const Tensor x = tracer.tensor({node.input(0), true});
    GraphValue& product = *tracer.use_of(ops::mul(x, x.detach())).value;
    graph.replace_uses(*node.outputs[0], product);
  });
  EXPECT_EQ(error.substr(0, error.find(" is ")), "[passes] wrong: [verify] the gradient of layer.weight");
  EXPECT_NE(error.find("at (0) with the pass and "), std::string::npos) << error;
}

TEST_F(VerifyTest, NamesTheGradientThatIsGone) {
  EXPECT_EQ(error_of(true,
                     [](Graph& graph, PassContext&) {
                       GraphNode& node = find(graph, "mul");
                       graph.set_input(node, 1, {node.input(1), false});
                     }),
            "[passes] wrong: [verify] the gradient of layer.weight is gone");
}

TEST_F(VerifyTest, NamesTheLeafThatIsChangedOtherwise) {
  EXPECT_EQ(error_of(true,
                     [](Graph& graph, PassContext&) {
                       for (GraphNode* node : graph.nodes()) {
                         if (node->op->name() == "affine")
                           graph.set_attributes(*node, node->attributes.with("shift", 2.0));
                       }
                     }),
            "[passes] wrong: [verify] layer.mean after the step is 2.5 at (0) with the pass and 1.5 without "
            "it, but "
            "the pass says that it keeps all bits");
  EXPECT_EQ(buffer_.to_vector<float>(), (std::vector<float>{1, 0, 2}));
}

TEST_F(VerifyTest, NoticesLeavesThatOnlyOneGraphChanges) {
  EXPECT_EQ(error_of(true,
                     [](Graph& graph, PassContext&) {
                       graph.erase(find(graph, "copy_"));
                       graph.erase_dead();
                     }),
            "[passes] wrong: [verify] layer.mean after the step is 1 at (0) with the pass and 1.5 without "
            "it, but the "
            "pass says that it keeps all bits");
  EXPECT_NE(error_of(false,
                     [](Graph& graph, PassContext&) {
                       Tracer tracer(graph);
                       const NoGrad no_grad;
                       for (const GraphValue* leaf : graph.memories()) {
                         if (leaf->name == "layer.weight") ops::fill_(leaf->tensor, 7.0);
                       }
                     })
                .find("[verify] layer.weight after the step is 7 at (0) with the pass and 0.5 without it"),
            std::string::npos);
  // Writing what is there already is no difference.
  EXPECT_EQ(error_of(true,
                     [](Graph& graph, PassContext&) {
                       Tracer tracer(graph);
                       const NoGrad no_grad;
                       for (const GraphValue* leaf : graph.memories()) {
                         if (leaf->name == "layer.weight")
                           ops::copy_(leaf->tensor, ops::affine(leaf->tensor, 1.0, 0.0));
                       }
                     }),
            "no error");
}

TEST_F(VerifyTest, NoticesAChangeThatCameTooEarly) {
  const std::string error = error_of(true, [](Graph& graph, PassContext&) {
    // What reads the buffer is made anew behind the change.
    GraphNode& node = find(graph, "add");
    GraphNode& change = find(graph, "copy_");
    GraphNode& late = graph.insert(graph.next(change), *node.op, node.inputs, node.attributes);
    graph.replace_uses(*node.outputs[0], *late.outputs[0]);
    graph.erase(node);
  });
  EXPECT_EQ(error,
            "[passes] wrong: [graph] add reads leaf 'layer.mean' of the job where 1 calls have changed it, "
            "expected 0");
}

TEST_F(VerifyTest, NoticesOtherOutputs) {
  const std::string error = error_of(false, [](Graph& graph, PassContext&) {
    GraphNode& node = find(graph, "exp");
    Tracer tracer(graph, &node);
    graph.replace_uses(*node.outputs[0],
                       *tracer.use_of(ops::square(tracer.tensor({node.input(0), false}))).value);
  });
  EXPECT_EQ(error.substr(0, error.find(" is ")), "[passes] wrong: [verify] output 1") << error;
}

TEST_F(VerifyTest, ChecksDifferentiatedGraphsWithoutTheirGradients) {
  PassContext context;
  context.differentiated = true;
  EXPECT_EQ(error_of(
                true,
                [](Graph& graph, PassContext&) {
                  GraphNode& node = find(graph, "mul");
                  graph.set_input(node, 1, {node.input(1), false});
                },
                context),
            "no error");
  EXPECT_NE(error_of(
                true, [](Graph& graph, PassContext&) { add_to_relu(graph, 1.0); }, context)
                .find("the loss is"),
            std::string::npos);
}

/// As a pass for mixed precision does: the square is computed in 16 bit.
void square_in_16_bit(Graph& graph, const std::function<Tensor(const Tensor&)>& behind) {
  for (GraphNode* const node : graph.nodes()) {
    if (node->op->name() != "square") continue;
    Tracer tracer(graph, node);
    const Tensor x = ops::cast(tracer.tensor({node->input(0), true}), DType::kFloat16);
    const Tensor y = ops::cast(behind(ops::square(x)), DType::kFloat32);
    graph.replace_uses(*node->outputs[0], *tracer.use_of(y).value);
    return;
  }
}

TEST_F(VerifyTest, ToleratesWhatTheNarrowestDTypeRoundsAway) {
  EXPECT_EQ(error_of(false, [](Graph& graph,
                               PassContext&) { square_in_16_bit(graph, [](const Tensor& y) { return y; }); }),
            "no error");
  EXPECT_NE(error_of(false,
                     [](Graph& graph, PassContext&) {
                       square_in_16_bit(graph, [](const Tensor& y) { return ops::affine(y, 1.5, 0.0); });
                     })
                .find("the loss is"),
            std::string::npos);
}

TEST_F(VerifyTest, ToleratesWhatRoundingMakesOfBadlyConditionedValues) {
  // What is left of 0.01 y is chance, in float32 already.
  Graph graph;
  {
    Tracer tracer(graph);
    const Tensor x = tracer.tensor(graph.add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "x"));
    const Tensor y = ops::sigmoid(x);
    graph.add_output(tracer.use_of((y * 1e5 + y * 0.01) - y * 1e5));
  }
  const Pass narrows = {
      "narrows", "for this test", false, [](Graph& g, PassContext&) {
        GraphNode& node = find(g, "sigmoid");
        Tracer tracer(g, &node);
        const Tensor narrow = ops::cast(tracer.tensor({node.input(0), false}), DType::kFloat16);
        const Tensor y = ops::cast(ops::sigmoid(narrow), DType::kFloat32);
        g.replace_uses(*node.outputs[0], *tracer.use_of(y).value);
      }};
  const Pass shifts = {"shifts", "for this test", false, [](Graph& g, PassContext&) {
                         Tracer tracer(g);
                         g.set_output(0, tracer.use_of(tracer.tensor(g.outputs()[0]) + 1.0));
                       }};
  const auto run = [&](const std::vector<Pass>& passes) {
    Pipeline pipeline({.verify = true});
    pipeline.verify_on({&x_, 1}, Device::cpu());
    PassContext context{.training = false};
    return message_of<InternalError>([&] { pipeline.run(passes, *graph.clone(), context); });
  };
  EXPECT_EQ(run({narrows}), "no error");
  EXPECT_NE(run({narrows, shifts}).find("shifts"), std::string::npos);
}

TEST_F(VerifyTest, IsAskedForByOptionOrEnvironment) {
  const auto verified = [&](const PipelineOptions& options) {
    const Pass passes[] = {{"idle", "does nothing", true, [](Graph&, PassContext&) {}}};
    Pipeline pipeline(options);
    pipeline.verify_on({&x_, 1}, Device::cpu());
    PassContext context;
    pipeline.run(passes, graph_, context);
    return pipeline.reports().at(0).verified;
  };
  const char* const outside = std::getenv("SINTER_VERIFY");
  const std::string before = outside != nullptr ? outside : "";
  ::unsetenv("SINTER_VERIFY");
  EXPECT_FALSE(verified({}));
  EXPECT_TRUE(verified({.verify = true}));
  ::setenv("SINTER_VERIFY", "1", 1);
  EXPECT_TRUE(verified({}));
  EXPECT_FALSE(Pipeline().verifies_calls());
  ::setenv("SINTER_VERIFY", "deep", 1);
  EXPECT_TRUE(verified({}));
  EXPECT_TRUE(Pipeline().verifies_calls());
  ::setenv("SINTER_VERIFY", "0", 1);
  EXPECT_FALSE(verified({}));
  ::setenv("SINTER_VERIFY", "yes", 1);
  EXPECT_EQ(message_of([&] { verified({}); }), "[passes] expected SINTER_VERIFY=0, 1 or deep but got 'yes'");
  if (outside != nullptr) {
    ::setenv("SINTER_VERIFY", before.c_str(), 1);
  } else {
    ::unsetenv("SINTER_VERIFY");
  }
}

}  // namespace
}  // namespace sinter::passes
