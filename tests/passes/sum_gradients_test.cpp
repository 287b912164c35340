// Sums of gradients that go into their readers, by the text of the differentiated graph.
#include <sinter/autograd/differentiate.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/operators.h>

#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;

using Texts = std::vector<std::string>;
using Inputs = std::span<const Tensor>;

/// A batch_norm_act of input 0 without parameters, and a function of it and the other inputs, differentiated.
struct Differentiated {
  std::unique_ptr<Graph> graph;

  explicit Differentiated(const std::function<Tensor(const Tensor& y, Inputs inputs)>& behind,
                          const ops::BatchNormActOptions& options = {},
                          const std::vector<Shape>& shapes = {{6, 3}, {6, 3}, {6, 3}, {6, 3}}) {
    const Tensor weight = Tensor::full({3}, 1.0).set_requires_grad(true);
    const nn::JobFunction function = [&](Inputs inputs) {
      return std::vector<Tensor>{
          behind(ops::fused::batch_norm_act(inputs[0], {.weight = weight}, {}, {}, {}, options), inputs)};
    };
    graph = traced(nn::Sequential(), function, shapes);
    Tracer tracer(*graph);
    const Tensor y = tracer.tensor(graph->outputs()[0]);
    for (const LeafGradient& each : differentiate(tracer, y, Tensor::full(y.shape(), 1.0)))
      graph->add_output(tracer.use_of(each.gradient));
    graph->erase_dead();
  }
  /// The node whose attributes are those of batch_norm_act_grad.
  const GraphNode& gradient() const {
    for (const GraphNode* node : graph->nodes()) {
      if (node->traits().summed_input.first >= 0) return *node;
    }
    throw InternalError("there is no gradient");
  }
};

TEST(SumGradients, GivesBothSummandsToTheirOnlyReader) {
  const Differentiated twice([](const Tensor& y, Inputs in) { return y * in[1] + y * in[2]; });
  const size_t nodes = twice.graph->node_count();
  const std::vector<GraphUse> summands = twice.gradient().input(1)->producer->inputs;
  const PassReport report = run(sum_gradients, *twice.graph, true, true);
  EXPECT_EQ(report.done, Texts{"add into batch_norm_act_grad"});
  EXPECT_EQ(report.missed, Texts{});
  EXPECT_EQ(twice.graph->node_count(), nodes - 1);
  EXPECT_EQ(twice.gradient().input(1), summands[0].value);
  EXPECT_EQ(twice.gradient().input(2), summands[1].value);
}

TEST(SumGradients, TakesTheLastSumOfAChain) {
  const Differentiated thrice(
      [](const Tensor& y, Inputs in) { return y * in[1] + y * in[2] + ops::sigmoid(y); });
  EXPECT_EQ(run(sum_gradients, *thrice.graph, true, true).done.size(), 1U);
  const GraphNode& gradient = thrice.gradient();
  const auto is_sum = [](const GraphValue* value) {
    return value->producer != nullptr && value->producer->traits().role == Role::kSum;
  };
  EXPECT_EQ(static_cast<int>(is_sum(gradient.input(1))) + static_cast<int>(is_sum(gradient.input(2))), 1);
  EXPECT_EQ(run(sum_gradients, *thrice.graph, true, true).done, Texts{}) << "it takes two";
}

TEST(SumGradients, SaysWhatStaysAndWhy) {
  const Differentiated once([](const Tensor& y, Inputs in) { return y * in[1]; });
  const PassReport nothing = run(sum_gradients, *once.graph, true, true);
  EXPECT_EQ(nothing.done, Texts{});
  EXPECT_EQ(nothing.missed, Texts{});

  // The gradient of a plain addend in front of no activation is the sum itself.
  const Tensor leaf = Tensor::full({6, 3}, 0.5).set_requires_grad(true);
  const nn::JobFunction function = [&](Inputs in) {
    const Tensor y =
        ops::fused::batch_norm_act(in[0], {.weight = Tensor::full({3}, 1.0).set_requires_grad(true)},
                                   leaf * in[1], {}, {}, {.activation = ops::fused::Activation::kNone});
    return std::vector<Tensor>{y * in[1] + y * in[2]};
  };
  const auto shared = traced(nn::Sequential(), function, {{6, 3}, {6, 3}, {6, 3}});
  {
    Tracer tracer(*shared);
    for (const LeafGradient& each :
         differentiate(tracer, tracer.tensor(shared->outputs()[0]), Tensor::full({6, 3}, 1.0)))
      shared->add_output(tracer.use_of(each.gradient));
    shared->erase_dead();
  }
  EXPECT_EQ(run(sum_gradients, *shared, true, true).missed,
            Texts{"batch_norm_act_grad: the sum of its gradients has 2 readers"});

  Differentiated on_cudnn([](const Tensor& y, Inputs in) { return y * in[1] + y * in[2]; });
  for (GraphNode* node : on_cudnn.graph->nodes()) {
    if (node->traits().summed_input.first >= 0)
      on_cudnn.graph->set_attributes(*node, node->attributes.with("backend", ops::NormBackend::kCudnn));
  }
  PassContext context;
  sum_gradients(*on_cudnn.graph, context);
  EXPECT_EQ(context.report.missed, Texts{"batch_norm_act_grad: it takes one gradient only"});
}

}  // namespace
}  // namespace sinter::passes
