// Forward hooks of modules, in eager code and in jobs, and jobs that meet hooks of tensors.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
#include <sinter/autograd/hook.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/ops.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::floats;
using testing::message_of;

/// x1, x2, with values that tell who was called.
struct Pair : ModuleOf<std::pair<Tensor, Tensor>(const Tensor&)> {
  std::pair<Tensor, Tensor> forward(const Tensor& x) const override { return {x, x * 2.0}; }
};

TEST(ForwardHook, ReplacesTheOutputWhileItLives) {
  const Sequential model{ReLU(), ReLU()};
  const Tensor x = Tensor::from_values<float>({-1, 2}, {2});
  {
    const Hook hook = model[0].register_forward_hook([](const auto&, Tensor y) { return y + 10.0; });
    EXPECT_EQ(model(x).to_vector<float>(), (std::vector<float>{10, 12}));
  }
  EXPECT_EQ(model(x).to_vector<float>(), (std::vector<float>{0, 2}));
}

TEST(ForwardHook, SeveralRunInTheirOrder) {
  const ReLU relu;
  const Hook first = relu.register_forward_hook([](const auto&, const Tensor& y) { return y + 1.0; });
  Hook second = relu.register_forward_hook([](const auto&, const Tensor& y) { return y * 10.0; });
  EXPECT_EQ(relu(Tensor::ones({1})).item(), 20);
  second.remove();
  EXPECT_EQ(relu(Tensor::ones({1})).item(), 2);
}

TEST(ForwardHook, TakesResultsOfAnySignature) {
  const Pair pair;
  const Hook hook = pair.register_forward_hook(
      [](const auto&, std::pair<Tensor, Tensor> y) { return std::pair(y.second, y.first); });
  EXPECT_EQ(pair(Tensor::ones({1})).first.item(), 2);
}

TEST(ForwardHook, BelongsToAllHandlesButNotToAClone) {
  const Linear linear(2, 2);
  const Linear handle = linear, copy = clone(linear);
  int calls = 0;
  const Hook hook = linear.register_forward_hook([&](const auto&, Tensor y) { return ++calls, y; });
  const AnyModule any(linear);
  handle(Tensor::ones({2}));
  any(Tensor::ones({2}));
  EXPECT_EQ(calls, 2);
  copy(Tensor::ones({2}));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(message_of([&] { (void)linear.register_forward_hook(nullptr); }),
            "[register_forward_hook] expected a function but got none");
}

TEST(ForwardHook, GivesActivationsAndTheirGradients) {  // as Grad-CAM wants them
  const Sequential model(Linear(3, 4), ReLU(), Linear(4, 2));
  Tensor features;
  const Hook hook = model[1].register_forward_hook([&](const auto&, Tensor y) { return features = y; });
  const Tensor score = model(floats({1, 3}, 1))[0][1];
  const Tensor slope = grad(score, features);
  EXPECT_EQ(slope.to_vector<float>(), model.parameters()[2].tensor()[1].to_vector<float>());
}

TEST(ForwardHook, IsTracedAndFollowedByATrainJob) {
  const Sequential model(Linear(3, 4), Tanh(), Linear(4, 1));
  const Sequential eager = clone(model);
  SGD sgd(model.parameters()), eager_sgd(eager.parameters());
  TrainJob job(model, sgd, [&](std::span<const Tensor> x) {
    return std::vector<Tensor>{ops::square(model(x[0])).mean()};
  });
  const Tensor x = floats({5, 3}, 1);
  const auto step = [&] {
    eager_sgd.zero_grad();
    const Tensor loss = ops::square(eager(x)).mean();
    backward(loss);
    eager_sgd.step(0.1);
    EXPECT_NEAR(job.step({x}, 0.1).item(), loss.item(), 1e-6);
  };
  const auto scale = [](const auto&, const Tensor& y) { return y * 3.0; };
  step();
  {
    const Hook hook = model[1].register_forward_hook(scale), other = eager[1].register_forward_hook(scale);
    step();
    step();
    EXPECT_EQ(job.compilations(), 2);
  }
  step();
  EXPECT_EQ(job.compilations(), 2) << "the first graph fits again";
}

TEST(ForwardHook, IsFollowedByAnInferJob) {
  const Sequential model{ReLU()};
  InferJob job(model);
  EXPECT_EQ(job(Tensor::ones({1})).item(), 1);
  const Hook hook = model[0].register_forward_hook([](const auto&, const Tensor& y) { return y * 3.0; });
  EXPECT_EQ(job(Tensor::ones({1})).item(), 3);
}

TEST(TensorHook, OfAParameterIsRefusedByATrainJob) {
  const Linear model(3, 1);
  SGD sgd(model.parameters());
  TrainJob job(model, sgd, [&](std::span<const Tensor> x) {
    return std::vector<Tensor>{ops::square(model(x[0])).mean()};
  });
  const Tensor x = floats({5, 3}, 1);
  job.step({x}, 0.1);
  {
    const Hook hook = model.bias.register_hook([](const Tensor& gradient) { return gradient * 2.0; });
    EXPECT_EQ(message_of([&] { job.step({x}, 0.1); }),
              "[train_job] 'bias' has a hook (register_hook), which no job calls: let the traced code scale "
              "or clip "
              "what reaches it, or train without a job");
  }
  job.step({x}, 0.1);
}

}  // namespace
}  // namespace sinter::nn
