// Versions of memory in a graph: who reads which, where it is there, and that verify() takes no other.
#include <gtest/gtest.h>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;
using Kind = GraphValue::Kind;

class GraphMemory : public testing::Test {
 protected:
  GraphMemory() { graph_.memory(buffer_, Kind::kLeaf, "mean"); }

  GraphNode& node(size_t i) const { return *graph_.nodes().at(i); }
  std::string error() const {
    return message_of<InternalError>([&] { graph_.verify(); });
  }

  Graph graph_;
  const Tensor buffer_ = Tensor::full({2, 3}, 2.0);
};

TEST_F(GraphMemory, EveryChangeGivesAnotherVersion) {
  {
    Tracer tracer(graph_);
    ops::square(buffer_);                    // 0
    ops::fill_(buffer_, 1.0);                // 1
    ops::square(buffer_);                    // 2
    ops::copy_(buffer_, ops::neg(buffer_));  // 3, 4
    ops::square(buffer_);                    // 5
  }
  graph_.verify();
  std::vector<int> versions;
  for (size_t i = 0; i < 6; ++i) versions.push_back(node(i).input(0)->version);
  EXPECT_EQ(versions, (std::vector<int>{0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(node(5).input(0)->name, "mean@2");
  EXPECT_NE(node(0).input(0), node(2).input(0));
  EXPECT_EQ(node(2).input(0), node(3).input(0));
  const GraphValue& first = *node(0).input(0);
  EXPECT_TRUE(graph_.holds(first, &node(0)));
  EXPECT_TRUE(graph_.holds(first, &node(1))) << "what changes it reads it";
  EXPECT_FALSE(graph_.holds(first, &node(2)));
  EXPECT_FALSE(graph_.holds(first, nullptr));
  EXPECT_FALSE(graph_.holds(*node(5).input(0), &node(2)));
  EXPECT_TRUE(graph_.holds(*node(5).input(0), nullptr));
  EXPECT_TRUE(graph_.holds(*node(0).outputs[0], nullptr)) << "a result stays what it is";
  EXPECT_EQ(graph_.change_of(first), &node(1));
  EXPECT_EQ(graph_.change_of(*node(2).input(0)), &node(4));
  EXPECT_EQ(graph_.change_of(*node(5).input(0)), nullptr);
}

TEST_F(GraphMemory, AViewIsOfTheVersionOfItsMemory) {
  {
    Tracer tracer(graph_);
    const Tensor view = ops::reshape(ops::slice(buffer_, 0, 0, 1), {3});
    ops::square(view);
    ops::fill_(ops::slice(buffer_, 0, 1, 2), 1.0);
    ops::square(view);  // eager code reads the change through it
    ops::square(view);
  }
  graph_.verify();
  std::vector<int> read;
  for (const GraphNode* each : graph_.nodes()) {
    if (each->op->name() == "square") read.push_back(each->input(0)->root().version);
  }
  EXPECT_EQ(read, (std::vector<int>{0, 1, 1}));
}

TEST_F(GraphMemory, VerifyRefusesAReadThatWasMovedBehindAChange) {
  {
    Tracer tracer(graph_);
    ops::square(buffer_);
    ops::fill_(buffer_, 1.0);
  }
  GraphNode& early = node(0);
  graph_.insert(nullptr, *early.op, early.inputs, early.attributes, "late");
  EXPECT_EQ(error(),
            "[graph] square in late reads leaf 'mean' of the job where 1 calls have changed it, "
            "expected 0");
}

TEST_F(GraphMemory, VerifyRefusesAReadThatWasMovedBeforeAChange) {
  {
    Tracer tracer(graph_);
    ops::fill_(buffer_, 1.0);
    ops::square(buffer_);
  }
  GraphNode& late = node(1);
  graph_.insert(&node(0), *late.op, late.inputs, late.attributes, "early");
  EXPECT_EQ(error(),
            "[graph] square in early reads leaf 'mean@1' of the job where 0 calls have changed it, "
            "expected 1");
}

TEST_F(GraphMemory, VerifyRefusesAReadThroughAViewThatTookThePlaceOfACopy) {
  {
    Tracer tracer(graph_);
    const Tensor kept = ops::copy(buffer_);
    ops::fill_(buffer_, 1.0);
    ops::square(ops::reshape(kept, {6}));
  }
  GraphNode& copy = node(0);
  graph_.set_input(node(2), 0, copy.inputs[0]);
  EXPECT_NE(error().find("square reads the output of reshape where 1 calls"), std::string::npos) << error();
}

TEST_F(GraphMemory, VerifyRefusesAChangeThatIsGoneAndOneThatWasMoved) {
  {
    Tracer tracer(graph_);
    ops::fill_(buffer_, 1.0);
    ops::square(buffer_);
    graph_.add_output(tracer.use_of(buffer_));
  }
  GraphNode& change = node(0);
  graph_.insert(nullptr, *change.op, change.inputs, change.attributes);
  graph_.erase(change);
  EXPECT_NE(error().find("square reads leaf 'mean@1'"), std::string::npos) << error();
  graph_.erase(node(0));
  graph_.erase(node(0));
  EXPECT_NE(error().find("an output of the graph reads leaf 'mean@1'"), std::string::npos) << error();
}

TEST_F(GraphMemory, ANormWithKnownStatisticsChangesNone) {
  const Tensor mean = Tensor::zeros({3}), variance = Tensor::full({3}, 1.0);
  graph_.memory(mean, Kind::kLeaf, "running_mean");
  graph_.memory(variance, Kind::kLeaf, "running_var");
  GraphValue& x = graph_.add_input({Shape{4, 3}, DType::kFloat32, Device::cpu()}, "x");
  {
    Tracer tracer(graph_);
    for (const bool training : {false, true, false})
      ops::batch_norm(tracer.tensor(x), {}, {}, mean, variance, {.training = training});
  }
  graph_.verify();
  EXPECT_FALSE(node(0).changes_any());
  EXPECT_TRUE(node(1).changes(3));
  EXPECT_FALSE(node(1).changes(0));
  EXPECT_EQ(node(1).input(3)->version, 0);
  EXPECT_EQ(node(2).input(3)->version, 1);
  EXPECT_EQ(graph_.erase_dead(), 2u);
}

TEST_F(GraphMemory, ACopyOfTheGraphHasTheSameVersions) {
  {
    Tracer tracer(graph_);
    ops::fill_(buffer_, 1.0);
    graph_.add_output(tracer.use_of(ops::square(buffer_)));
  }
  const auto twin = graph_.clone([](const Tensor& tensor) { return tensor.clone(); });
  twin->verify();
  EXPECT_EQ(twin->nodes()[1]->input(0)->version, 1);
  EXPECT_EQ(twin->to_string(), graph_.to_string());
}

// Rewrites read the very values that they are given; whether those are there is theirs to ask.
TEST_F(GraphMemory, ARewriteIsGivenNoOtherVersion) {
  {
    Tracer tracer(graph_);
    ops::square(buffer_);
    ops::fill_(buffer_, 1.0);
  }
  GraphValue& first = *node(0).input(0);
  {
    Tracer tracer(graph_, nullptr);
    ops::square(tracer.tensor(first));
  }
  EXPECT_EQ(node(2).input(0), &first);
  EXPECT_NE(error(), "no error");
}

}  // namespace
}  // namespace sinter
