// The cross-entropy loss of logits, fused with log-softmax.
#pragma once

#include <string_view>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// How the losses of the rows become the result.
enum class Reduction : uint8_t {
  kMean,  ///< their mean: a scalar
  kSum,   ///< their sum: a scalar
  kNone,  ///< they stay as they are: (N)
};

/// "mean", "sum" or "none".
std::string_view to_string(Reduction reduction);

struct CrossEntropyOptions {
  double label_smoothing = 0.0;  ///< in [0, 1]: this share of the target is spread evenly over all classes
  int64_t ignore_index = -100;   ///< rows with this index as target have no loss and no gradient
  Reduction reduction = Reduction::kMean;

  bool operator==(const CrossEntropyOptions&) const = default;
  template <class Self = CrossEntropyOptions>
  static constexpr auto fields() {
    return std::tuple(field("label_smoothing", &Self::label_smoothing),
                      field("ignore_index", &Self::ignore_index), field("reduction", &Self::reduction));
  }
};

struct CrossEntropyGradAttributes {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  bool target_gradient = false;  ///< also give the gradient of target probabilities

  bool operator==(const CrossEntropyGradAttributes&) const = default;
  template <class Self = CrossEntropyGradAttributes>
  static constexpr auto fields() {
    return std::tuple(field("label_smoothing", &Self::label_smoothing),
                      field("ignore_index", &Self::ignore_index), field("reduction", &Self::reduction),
                      field("target_gradient", &Self::target_gradient));
  }
};

/// logits (N, C) of a floating-point dtype. target: class indices (N), int64, or class probabilities (N, C)
/// of the dtype of the logits. With p the target distribution (one-hot for indices), e the smoothing and q =
/// (1 - e) * p + e / C, the loss of a row is -sum_c q_c * log_softmax(logits)_c. The result is a scalar, or
/// (N) under Reduction::kNone; float32 for 16-bit logits, else of the dtype of the logits.
///
/// As in PyTorch: the mean is over the rows that are not ignored, and over all N rows for probabilities; the
/// mean over no row (N = 0, or every target ignored) is NaN, the sum 0. A class with q_c = 0 has no part in
/// the loss, and no gradient goes to its p_c, even where its logit is -infinity, of which PyTorch makes NaN;
/// nor has a row that is ignored, or of whose loss the gradient is 0, whatever its logits are. Probabilities
/// are not checked to be a distribution, and ignore_index must be negative with them. Differentiable in the
/// logits and in target probabilities. Throws InvalidArgument for other shapes and dtypes, C = 0, or
/// smoothing outside [0, 1]; on the CPU also for an index outside [0, C) that is not ignore_index; on a GPU
/// the loss and the gradient of such a row are NaN. Label smoothing: C. Szegedy et al., "Rethinking the
/// Inception architecture for computer vision", CVPR 2016.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

struct CrossEntropyGrad {
  Tensor logits;
  Tensor target;  ///< undefined unless asked for
};

namespace vjp {
/// The gradient of cross_entropy. `log_sum` (N) is the op's second output, the logarithm of sum_c
/// exp(logits_c), and `dloss` has the shape and dtype of the loss. `target_gradient` needs target
/// probabilities.
CrossEntropyGrad cross_entropy(const Tensor& dloss, const Tensor& logits, const Tensor& target,
                               const Tensor& log_sum, const CrossEntropyOptions& options,
                               bool target_gradient = false);
}  // namespace vjp

}  // namespace sinter::ops
