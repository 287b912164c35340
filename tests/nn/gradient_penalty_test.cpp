// A critic with a gradient penalty, through every kind of layer that has a second derivative, against
// PyTorch's values (tests/reference/generate_gradient_penalty.py), in eager code and in a job.
#include <algorithm>
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/ops.h>

#include "nn/device_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_parameter;
using sinter::testing::reference_values;
using sinter::testing::Uniform;

constexpr double kTolerance = 1e-11;

Sequential make_critic(Device device) {
  Sequential critic(Conv2d(2, 4, 3, {.stride = 2, .padding = 1}), LeakyReLU(0.2),
                    Conv2d(4, 6, 3, {.padding = 1, .bias = false}), BatchNorm2d(6), SiLU(), MaxPool2d(2),
                    Flatten(), Linear(24, 5), Softmax(-1), Linear(5, 1));
  critic.to(DType::kFloat64);
  for (const Parameter& parameter : critic.parameters()) {
    const Tensor value = reference_parameter("critic." + parameter.name(), parameter.shape());
    const NoGrad no_grad;
    ops::copy_(parameter.tensor(), value.to(DType::kFloat64));
  }
  critic.to(device);
  return critic;
}

Tensor input(const std::string& name, const Shape& shape, Device device, Uniform range = {}) {
  return reference_values("critic." + name, shape, range).to(device, DType::kFloat64);
}

/// The loss, the penalty in it, and the slope that it penalises.
std::vector<Tensor> loss_of(const Sequential& critic, const Tensor& real, const Tensor& fake,
                            const Tensor& share) {
  const Tensor mixed = (share * real + (1.0 - share) * fake).set_requires_grad(true);
  const Tensor slope = grad(critic(mixed).sum(), mixed, {.create_graph = true});
  const Tensor penalty = ops::square(slope.flatten(1).norm(1) - 1.0).mean();
  return {critic(fake).mean() - critic(real).mean() + 10.0 * penalty, penalty, slope};
}

class GradientPenalty : public testing::OnEachDevice {
 protected:
  void SetUp() override {
    OnEachDevice::SetUp();
    if (IsSkipped()) return;
    critic_.emplace(make_critic(device()));
    data_ = {input("real", {4, 2, 8, 8}, device()), input("fake", {4, 2, 8, 8}, device()),
             input("share", {4, 1, 1, 1}, device(), {.scale = 0.5, .base = 0.5})};
  }
  void expect_results(const std::vector<Tensor>& results) const {
    const std::string names[] = {"loss", "penalty", "slope"};
    for (size_t i = 0; i < 3; ++i)
      reference_.expect_near(names[i], results[i].detach().to(Device::cpu()), kTolerance);
  }

  const Reference reference_{"gradient_penalty"};
  std::optional<Sequential> critic_;
  std::vector<Tensor> data_;
};

TEST_P(GradientPenalty, MatchesPyTorchInEagerCode) {
  const std::vector<Tensor> results = loss_of(*critic_, data_[0], data_[1], data_[2]);
  backward(results[0]);
  expect_results(results);
  for (const Parameter& parameter : critic_->parameters()) {
    reference_.expect_near("grad." + parameter.name(), parameter.grad().to(Device::cpu()), kTolerance);
  }
  EXPECT_EQ(reference_.used(), reference_.size());
}

TEST_P(GradientPenalty, MatchesPyTorchInAJob) {
  SGD sgd(critic_->parameters());
  const auto function = [&](std::span<const Tensor> inputs) {
    return loss_of(*critic_, inputs[0], inputs[1], inputs[2]);
  };
  // With all passes, in another layout, and without any pass.
  for (const TrainJobOptions& options : {TrainJobOptions{}, TrainJobOptions{.layout = Layout::kNHWC},
                                         TrainJobOptions{.passes = {.without = {"all"}}}}) {
    std::vector<Tensor> before;
    for (const Parameter& parameter : critic_->parameters())
      before.push_back(ops::copy(parameter.tensor()).detach());
    TrainJob job(*critic_, sgd, function, options);
    const Tensor loss = job.step(data_, 1.0);
    expect_results({loss, job.outputs()[0], job.outputs()[1]});
    const NoGrad no_grad;
    for (size_t i = 0; i < before.size(); ++i) {
      const Parameter parameter = critic_->parameters()[i];
      // What the update leaves of the gradient's digits: it was subtracted from numbers of about 1.
      reference_.expect_near("grad." + parameter.name(), (before[i] - parameter.tensor()).to(Device::cpu()),
                             1e-9);
      ops::copy_(parameter.tensor(), before[i]);
    }
  }
}

TEST_P(GradientPenalty, ComputesIn16BitsInAJob) {
  critic_->to(DType::kFloat32);
  SGD sgd(critic_->parameters());
  const auto function = [&](std::span<const Tensor> inputs) {
    return loss_of(*critic_, inputs[0], inputs[1], inputs[2]);
  };
  TrainJob job(*critic_, sgd, function, {.precision = DType::kBFloat16, .layout = Layout::kNHWC});
  std::vector<Tensor> inputs;
  for (const Tensor& tensor : data_) inputs.push_back(tensor.to(DType::kFloat32));
  const double loss = job.step(inputs, 1e-3).item(), expected = reference_["loss"].item();
  // A dozen roundings to 8 bits on the way to the slope, whose square counts ten times.
  EXPECT_NEAR(loss, expected, 10 * 12 * 0x1p-9 * std::max(1.0, std::abs(expected)));
  EXPECT_NE(static_cast<float>(loss), static_cast<float>(expected));
}

INSTANTIATE_TEST_SUITE_P(Devices, GradientPenalty, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

}  // namespace
}  // namespace sinter::nn
