// Losses: values by hand, and the options that reach the op.
#include <sinter/autograd/backward.h>
#include <sinter/nn/loss/loss.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::message_of;

TEST(LossTest, CrossEntropyPassesItsOptions) {
  // Softmax of (0, ln 3) is (1/4, 3/4).
  const Tensor logits = Tensor::from_values<double>({0, std::log(3.0), std::log(3.0), 0}, {2, 2});
  const Tensor target = Tensor::from_values<int64_t>({0, 0}, {2});
  const double wrong = std::log(4.0), right = std::log(4.0 / 3.0);
  EXPECT_NEAR(CrossEntropy{}(logits, target).item(), (wrong + right) / 2, 1e-15);
  expect_near<double>(CrossEntropy{.reduction = Reduction::kNone}(logits, target), {wrong, right}, 1e-15);
  EXPECT_NEAR(CrossEntropy{.label_smoothing = 1.0}(logits, target).item(), (wrong + right) / 2, 1e-15);
  expect_near<double>((CrossEntropy{.label_smoothing = 0.2, .reduction = Reduction::kNone}(logits, target)),
                      {0.9 * wrong + 0.1 * right, 0.9 * right + 0.1 * wrong}, 1e-15);
  const Tensor ignoring = Tensor::from_values<int64_t>({7, 0}, {2});
  EXPECT_NEAR(CrossEntropy{.ignore_index = 7}(logits, ignoring).item(), right, 1e-15);
}

TEST(LossTest, MseAveragesSquares) {
  const Tensor prediction = Tensor::from_values<double>({1, 2, 4}, {3}).set_requires_grad(true);
  const Tensor target = Tensor::from_values<double>({1, 4, 1}, {3});
  const Tensor loss = MseLoss{}(prediction, target);
  EXPECT_NEAR(loss.item(), 13.0 / 3, 1e-15);
  backward(loss);
  expect_near<double>(prediction.grad(), {0, -4.0 / 3, 2}, 1e-15);
  EXPECT_NEAR(MseLoss{.reduction = Reduction::kSum}(prediction, target).item(), 13, 1e-15);
  expect_near<double>(MseLoss{.reduction = Reduction::kNone}(prediction, target), {0, 4, 9}, 1e-15);
  EXPECT_EQ(message_of([&] {
              MseLoss{}(prediction, Tensor::zeros({3, 1}, DType::kFloat64));
            }),
            "[mse_loss] expected two tensors of one shape but got (3,) and (3, 1)");
}

}  // namespace
}  // namespace sinter::nn
