#include <sinter/nn/loss/loss.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::nn {

Tensor CrossEntropy::operator()(const Tensor& logits, const Tensor& target) const {
  return ops::cross_entropy(
      logits, target,
      {.label_smoothing = label_smoothing, .ignore_index = ignore_index, .reduction = reduction});
}

Tensor MseLoss::operator()(const Tensor& prediction, const Tensor& target) const {
  SINTER_CHECK(prediction.shape() == target.shape(),
               "[mse_loss] expected two tensors of one shape but got {} and {}", prediction.shape(),
               target.shape());
  const Tensor squared = ops::square(prediction - target);
  switch (reduction) {
    case Reduction::kMean:
      return ops::mean(squared);
    case Reduction::kSum:
      return ops::sum(squared);
    case Reduction::kNone:
      break;
  }
  return squared;
}

}  // namespace sinter::nn
