#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/grad.h>
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

/// The elements of all outputs that have weights, times those. Copies: outputs may be views of the inputs.
std::vector<double> weighted(const std::vector<Tensor>& outputs, const std::vector<Tensor>& weights) {
  std::vector<double> values;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!weights[i].defined()) continue;
    const double* y = outputs[i].data<double>();
    const double* w = weights[i].data<double>();
    for (int64_t j = 0; j < weights[i].numel(); ++j) values.push_back(w[j] * y[j]);
  }
  return values;
}

/// The sum of a - b. Subtracting first keeps the rounding of elements out that do not depend on the input,
/// and that of the large sums.
double summed_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] - b[i];
  return sum;
}

using Evaluate = std::function<std::vector<Tensor>()>;

/// Throws InvalidArgument unless there is something to check among `tensors`, and all of it can be checked.
void check_tensors(const std::vector<Tensor>& tensors, const char* what) {
  for (const Tensor& tensor : tensors) {
    SINTER_CHECK(!tensor.requires_grad() || (tensor.dtype() == DType::kFloat64 && tensor.device().is_cpu()),
                 "[gradcheck] expected float64 {} on the cpu but got {}", what, tensor.spec());
  }
  SINTER_CHECK(std::ranges::any_of(tensors, &Tensor::requires_grad),
               "[gradcheck] none of the {} {} requires a gradient, so there is nothing to check: "
               "set_requires_grad(true) on those that should",
               tensors.size(), what);
}

/// Compares the gradients that backward leaves in `leaves`, which have none yet, with finite differences.
/// `no_gradient` ends the message about a leaf that none reached although the outputs depend on it.
/// `evaluate` is called for gradients first, and then for values alone, with calls not recorded unless it
/// `records` what it needs.
GradcheckResult compare(const Evaluate& evaluate, const std::vector<Tensor>& leaves,
                        const GradcheckOptions& options, const char* no_gradient, bool records = false) {
  const std::vector<Tensor> outputs = evaluate();
  const std::vector<Tensor> weights = random_weights(outputs, options.seed);
  SINTER_CHECK(std::ranges::any_of(weights, &Tensor::defined),
               "[gradcheck] none of the {} outputs is a float64 tensor, so there is nothing to check",
               outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (weights[i].defined() && outputs[i].requires_grad()) {
      backward(outputs[i], {.gradient = weights[i], .retain_graph = true});
    }
  }
  const auto evaluate_at = [&](double& place, double value) {
    const double saved = std::exchange(place, value);
    std::optional<NoGrad> no_grad;
    if (!records) no_grad.emplace();
    std::vector<double> values = weighted(evaluate(), weights);
    place = saved;
    return values;
  };
  GradcheckResult result;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    const Tensor grad = leaves[i].grad();
    double* x = leaves[i].data<double>();
    for (int64_t j = 0; j < leaves[i].numel(); ++j) {
      const double numeric =
          summed_difference(evaluate_at(x[j], x[j] + options.step), evaluate_at(x[j], x[j] - options.step)) /
          (2.0 * options.step);
      const double analytic = grad.defined() ? grad.data<double>()[j] : 0.0;
      const double error = std::abs(analytic - numeric) / (1.0 + std::abs(numeric));
      result.largest_error = std::max(result.largest_error, error);
      if (!(error <= options.tolerance) && result.passed) {
        result.passed = false;
        result.message =
            grad.defined()
                ? fmt::format(
                      "input {} element {}: the gradient is {:.9g} but finite differences give {:.9g}", i, j,
                      analytic, numeric)
                : fmt::format(
                      "input {} element {}: no gradient reached it but finite differences give "
                      "{:.9g}: {}",
                      i, j, numeric, no_gradient);
      }
    }
  }
  return result;
}

/// The gradients of tensors, put back at the end.
class KeptGradients {
 public:
  explicit KeptGradients(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      if (!tensor.requires_grad()) continue;
      kept_.emplace_back(tensor, tensor.grad());
      tensor.set_grad({});
    }
  }
  ~KeptGradients() {
    for (const auto& [tensor, grad] : kept_) tensor.set_grad(grad);
  }
  KeptGradients(const KeptGradients&) = delete;
  KeptGradients& operator=(const KeptGradients&) = delete;

 private:
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

}  // namespace

GradcheckResult gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  check_tensors(inputs, "inputs");
  // Fresh leaves: the caller's gradients stay as they are, and two inputs may be the same tensor.
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.requires_grad() ? input.detach().set_requires_grad(true) : input);
  }
  return compare([&] { return function(leaves); }, leaves, options,
                 "the function must compute with the tensors that it is given; for tensors that it reads by "
                 "itself, such as a module's parameters, give gradcheck a function without arguments");
}

GradcheckResult gradcheck(const std::function<std::vector<Tensor>()>& function,
                          const std::vector<Tensor>& leaves, const GradcheckOptions& options) {
  check_tensors(leaves, "leaves");
  for (const Tensor& leaf : leaves) {
    SINTER_CHECK(!leaf.requires_grad() || leaf.is_leaf(),
                 "[gradcheck] expected leaves but got the result of an op");
  }
  const KeptGradients kept(leaves);
  return compare(function, leaves, options,
                 "the function does not compute with this tensor but with another in the same memory");
}

GradcheckResult gradgradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                              const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  check_tensors(inputs, "inputs");
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.requires_grad() ? input.detach().set_requires_grad(true) : input);
  }
  const size_t count = leaves.size();
  std::vector<size_t> differentiable;  // outputs
  const std::vector<Tensor> outputs = function(leaves);
  const std::vector<Tensor> gradients = random_weights(outputs, options.seed + 1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    differentiable.push_back(i);
    leaves.push_back(gradients[i].set_requires_grad(true));
  }
  SINTER_CHECK(!differentiable.empty(),
               "[gradgradcheck] none of the {} outputs is a float64 tensor with a gradient, so there is "
               "nothing to check",
               outputs.size());
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < count; ++i) {
    if (leaves[i].requires_grad()) wanted.push_back(leaves[i]);
  }
  const auto first_derivatives = [&] {
    const std::vector<Tensor> given =
        function({leaves.begin(), leaves.begin() + static_cast<int64_t>(count)});
    std::vector<Tensor> results;
    for (const size_t i : differentiable) results.push_back(given[i]);
    return grad(results, wanted,
                {.gradients = {leaves.begin() + static_cast<int64_t>(count), leaves.end()},
                 .create_graph = true,
                 .allow_unused = true});
  };
  return compare(first_derivatives, leaves, options,
                 "the gradient depends on it, but what computes it is not recorded", true);
}

}  // namespace sinter
