// Inference by jobs: the values of eager code in evaluation mode, with the present weights.
#include <set>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/matmul/matmul.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

Tensor eager_result(const ResNet& model, const Tensor& x) {
  const NoGrad no_grad;
  const EvalMode eval(model);
  return model(x);
}

/// A model whose running statistics are not the initial ones.
ResNet trained(Layout layout, Device device) {
  const ResNet model = resnet20({.classes = 6, .width = 8, .layout = layout});
  model.to(device);
  SGD sgd(model.parameters(), {.momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    const Tensor x =
        floats(layout == Layout::kNCHW ? Shape{4, 3, 12, 12} : Shape{4, 12, 12, 3}, i).to(device);
    sgd.zero_grad();
    backward(CrossEntropyLoss{}(model(x), labels(4, 6, i).to(device)));
    sgd.step(0.05);
  }
  return model;
}

TEST(InferJob, GivesTheBitsOfEagerCodeWithoutPasses) {
  const Deterministic deterministic;
  for (const Device device : devices_here()) {
    const ResNet model = trained(Layout::kNCHW, device);
    InferJob infer(model, {.passes = {.without = {"all"}}});
    for (int i = 0; i < 3; ++i) {
      const Tensor x = floats({5, 3, 12, 12}, 10 + i).to(device);
      EXPECT_TRUE(same_bits(infer(x), eager_result(model, x)));
    }
    EXPECT_TRUE(model.training()) << "the mode is left as it was";
    EXPECT_EQ(infer.compilations(), 1);
  }
}

TEST(InferJob, FoldsNormsIntoConvolutionsAndFollowsTheWeights) {
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      const ResNet model = trained(layout, device);
      InferJob infer(model);
      const Tensor x =
          floats(layout == Layout::kNCHW ? Shape{5, 3, 12, 12} : Shape{5, 12, 12, 3}, 3).to(device);
      expect_near(infer(x), eager_result(model, x).to_vector<float>(), 2e-5);
      for (const ProgramCall& call : infer.program().calls()) {
        EXPECT_EQ(call.node->op->name().find("batch_norm"), std::string::npos) << call.node->op->name();
      }
      EXPECT_GT(infer.program().stats().preparation_calls, 0u);
      // Weights and statistics that change are seen, through whatever op.
      ops::copy_(model.parameters()[0].tensor().detach(),
                 floats(model.parameters()[0].shape(), 9).to(device));
      ops::fill_(model.bn1.running_var.tensor(), 0.25);
      expect_near(infer(x), eager_result(model, x).to_vector<float>(), 2e-5);
      EXPECT_EQ(infer.compilations(), 1);
    }
  }
}

/// Calls of a program that depend on no input: they could have been made once.
std::vector<std::string> repeated_preparations(const Program& program) {
  std::set<const GraphNode*> dependent;
  std::vector<std::string> names;
  for (const ProgramCall& call : program.calls()) {
    const bool depends = std::ranges::any_of(call.node->inputs, [&](const GraphUse& use) {
      return use.value != nullptr && (use.value->root().kind == GraphValue::Kind::kInput ||
                                      dependent.contains(use.value->root().producer));
    });
    if (depends)
      dependent.insert(call.node);
    else
      names.push_back(call.node->op->name());
  }
  return names;
}

// A norm that stays, since no convolution stands before it, moves nothing in evaluation.
TEST(InferJob, FoldsLargeWeightsOnceBesideANormThatStays) {
  const BatchNorm2d norm(64);
  const Sequential model(norm, ReLU(), Conv2d(64, 64, 3, {.padding = 1, .bias = false}), BatchNorm2d(64));
  InferJob infer(model);
  const Tensor x = floats({1, 64, 6, 6}, 1);
  infer(x);
  EXPECT_EQ(repeated_preparations(infer.program()), std::vector<std::string>());
  EXPECT_GT(infer.program().stats().preparation_calls, 0u);
  const NoGrad no_grad;
  const EvalMode eval(model);
  const uint64_t version = norm.running_mean.tensor().storage()->version();
  infer(x);
  model(x);
  EXPECT_EQ(norm.running_mean.tensor().storage()->version(), version) << "nothing was changed";
  ops::fill_(norm.running_mean.tensor(), 0.3);
  ops::fill_(norm.running_var.tensor(), 0.5);
  expect_near(infer(x), model(x).to_vector<float>(), 2e-5);
}

TEST(InferJob, ScalesNoFiltersOfIResNetAtEachCall) {
  const IResNet model = iresnet18({.dimensions = 16, .image_size = 32});
  for (const auto& options : {InferJobOptions{}, {.precision = DType::kFloat16}, {.layout = Layout::kNHWC}}) {
    InferJob infer(model, options);
    infer(floats({1, 3, 32, 32}, 1));
    EXPECT_EQ(repeated_preparations(infer.program()), std::vector<std::string>());
  }
}

TEST(InferJob, ComputesIn16BitAndInAnotherLayout) {
  for (const Device device : devices_here()) {
    for (const DType precision : {DType::kFloat16, DType::kBFloat16}) {
      const ResNet model = trained(Layout::kNCHW, device);
      InferJob infer(model, {.precision = precision, .layout = Layout::kNHWC});
      const Tensor x = floats({5, 3, 12, 12}, 3).to(device);
      const double tolerance = precision == DType::kFloat16 ? 0.01 : 0.08;
      const auto check = [&] {
        const Tensor result = infer(x);
        EXPECT_EQ(result.dtype(), DType::kFloat32);
        expect_near(result, eager_result(model, x).to_vector<float>(), tolerance);
      };
      check();
      int casts = 0, permutations = 0;
      for (const ProgramCall& call : infer.program().calls()) {
        const GraphNode& node = *call.node;
        if (node.traits().role == Role::kConvolution) {
          EXPECT_EQ(node.outputs[0]->spec.dtype, precision);
          EXPECT_EQ(*node.attributes.find<Layout>("layout"), Layout::kNHWC);
        }
        casts += node.traits().role == Role::kCast ? 1 : 0;
        permutations += node.traits().role == Role::kPermutation ? 1 : 0;
      }
      EXPECT_EQ(casts, 2) << "the images and the result; weights only when they change";
      EXPECT_EQ(permutations, 1) << "the images";
      ops::copy_(model.parameters()[0].tensor().detach(),
                 floats(model.parameters()[0].shape(), 9).to(device));
      check();
      EXPECT_EQ(infer.compilations(), 1);
    }
  }
}

TEST(InferJob, TakesTheFloat32WeightsOfMixedModels) {
  const Deterministic deterministic;
  for (const Device device : devices_here()) {
    const ResNet model = trained(Layout::kNHWC, device);
    const Tensor x = floats({5, 12, 12, 3}, 3).to(device);
    const InferJobOptions options{.precision = DType::kFloat16};
    const Tensor expected = InferJob(model, options)(x);
    model.to_mixed(DType::kFloat16);
    EXPECT_TRUE(same_bits(InferJob(model, options)(x), expected));
    const Tensor narrow = ops::cast(x, DType::kFloat16);
    EXPECT_TRUE(same_bits(InferJob(model, options)(narrow), expected)) << "images may have 16 bits";
  }
}

TEST(InferJob, RefusesAPrecisionThatIsNone) {
  const ResNet model = trained(Layout::kNCHW, {});
  EXPECT_EQ(message_of([&] { InferJob(model, {.precision = DType::kFloat64}); }),
            "[infer_job] expected a precision of float16 or bfloat16 but got float64");
}

TEST(InferJob, LeavesTheGeneratorWhereItWasIfItsCodeThrows) {
  const Linear model(4, 4);
  InferJob infer(model, [&](const Tensor& x) { return ops::matmul(ops::dropout(model(x), 0.5), x); });
  manual_seed(5);
  const RandomKey before = default_generator().key();
  EXPECT_THROW(infer(floats({3, 4}, 1)), InvalidArgument);
  EXPECT_EQ(default_generator().key().offset, before.offset);
  EXPECT_NO_THROW(infer(floats({4, 4}, 1)));
  EXPECT_GT(default_generator().key().offset, before.offset) << "a run draws";
}

TEST(InferJob, KeepsItsResultsWhileTheyAreHeld) {
  const ResNet model = trained(Layout::kNCHW, {});
  InferJob infer(model);
  const Tensor a = floats({2, 3, 12, 12}, 1), b = floats({2, 3, 12, 12}, 2);
  const Tensor first = infer(a);
  const std::vector<float> kept = first.to_vector<float>();
  const Tensor second = infer(b);
  EXPECT_EQ(first.to_vector<float>(), kept);
  EXPECT_NE(second.to_vector<float>(), kept);
}

}  // namespace
}  // namespace sinter::nn
