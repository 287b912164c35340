#include <cmath>

#include <sinter/core/op/node.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/ops/affine/affine.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {

double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm) {
  SINTER_CHECK(max_norm > 0.0, "[clip_grad_norm] expected a norm > 0 but got {}", max_norm);
  const NoGrad no_grad;
  // All sums are queued before the first is read, so that a device is waited for once.
  std::vector<Tensor> sums;
  for (const Parameter& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (grad.defined())
      sums.push_back(ops::sum(ops::square(ops::cast(grad, accumulate_dtype(grad.dtype())))));
  }
  double total = 0.0;
  for (const Tensor& sum : sums) total += sum.item();
  const double norm = std::sqrt(total);
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1.0) return norm;
  for (const Parameter& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (grad.defined()) parameter.tensor().set_grad(ops::affine(grad, factor, 0.0));
  }
  return norm;
}

}  // namespace sinter::nn
