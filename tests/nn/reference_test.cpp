// Layers, losses, optimisers and whole models against values that PyTorch computed
// (tests/reference/generate.py).
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nn/reference_support.h>

#include <sinter/autograd/backward.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_leaf;
using sinter::testing::reference_parameter;
using sinter::testing::reference_values;

// One op in float32: sums of at most a few hundred products, each rounded to 6e-8, so 1e-5 leaves room for
// any order of summation and shows any error in a formula.
constexpr double kOpTolerance = 1e-5;
// Five updates are some twenty roundings of each element.
constexpr double kOptimizerTolerance = 2e-6;

class OperatorReference : public ::testing::Test {
 protected:
  Reference reference_{"operators"};
};

TEST_F(OperatorReference, BatchNorm) {
  for (const bool training : {true, false}) {
    for (const Shape& shape : {Shape{4, 3, 5, 7}, Shape{16, 3}}) {
      const std::string name = fmt::format("batch_norm.{}.{}d", training ? "train" : "eval", shape.rank());
      const Tensor x = reference_leaf(name + ".x", shape), weight = reference_leaf(name + ".weight", {3}),
                   bias = reference_leaf(name + ".bias", {3});
      const Tensor mean = reference_values(name + ".running_mean", {3});
      const Tensor var = reference_values(name + ".running_var", {3}, {.scale = 0.25, .base = 1.0});
      const Tensor y = ops::batch_norm(x, weight, bias, mean, var, {.training = training});
      reference_.expect_near(name + ".y", y, kOpTolerance);
      reference_.expect_near(name + ".running_mean", mean, kOpTolerance);
      reference_.expect_near(name + ".running_var", var, kOpTolerance);
      backward(y, {.gradient = reference_values(name + ".dy", shape)});
      reference_.expect_near(name + ".dx", x.grad(), kOpTolerance);
      reference_.expect_near(name + ".dweight", weight.grad(), kOpTolerance);
      reference_.expect_near(name + ".dbias", bias.grad(), kOpTolerance);
    }
  }
}

TEST_F(OperatorReference, CrossEntropyLoss) {
  const Tensor labels = Tensor::from_values<int64_t>(std::vector<int64_t>{3, 0, -100, 6, 2, 2}, {6});
  const std::vector<std::pair<std::string, CrossEntropyLoss>> cases = {
      {"mean", {}},
      {"sum", {.reduction = Reduction::kSum}},
      {"none", {.reduction = Reduction::kNone}},
      {"smooth", {.label_smoothing = 0.1}}};
  for (const auto& [kind, cross_entropy] : cases) {
    const std::string name = "cross_entropy." + kind;
    const Tensor logits = reference_leaf(name + ".logits", {6, 7}, {.scale = 4.0});
    const Tensor loss = cross_entropy(logits, labels);
    reference_.expect_near(name + ".loss", loss, kOpTolerance);
    backward(loss, {.gradient = Tensor::full(loss.shape(), 1.0)});
    reference_.expect_near(name + ".dlogits", logits.grad(), kOpTolerance);
  }
  const std::string name = "cross_entropy.probabilities";
  const Tensor logits = reference_leaf(name + ".logits", {6, 7}, {.scale = 4.0});
  const Tensor target = reference_leaf(name + ".target", {6, 7}, {.scale = 0.25, .base = 1.0});
  const Tensor loss = CrossEntropyLoss{.label_smoothing = 0.1}(logits, target);
  reference_.expect_near(name + ".loss", loss, kOpTolerance);
  backward(loss);
  reference_.expect_near(name + ".dlogits", logits.grad(), kOpTolerance);
  reference_.expect_near(name + ".dtarget", target.grad(), kOpTolerance);
}

TEST_F(OperatorReference, Conv2d) {
  struct Case {
    std::string name;
    Shape x, weight;
    ops::Conv2dOptions options;
  };
  const std::vector<Case> cases = {
      {"3x3", {2, 4, 9, 8}, {6, 4, 3, 3}, {.padding = {1, 1}}},
      {"stride", {2, 4, 9, 8}, {6, 4, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {"7x7", {1, 3, 17, 16}, {4, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
      {"1x1", {2, 5, 4, 6}, {3, 5, 1, 1}, {.stride = {2, 2}}},
      {"dilation", {2, 2, 9, 10}, {3, 2, 3, 2}, {.stride = {2, 1}, .padding = {2, 0}, .dilation = {2, 3}}},
      {"groups", {2, 6, 5, 5}, {4, 3, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {"depthwise", {2, 4, 6, 5}, {4, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 4}}};
  for (const Case& c : cases) {
    const std::string name = "conv2d." + c.name;
    const Tensor x = reference_leaf(name + ".x", c.x), weight = reference_leaf(name + ".weight", c.weight),
                 bias = reference_leaf(name + ".bias", {c.weight[0]});
    const Tensor y = ops::conv2d(x, weight, bias, c.options);
    reference_.expect_near(name + ".y", y, kOpTolerance);
    backward(y, {.gradient = reference_values(name + ".dy", y.shape())});
    reference_.expect_near(name + ".dx", x.grad(), kOpTolerance);
    reference_.expect_near(name + ".dweight", weight.grad(), kOpTolerance);
    reference_.expect_near(name + ".dbias", bias.grad(), kOpTolerance);
  }
}

/// Five steps of one optimiser, as in optimizer_cases() of generate.py.
template <class O, class Options>
void check_optimizer(const Reference& reference, const std::string& name, const Options& options) {
  const Parameter weight("weight", reference_values(name + ".weight", {3, 5}));
  const Parameter bias("bias", reference_values(name + ".bias", {7}));
  for (const Parameter& parameter : {weight, bias}) parameter.tensor().set_requires_grad(true);
  O optimizer({weight, bias}, options);
  for (int step = 1; step <= 5; ++step) {
    weight.tensor().set_grad(reference_values(fmt::format("{}.weight.grad{}", name, step), {3, 5}));
    bias.tensor().set_grad(reference_values(fmt::format("{}.bias.grad{}", name, step), {7}));
    optimizer.step(0.1 / step);
    reference.expect_near(fmt::format("{}.weight.step{}", name, step), weight, kOptimizerTolerance);
    reference.expect_near(fmt::format("{}.bias.step{}", name, step), bias, kOptimizerTolerance);
  }
}

TEST(OptimizerReference, SgdAdamAndAdamW) {
  const Reference reference("optimizers");
  check_optimizer<SGD>(reference, "sgd.plain", SGDOptions{});
  check_optimizer<SGD>(reference, "sgd.momentum", SGDOptions{.momentum = 0.9, .weight_decay = 5e-4});
  check_optimizer<SGD>(reference, "sgd.dampening",
                       SGDOptions{.momentum = 0.9, .dampening = 0.3, .weight_decay = 1e-2});
  check_optimizer<SGD>(reference, "sgd.nesterov",
                       SGDOptions{.momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
  check_optimizer<AdamW>(reference, "adamw.default", AdamWOptions{});
  check_optimizer<AdamW>(reference, "adamw.options",
                         AdamWOptions{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1});
  check_optimizer<Adam>(reference, "adam.decay", AdamOptions{.weight_decay = 0.1});
  EXPECT_EQ(reference.used(), reference.size());
}

/// The state of a model by the formula; num_batches_tracked is 3.
State reference_state(const Module& model, const std::string& prefix) {
  State state = model.state();
  for (auto& [name, tensor] : state) {
    tensor = name.ends_with("num_batches_tracked") ? Tensor::scalar<int64_t>(3)
                                                   : reference_parameter(prefix + name, tensor.shape());
  }
  return state;
}

/// A training step of the whole resnet18: logits, loss, every gradient and every running statistic.
void check_resnet18(DType dtype, double tolerance) {
  const Reference reference("resnet18_" + std::string(to_string(dtype)));
  const ResNet model = resnet18();
  model.load_state(reference_state(model, "resnet18."));
  model.to(dtype);
  const Tensor images =
      ops::cast(reference_values("resnet18.images.1", {4, 3, 48, 48}, {.scale = 2.0}), dtype);
  const Tensor logits = model(images);
  reference.expect_near("logits", logits, tolerance);
  const Tensor labels = Tensor::from_values<int64_t>(std::vector<int64_t>{1, 500, 999, 0}, {4});
  const Tensor loss = CrossEntropyLoss{.label_smoothing = 0.1}(logits, labels);
  reference.expect_near("loss", loss, tolerance);
  backward(loss);
  for (const auto& [name, parameter] : model.named_parameters()) {
    reference.expect_digest("grad." + name, "resnet18." + name, parameter.grad(), tolerance);
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    if (buffer.rank() == 1) reference.expect_digest("buffer." + name, "resnet18." + name, buffer, tolerance);
  }
  EXPECT_EQ(reference.used(), reference.size());
}

// PyTorch's own float32 values differ from its float64 values by up to 4e-5 of the same scales.
TEST(ModelReference, ResNet18InFloat32) {
  check_resnet18(DType::kFloat32, 1e-4);
}
TEST(ModelReference, ResNet18InFloat64) {
  check_resnet18(DType::kFloat64, 1e-11);
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PyTorchFile, IsReadByNameAndWrittenByteForByte) {
  const std::string path = (test::test_data() / "reference/torchvision_resnet18_width4.safetensors").string();
  const Safetensors file = read_safetensors(path);
  const ResNet model = resnet18({.classes = 10, .width = 4});
  model.load_state(file.tensors);
  for (const auto& [name, expected] : reference_state(model, "narrow.")) {
    EXPECT_EQ(sinter::testing::to_doubles(file.tensors.at(name)), sinter::testing::to_doubles(expected))
        << name;
  }
  model.eval();
  const Tensor logits = model(reference_values("narrow.images", {2, 3, 40, 40}, {.scale = 2.0}));
  Reference("torchvision_resnet18_width4_logits").expect_near("logits", logits, 1e-5);

  // tests/reference/check_roundtrip.py reads this file with PyTorch.
  const char* kept = std::getenv("SINTER_ROUNDTRIP_FILE");
  const std::string copy = kept != nullptr ? kept : ::testing::TempDir() + "sinter_roundtrip.safetensors";
  write_safetensors(copy, model.state(), file.metadata);
  EXPECT_EQ(read_bytes(copy), read_bytes(path));
}

}  // namespace
}  // namespace sinter::nn
