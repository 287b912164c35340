// Compares gradients with finite differences; for your own ops too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct GradcheckOptions {
  double step = 1e-6;       ///< h of the central difference (f(x + h) - f(x - h)) / 2h
  double tolerance = 1e-6;  ///< |analytic - numeric| <= tolerance * (1 + |numeric|) for every element
  uint64_t seed = 0;        ///< of the random weights that turn the outputs into one number
};

struct GradcheckResult {
  bool passed = true;
  double largest_error = 0.0;  ///< of |analytic - numeric| / (1 + |numeric|)
  std::string message;         ///< where the first disagreement is; empty if passed

  explicit operator bool() const { return passed; }
};

/// Checks the gradient of `function` at `inputs`: float64 tensors on the CPU, of which those that require a
/// gradient are checked (and changed and restored in place while at it). `function` must be deterministic and
/// free of kinks within `step` of the inputs. Its outputs (floating-point ones) are weighted with random
/// numbers and summed, so that one backward call checks a whole vector-Jacobian product. Throws
/// InvalidArgument for inputs of another dtype, and where there is nothing to check: if no input requires a
/// gradient, or no output is a float64 tensor.
GradcheckResult gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

/// For leaves that `function` reads by itself, as a module does its parameters. They are changed and restored
/// in place, and so are their gradients:
///
///   model.to(DType::kFloat64);
///   const auto parameters = model.parameters();
///   gradcheck([&] { return std::vector<Tensor>{model(x)}; }, {parameters.begin(), parameters.end()});
///
/// The same holds for what `function` must be and what throws.
GradcheckResult gradcheck(const std::function<std::vector<Tensor>()>& function,
                          const std::vector<Tensor>& leaves, const GradcheckOptions& options = {});

/// Checks the second derivatives of `function`: gradcheck of its gradient, computed by grad() under
/// create_graph, with respect to the inputs that require one and to the gradients of the outputs, which are
/// drawn at random. The same holds for what `function` must be and what throws; also Unsupported, as grad()
/// does, for ops without a second derivative.
GradcheckResult gradgradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                              const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace sinter
