#include <algorithm>
#include <cmath>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/runtime/random.h>

namespace sinter {
namespace {

/// Random weights in [0.5, 1.5) with random signs: none is near zero, so no output escapes the check.
std::vector<Tensor> random_weights(const std::vector<Tensor>& outputs, uint64_t seed) {
  Generator generator(seed);
  std::vector<Tensor> weights;
  for (const Tensor& output : outputs) {
    Tensor weight;
    if (output.defined() && output.dtype() == DType::kFloat64) {
      weight = Tensor::empty(output.shape(), DType::kFloat64);
      double* values = weight.data<double>();
      for (int64_t i = 0; i < weight.numel(); ++i) {
        const double sign = generator.uniform() < 0.5f ? -1.0 : 1.0;
        values[i] = sign * (0.5 + static_cast<double>(generator.uniform()));
      }
    }
    weights.push_back(weight);
  }
  return weights;
}

double weighted_sum(const std::vector<Tensor>& outputs, const std::vector<Tensor>& weights) {
  double sum = 0.0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!weights[i].defined()) continue;
    const double* y = outputs[i].data<double>();
    const double* w = weights[i].data<double>();
    for (int64_t j = 0; j < weights[i].numel(); ++j) sum += w[j] * y[j];
  }
  return sum;
}

}  // namespace

GradcheckResult gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  // Fresh leaves: the caller's gradients stay as they are, and two inputs may be the same tensor.
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.requires_grad() ? input.detach().set_requires_grad(true) : input);
    SINTER_CHECK(!input.requires_grad() || (input.dtype() == DType::kFloat64 && input.device().is_cpu()),
                 "[gradcheck] expected float64 inputs on the cpu but got {}", input.spec());
  }
  const std::vector<Tensor> outputs = function(leaves);
  const std::vector<Tensor> weights = random_weights(outputs, options.seed);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (weights[i].defined() && outputs[i].requires_grad()) {
      backward(outputs[i], {.gradient = weights[i], .retain_graph = true});
    }
  }

  const auto evaluate = [&] {
    const NoGrad no_grad;
    return weighted_sum(function(leaves), weights);
  };
  GradcheckResult result;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    const Tensor grad = leaves[i].grad();
    double* x = leaves[i].data<double>();
    for (int64_t j = 0; j < leaves[i].numel(); ++j) {
      const double saved = x[j];
      x[j] = saved + options.step;
      const double above = evaluate();
      x[j] = saved - options.step;
      const double below = evaluate();
      x[j] = saved;
      const double numeric = (above - below) / (2.0 * options.step);
      const double analytic = grad.defined() ? grad.data<double>()[j] : 0.0;
      const double error = std::abs(analytic - numeric) / (1.0 + std::abs(numeric));
      result.largest_error = std::max(result.largest_error, error);
      if (!(error <= options.tolerance) && result.passed) {
        result.passed = false;
        result.message =
            fmt::format("input {} element {}: the gradient is {:.9g} but finite differences give {:.9g}", i,
                        j, analytic, numeric);
      }
    }
  }
  return result;
}

}  // namespace sinter
