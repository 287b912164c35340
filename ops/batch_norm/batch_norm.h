// Batch normalisation; with what can be fused behind it: ops/batch_norm_act.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct BatchNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance; with 0, equal values have no finite result
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  bool training = true;   ///< normalise with the batch's statistics; else with the running ones, as constants
  Layout layout = Layout::kNCHW;

  bool operator==(const BatchNormOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("epsilon", &BatchNormOptions::epsilon), field("momentum", &BatchNormOptions::momentum),
        field("training", &BatchNormOptions::training), field("layout", &BatchNormOptions::layout));
  }
};

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, per channel.
///
/// x: (N, C), (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes. weight, bias, running_mean,
/// running_var: (C), of x's dtype, or float32 if x is float16 or bfloat16. weight and bias may each be
/// undefined (1 and 0). In training, mean and (biased) variance are those of the batch over all axes but C,
/// and the running statistics, if given, move towards them in place, with the unbiased variance; an empty
/// batch leaves them as they are. In inference the running statistics are used and must be given. Statistics
/// are summed in a fixed order, by the corrected two-pass algorithm within blocks and by pairwise merging
/// between them (T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", The American
/// Statistician 1983), so that a large mean costs no digits. The op's second and third output are the mean
/// and 1 / sqrt(variance + epsilon) that were used, for the gradient. Throws InvalidArgument for shapes and
/// dtypes other than these, and in training for one value per channel. Source: S. Ioffe, C. Szegedy, "Batch
/// normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options = {});

struct BatchNormGradOptions {
  bool training = true;         ///< mean and inv_std depend on x; else they are constants
  bool parameter_grads = true;  ///< false: only dx is computed
  Layout layout = Layout::kNCHW;

  bool operator==(const BatchNormGradOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("training", &BatchNormGradOptions::training),
                      field("parameter_grads", &BatchNormGradOptions::parameter_grads),
                      field("layout", &BatchNormGradOptions::layout));
  }
};

struct BatchNormGrads {
  Tensor dx;              ///< as x
  Tensor dweight, dbias;  ///< (C), in the dtype of mean; undefined without parameter_grads
};

/// The gradient of batch_norm. `mean` and `inv_std` are its second and third output; weight may be undefined.
BatchNormGrads batch_norm_grad(const Tensor& x, const Tensor& dy, const Tensor& weight, const Tensor& mean,
                               const Tensor& inv_std, const BatchNormGradOptions& options = {});

}  // namespace sinter::ops
