// Tracer: what is recorded, what runs at once, and every refusal with its whole text.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using Kind = GraphValue::Kind;
using test::message_of;

/// A trace with an input x of (2, 3).
class TracerTest : public testing::Test {
 protected:
  Graph graph_;
  GraphValue& input_ = graph_.add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "x");

  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const GraphNode* node : graph_.nodes()) names.push_back(node->op->name());
    return names;
  }
  const GraphNode& node(size_t i) const { return *graph_.nodes().at(i); }
};

using Names = std::vector<std::string>;

Tensor parameter(const Shape& shape) {
  return Tensor::full(shape, 0.5).set_requires_grad(true);
}

// ---- what is recorded

TEST_F(TracerTest, RecordsWhatDependsOnInputs) {
  Tracer tracer(graph_);
  const Tensor x = tracer.tensor(input_);
  EXPECT_TRUE(x.is_traced());
  EXPECT_FALSE(x.requires_grad());
  const Tensor y = ops::relu(x);
  EXPECT_TRUE(y.is_traced());
  EXPECT_EQ(y.spec(), input_.spec);
  EXPECT_EQ(tracer.set_scope("layer1"), "");
  const Tensor z = ops::add(y, x);
  EXPECT_EQ(ops(), (Names{"relu", "add"}));
  EXPECT_EQ(node(0).scope, "");
  EXPECT_EQ(node(1).scope, "layer1");
  EXPECT_EQ(node(1).input(1), &input_);
  graph_.verify();
}

TEST_F(TracerTest, RunsOnConstantsAtOnce) {
  const Tensor mask = Tensor::full({3}, 2.0);
  Tracer tracer(graph_);
  const Tensor made = ops::square(mask);
  EXPECT_FALSE(made.is_traced());
  EXPECT_EQ(made.to_vector<float>(), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(graph_.node_count(), 0u);
  ops::mul(tracer.tensor(input_), made);
  EXPECT_EQ(ops(), (Names{"mul"}));
  EXPECT_EQ(node(0).input(1)->kind, Kind::kConstant);
}

TEST_F(TracerTest, RecordsCallsWithoutInputs) {
  Tracer tracer(graph_);
  EXPECT_TRUE(ops::full({2}, 1.0).is_traced());
  EXPECT_EQ(ops(), (Names{"full"}));
}

TEST_F(TracerTest, RecordsOpsOnParametersAlone) {
  const Tensor weight = parameter({4, 3});
  Tracer tracer(graph_);
  const Tensor centred = ops::sub(weight, ops::mean(weight, {1}, {.keep_dims = true}));
  EXPECT_TRUE(centred.is_traced());
  EXPECT_TRUE(centred.requires_grad());
  EXPECT_EQ(ops(), (Names{"mean", "sub"}));
  EXPECT_EQ(node(1).input(0)->kind, Kind::kLeaf);
  EXPECT_EQ(node(1).input(0), node(0).input(0));
  EXPECT_TRUE(node(1).inputs[0].differentiable);
}

TEST_F(TracerTest, RecordsOpsOnFrozenParametersWithoutAGradient) {
  const Tensor weight = parameter({3});
  graph_.memory(weight, Kind::kLeaf, "weight");
  weight.set_requires_grad(false);
  Tracer tracer(graph_);
  const Tensor squared = ops::square(weight);
  EXPECT_TRUE(squared.is_traced()) << "a declared leaf may change between runs";
  EXPECT_FALSE(squared.requires_grad());
  EXPECT_FALSE(node(0).inputs[0].differentiable);
  // One that nobody declared is a constant.
  EXPECT_FALSE(ops::square(Tensor::full({3}, 2.0)).is_traced());
}

TEST_F(TracerTest, NoGradAndDetachEndTheGradient) {
  const Tensor weight = parameter({3});
  Tracer tracer(graph_);
  const Tensor product = ops::mul(tracer.tensor(input_), weight);
  EXPECT_TRUE(product.requires_grad());
  const Tensor cut = product.detach();
  EXPECT_TRUE(cut.is_traced());
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_EQ(graph_.node_count(), 1u) << "detach() is no op";
  EXPECT_FALSE(ops::relu(cut).requires_grad());
  EXPECT_FALSE(node(1).inputs[0].differentiable);
  EXPECT_EQ(node(1).input(0), node(0).outputs[0]);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(ops::relu(product).requires_grad());
  }
  EXPECT_TRUE(ops::relu(product).requires_grad());
  // Results that are no floating-point numbers have none either.
  EXPECT_FALSE(ops::less(product, cut).requires_grad());
}

TEST_F(TracerTest, UntracedCallsRun) {
  Tracer tracer(graph_);
  {
    const Untraced untraced;
    EXPECT_EQ(ops::full({1}, 3.0).item(), 3.0);
  }
  EXPECT_EQ(graph_.node_count(), 0u);
  EXPECT_TRUE(ops::full({1}, 3.0).is_traced());
}

TEST_F(TracerTest, RecordsChangesInPlaceAndAllThatReadsBehindThem) {
  const Tensor buffer = Tensor::full({3}, 2.0);
  Tracer tracer(graph_);
  const Tensor before = ops::mul(tracer.tensor(input_), buffer);
  EXPECT_EQ(node(0).input(1)->kind, Kind::kConstant);
  ops::fill_(buffer, 1.0);
  EXPECT_EQ(node(0).input(1)->kind, Kind::kLeaf) << "what is changed was no constant";
  {
    const Untraced untraced;
    EXPECT_EQ(buffer.to_vector<float>(), (std::vector<float>{2, 2, 2})) << "a trace changes nothing";
  }
  EXPECT_THROW(buffer.to_vector<float>(), InvalidArgument) << "a run does";
  EXPECT_TRUE(ops::square(buffer).is_traced());
  EXPECT_EQ(ops(), (Names{"mul", "fill_", "square"}));
  graph_.verify();
}

TEST_F(TracerTest, ReadsViewsOfLeavesAsLeaves) {
  const Tensor buffer = Tensor::zeros({2, 3});
  graph_.memory(buffer, Kind::kLeaf, "buffer");
  const Tensor view = ops::reshape(buffer, {6});
  Tracer tracer(graph_);
  EXPECT_TRUE(ops::square(view).is_traced());
  EXPECT_EQ(node(0).input(0)->kind, Kind::kLeaf);
}

TEST_F(TracerTest, InsertsBeforeAPlace) {
  {
    Tracer tracer(graph_);
    ops::exp(tracer.tensor(input_));
  }
  Tracer tracer(graph_, graph_.last());
  const Tensor y = ops::relu(tracer.tensor(input_));
  ops::neg(y);
  EXPECT_EQ(ops(), (Names{"relu", "neg", "exp"}));
  tracer.set_place(nullptr);
  ops::abs(y);
  EXPECT_EQ(ops().back(), "abs");
}

TEST_F(TracerTest, CollectsHostEffects) {
  int count = 0;
  const Tensor x = Tensor::zeros({1});
  {
    Tracer tracer(graph_);
    host_effect(x, [&] { ++count; });
    EXPECT_EQ(count, 0);
    ASSERT_EQ(tracer.host_effects().size(), 1u);
    EXPECT_EQ(tracer.host_effects()[0].changed, x.storage());
    tracer.host_effects()[0].run();
    EXPECT_EQ(count, 1);
  }
  host_effect(x, [&] { ++count; });
  EXPECT_EQ(count, 2);
}

TEST_F(TracerTest, GivesTheThreadBack) {
  const Tensor x = Tensor::full({1}, 2.0);
  {
    Tracer outer(graph_);
    {
      Graph other;
      Tracer inner(other);
      EXPECT_TRUE(ops::full({1}, 1.0).is_traced());
      EXPECT_EQ(other.node_count(), 1u);
    }
    EXPECT_TRUE(ops::full({1}, 1.0).is_traced());
    EXPECT_EQ(graph_.node_count(), 1u);
  }
  EXPECT_EQ(ops::square(x).item(), 4.0);
}

// ---- what is refused

constexpr const char* kAskedForItsValue =
    "[tensor] the value of a traced tensor is known only when the job runs: {}, was asked for its value (by "
    "item(), data() or the like) while the job was traced; compute with ops, or do it outside of the job";

TEST_F(TracerTest, RefusesToTellValues) {
  Tracer tracer(graph_);
  tracer.set_scope("head");
  const Tensor sum = ops::sum(tracer.tensor(input_));
  const std::string of_sum =
      fmt::format(fmt::runtime(kAskedForItsValue), "the output of sum in head, float32 () on cpu");
  EXPECT_EQ(message_of([&] { sum.item(); }), of_sum);
  EXPECT_EQ(message_of([&] { sum.data<float>(); }), of_sum);
  EXPECT_EQ(message_of([&] { sum.to_vector<float>(); }), of_sum);
  EXPECT_EQ(message_of([&] { sum.version(); }), of_sum);
  EXPECT_EQ(message_of([&] { sum.raw_data(); }), of_sum);
  EXPECT_EQ(message_of([&] { tracer.tensor(input_).to_vector<float>(); }),
            fmt::format(fmt::runtime(kAskedForItsValue), "input 'x' of the job, float32 (2, 3) on cpu"));
}

TEST_F(TracerTest, RefusesToLeaveTheDevice) {
  Tracer tracer(graph_);
  const Tensor x = tracer.tensor(input_);
  EXPECT_EQ(
      message_of([&] { x.to(Device::cuda()); }),
      "[tensor] a job runs on one device: input 'x' of the job cannot go to cuda:0 while the job is traced");
  EXPECT_TRUE(x.to(Device::cpu()).is_same(x));
}

TEST_F(TracerTest, RefusesToChangeWhatIsComputed) {
  Tracer tracer(graph_);
  const Tensor y = ops::relu(tracer.tensor(input_));
  EXPECT_EQ(
      message_of([&] { ops::fill_(y, 1.0); }),
      "[trace] fill_ cannot change 'target' in place: it is the output of relu, which only exists while the "
      "job runs; use an op that gives a new tensor");
  EXPECT_EQ(
      message_of([&] { ops::fill_(tracer.tensor(input_), 1.0); }),
      "[trace] fill_ cannot change 'target' in place: it is input 'x' of the job, which only exists while "
      "the job runs; use an op that gives a new tensor");
  EXPECT_EQ(ops(), (Names{"relu"})) << "what was refused is not recorded";
}

TEST_F(TracerTest, RefusesToChangeWhatWasTakenForAConstant) {
  const Tensor mask = Tensor::full({3}, 2.0);
  Tracer tracer(graph_);
  const Tensor squared = ops::square(mask);
  EXPECT_EQ(
      message_of([&] { ops::fill_(mask, 1.0); }),
      "[trace] fill_ cannot change 'target' in place: the job took its earlier contents for a constant; "
      "register it as a buffer of the model");
  // Not even through another view of it.
  EXPECT_NE(message_of([&] { ops::fill_(mask.detach(), 1.0); }).find("took its earlier contents"),
            std::string::npos);
  EXPECT_EQ(mask.to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST_F(TracerTest, RefusesToChangeWhatTheTracedCodeMade) {
  const Tensor count = Tensor::zeros({3});
  const Tensor part = count.detach();
  {
    Tracer tracer(graph_);
    ops::fill_(count, 1.0);
    tracer.check_changed_are_held();
    ops::fill_(Tensor::over(part.storage(), 4, {Shape{2}, DType::kFloat32, Device::cpu()}), 2.0);
    tracer.check_changed_are_held();  // the storage is held, though not this view of it
  }
  Tracer tracer(graph_);
  {
    const Tensor sum = Tensor::zeros({2, 3});
    ops::copy_(sum, tracer.tensor(input_));
    tracer.check_changed_are_held();
  }
  EXPECT_EQ(
      message_of([&] { tracer.check_changed_are_held(); }),
      "[trace] copy_ changes 'target' in place, a tensor of float32 (2, 3) on cpu that the traced code "
      "made itself: a job makes it once, and every run would find what the last one left in it; use an op "
      "that gives a new tensor, or make it a buffer of the model");
}

TEST_F(TracerTest, RefusesToChangeWhatNeedsAGradient) {
  const Tensor weight = parameter({3});
  Tracer tracer(graph_);
  EXPECT_EQ(message_of([&] { ops::fill_(weight, 1.0); }),
            "[fill_] cannot change 'target' in place while its gradient is recorded; use sinter::NoGrad");
  const NoGrad no_grad;
  ops::fill_(weight, 1.0);
  EXPECT_EQ(ops(), (Names{"fill_"}));
}

TEST_F(TracerTest, RefusesEagerHistory) {
  const Tensor eager = ops::square(parameter({2, 3}));
  Tracer tracer(graph_);
  EXPECT_EQ(
      message_of([&] { ops::add(tracer.tensor(input_), eager); }),
      "[trace] a tensor of float32 (2, 3) on cpu that eager code computed with a gradient came into a job, "
      "which cannot differentiate through it; detach() it");
  EXPECT_NE(message_of([&] { ops::relu(eager); }).find("detach() it"), std::string::npos);
  ops::add(tracer.tensor(input_), eager.detach());
  EXPECT_EQ(graph_.node_count(), 1u);
}

TEST_F(TracerTest, RefusesBackwardInside) {
  const Tensor weight = parameter({3});
  Tracer tracer(graph_);
  const Tensor loss = ops::sum(ops::square(weight));
  EXPECT_EQ(message_of([&] { backward(loss); }),
            "[backward] the result is traced: a job differentiates its loss itself; for a gradient within "
            "the traced "
            "code call grad()");
}

TEST_F(TracerTest, MakesLeavesOfTheirOwnOfTracedTensors) {
  Tracer tracer(graph_);
  const Tensor x = tracer.tensor(input_), leaf = x.detach().set_requires_grad(true);
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_FALSE(x.requires_grad());
  EXPECT_NE(tracer.use_of(leaf).value, tracer.use_of(x).value) << "no gradient of the leaf may go on into x";
  EXPECT_TRUE(tracer.use_of(leaf).differentiable);
  EXPECT_EQ(message_of([&] { leaf.set_requires_grad(false); }),
            "[tensor] requires_grad cannot be taken back while a job is traced; detach() ends a gradient");
}

TEST_F(TracerTest, RefusesTensorsOfAnotherTrace) {
  Tensor of_ended, input_of_ended, of_living;
  {
    Graph ended;
    Tracer tracer(ended);
    input_of_ended = tracer.tensor(ended.add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "images"));
    of_ended = ops::relu(input_of_ended);
  }
  Graph living;
  {
    Tracer tracer(living);
    of_living = ops::exp(tracer.tensor(living.add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "y")));
  }
  {
    Tracer tracer(graph_);
    EXPECT_EQ(message_of([&] { ops::neg(of_ended); }),
              "[trace] a tensor of a trace that has ended, float32 (2, 3) on cpu, came into another trace");
    EXPECT_EQ(message_of([&] { ops::neg(input_of_ended); }),
              "[trace] input 'images' of the job, float32 (2, 3) on cpu, came into another trace");
    EXPECT_EQ(message_of([&] { ops::neg(of_living); }),
              "[trace] the output of exp, float32 (2, 3) on cpu, came into another trace");
    EXPECT_EQ(graph_.node_count(), 0u);
  }
  graph_.verify();
  // Nor can eager code take them.
  EXPECT_EQ(message_of([&] { ops::neg(of_ended); }),
            fmt::format(fmt::runtime(kAskedForItsValue),
                        "a tensor of a trace that has ended, float32 (2, 3) on cpu"));
}

}  // namespace
}  // namespace sinter
