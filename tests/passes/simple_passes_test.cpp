// Dead code and common subexpressions, and keys of random numbers that follow a base.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/random_base.h>

#include "common/error_message.h"

namespace sinter::passes {
namespace {

using test::message_of;
using Names = std::vector<std::string>;

/// A graph that is traced, then rewritten.
class SimplePassTest : public testing::Test {
 protected:
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  GraphValue& input_ = graph_->add_input({Shape{2, 3}, DType::kFloat32, Device::cpu()}, "x");
  PassContext context_;

  Names ops() const {
    Names names;
    for (const GraphNode* node : graph_->nodes()) names.push_back(node->op->name());
    return names;
  }
  Names after(void (*pass)(Graph&, PassContext&)) {
    pass(*graph_, context_);
    graph_->verify();
    return ops();
  }
  Tensor leaf(const Shape& shape, double value, bool requires_grad = false) {
    const Tensor tensor = Tensor::full(shape, value).set_requires_grad(requires_grad);
    graph_->memory(tensor, GraphValue::Kind::kLeaf, fmt::format("leaf{}", graph_->memories().size()));
    return tensor;
  }
};

// ---- dead code

TEST_F(SimplePassTest, DeadCodeGoesWithAllThatOnlyItReads) {
  const Tensor buffer = leaf({3}, 1.0);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    ops::neg(ops::exp(x));
    ops::slice(ops::reshape(x, {6}), 0, 0, 2);
    const Tensor source = ops::mean(x, {0});
    ops::copy_(buffer, source);
    ops::square(buffer);
    graph_->add_output(tracer.use_of(ops::relu(x)));
  }
  EXPECT_EQ(after(remove_dead_code), (Names{"mean", "copy_", "relu"}));
  EXPECT_EQ(context_.report.done, (Names{"5 calls"}));
  context_.report = {};
  after(remove_dead_code);
  EXPECT_TRUE(context_.report.done.empty());
}

TEST_F(SimplePassTest, DeadCodeKeepsWhatOneOutputOfManyNeeds) {
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    const Tensor y = ops::exp(x);
    ops::neg(y);
    graph_->add_output(tracer.use_of(ops::reshape(y, {6})));
  }
  EXPECT_EQ(after(remove_dead_code), (Names{"exp", "reshape"}));
}

// ---- common subexpressions

TEST_F(SimplePassTest, EqualCallsAreMadeOnce) {
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    const auto sum = [&] {
      const Tensor first = ops::relu(x), second = ops::exp(x);
      return ops::add(first, second);
    };
    const Tensor a = sum(), b = sum();
    graph_->add_output(tracer.use_of(ops::mul(a, b)));
    graph_->add_output(tracer.use_of(ops::relu(x)));
  }
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"relu", "exp", "add", "mul"}));
  EXPECT_EQ(context_.report.done, (Names{"4 calls"}));
  EXPECT_EQ(graph_->outputs()[1].value, graph_->nodes()[0]->outputs[0]);
}

TEST_F(SimplePassTest, OtherInputsAndAttributesAreOtherCalls) {
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    const Tensor y = ops::relu(x);
    for (const Tensor& result :
         {ops::sub(x, y), ops::sub(y, x), ops::affine(x, 1.0, 2.0), ops::affine(x, 2.0, 1.0),
          ops::sum(x, {0}), ops::sum(x, {0}, {.keep_dims = true})}) {
      graph_->add_output(tracer.use_of(result));
    }
  }
  EXPECT_EQ(after(merge_common_subexpressions).size(), 7u);
}

TEST_F(SimplePassTest, ZerosOfBothSignsAreOtherAttributes) {
  {
    Tracer tracer(*graph_);
    graph_->add_output(tracer.use_of(ops::reciprocal(ops::full({1}, 0.0))));
    graph_->add_output(tracer.use_of(ops::reciprocal(ops::full({1}, -0.0))));
    graph_->add_output(tracer.use_of(ops::reciprocal(ops::full({1}, -0.0))));
  }
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"full", "reciprocal", "full", "reciprocal"}));
  const Tensor x = Tensor::zeros({2, 3});
  const std::vector<Tensor> results = Program(std::move(graph_), Device::cpu()).run({&x, 1});
  EXPECT_EQ(results[0].item(), INFINITY);
  EXPECT_EQ(results[1].item(), -INFINITY);
}

TEST_F(SimplePassTest, ALeafThatWasChangedInBetweenIsAnother) {
  const Tensor buffer = leaf({3}, 2.0), other = leaf({3}, 3.0);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    const auto give = [&](const Tensor& result) { graph_->add_output(tracer.use_of(result)); };
    give(ops::add(x, buffer));
    give(ops::add(x, other));
    ops::fill_(buffer, 5.0);
    give(ops::add(x, buffer));
    give(ops::add(x, other));   // again
    give(ops::add(x, buffer));  // again
  }
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"add", "add", "fill_", "add"}));
  const Tensor x = Tensor::zeros({2, 3});
  const std::vector<Tensor> results = Program(std::move(graph_), Device::cpu()).run({&x, 1});
  std::vector<float> firsts;
  for (const Tensor& result : results) firsts.push_back(result.to_vector<float>()[0]);
  EXPECT_EQ(firsts, (std::vector<float>{2, 3, 5, 3, 5}));
}

TEST_F(SimplePassTest, AChangeThroughAViewCounts) {
  const Tensor buffer = leaf({3}, 2.0);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    graph_->add_output(tracer.use_of(ops::add(x, ops::reshape(buffer, {1, 3}))));
    ops::fill_(ops::slice(buffer, 0, 1, 2), 5.0);
    graph_->add_output(tracer.use_of(ops::add(x, ops::reshape(buffer, {1, 3}))));
  }
  after(merge_common_subexpressions);
  const Tensor x = Tensor::zeros({2, 3});
  const std::vector<Tensor> results = Program(std::move(graph_), Device::cpu()).run({&x, 1});
  EXPECT_EQ(results[0].to_vector<float>(), (std::vector<float>{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(results[1].to_vector<float>(), (std::vector<float>{2, 5, 2, 2, 5, 2}));
}

TEST_F(SimplePassTest, WhatChangesLeavesIsNeverMerged) {
  const Tensor buffer = leaf({2, 3}, 2.0);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    ops::copy_(buffer, x);
    ops::copy_(buffer, x);
  }
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"copy_", "copy_"}));
}

TEST_F(SimplePassTest, DifferentiableCallsAreKeptUntilTheGraphIsDifferentiated) {
  const Tensor weight = leaf({3}, 2.0, true);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    // Merged, the gradients of the two would be added before they pass through, not behind.
    graph_->add_output(tracer.use_of(ops::add(ops::mul(x, weight), ops::mul(x, weight))));
    const Tensor minuend = ops::exp(x);
    graph_->add_output(tracer.use_of(ops::sub(minuend, ops::exp(x))));
  }
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"mul", "mul", "add", "exp", "sub"}));
  context_.differentiated = true;
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"mul", "add", "exp", "sub"}));
}

TEST_F(SimplePassTest, InferenceMergesAll) {
  const Tensor weight = leaf({3}, 2.0, true);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    graph_->add_output(tracer.use_of(ops::add(ops::mul(x, weight), ops::mul(x, weight))));
  }
  context_.training = false;
  EXPECT_EQ(after(merge_common_subexpressions), (Names{"mul", "add"}));
}

// ---- keys of random numbers

TEST_F(SimplePassTest, KeysFollowTheirBase) {
  const RandomKey start{42, 1000};
  Generator generator(start);
  {
    Tracer tracer(*graph_);
    const Tensor x = tracer.tensor(input_);
    graph_->add_output(tracer.use_of(ops::dropout(x, 0.5, generator)));
    graph_->add_output(tracer.use_of(ops::dropout(x, 0.5, generator)));
  }
  const Tensor base = ops::update::random_key(start, Device::cpu());
  EXPECT_EQ(rebase_random_keys(*graph_, base, start, 4), 2u);
  graph_->verify();
  Program program(std::move(graph_), Device::cpu());
  const Tensor x = Tensor::full({2, 3}, 1.0);
  for (const RandomKey key : {start, RandomKey{42, 1004}, RandomKey{7, 3}}) {
    ops::copy_(base, ops::update::random_key(key, Device::cpu()));
    Generator eager(key);
    const std::vector<Tensor> results = program.run({&x, 1});
    for (const Tensor& result : results) {
      EXPECT_EQ(result.to_vector<float>(), ops::dropout(x, 0.5, eager).to_vector<float>());
    }
  }
}

TEST_F(SimplePassTest, KeysOfOtherGeneratorsAreRefused) {
  // The last is that of a generator which has the thread's seed, while the thread's draws nothing.
  for (Generator generator :
       {Generator(RandomKey{43, 1000}), Generator(RandomKey{42, 999}), Generator(RandomKey{42, 1000})}) {
    Graph graph;
    {
      Tracer tracer(graph);
      tracer.set_scope("drop1");
      ops::dropout(tracer.tensor(graph.add_input(input_.spec, "x")), 0.5, generator);
    }
    const RandomKey start{42, 1000};
    EXPECT_EQ(message_of([&] {
                rebase_random_keys(graph, ops::update::random_key(start, Device::cpu()), start, 0);
              }),
              "[trace] drop1 draws random numbers from a generator of its own, which a job cannot advance "
              "from step "
              "to step; use the thread's (manual_seed)");
  }
}

TEST_F(SimplePassTest, AGraphWithoutKeysGetsNoBase) {
  const RandomKey start{42, 1000};
  EXPECT_EQ(rebase_random_keys(*graph_, ops::update::random_key(start, Device::cpu()), start, 0), 0u);
  EXPECT_TRUE(graph_->memories().empty());
}

}  // namespace
}  // namespace sinter::passes
