// Inference by jobs: the values of eager code in evaluation mode, with the present weights.
#include <sinter/nn/job/infer_job.h>

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
  Sgd sgd(model.parameters(), {.momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    const Tensor x =
        floats(layout == Layout::kNCHW ? Shape{4, 3, 12, 12} : Shape{4, 12, 12, 3}, i).to(device);
    sgd.zero_grad();
    backward(CrossEntropy{}(model(x), labels(4, 6, i).to(device)));
    sgd.step(0.05);
  }
  return model;
}

TEST(InferJob, GivesTheBitsOfEagerCodeWithoutPasses) {
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
      ops::copy_(model.conv1.weight.tensor().detach(), floats(model.conv1.weight.shape(), 9).to(device));
      ops::fill_(model.bn1.running_var.tensor(), 0.25);
      expect_near(infer(x), eager_result(model, x).to_vector<float>(), 2e-5);
      EXPECT_EQ(infer.compilations(), 1);
    }
  }
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
