// The norm of all gradients together, and the factor that clips it: declared in optimizer.h.
#include <sinter/nn/optim/optimizer.h>
#include <sinter/ops/grad_norm/grad_norm.h>
#include <sinter/ops/loss_scale/loss_scale.h>

namespace sinter::nn {

Tensor grad_norm(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const Parameter& parameter : parameters) {
    if (Tensor grad = parameter.grad(); grad.defined()) gradients.push_back(std::move(grad));
  }
  SINTER_CHECK(!gradients.empty(), "[grad_norm] none of the {} parameters has a gradient", parameters.size());
  return ops::grad_norm(gradients);
}

ClippedGradients clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm) {
  SINTER_CHECK(max_norm > 0.0, "[clip_grad_norm] expected a norm > 0 but got {}", max_norm);
  const Tensor norm = grad_norm(parameters);
  return {norm, ops::clip_factor(norm, max_norm)};
}

}  // namespace sinter::nn
