// The factor by which an optimiser multiplies gradients: clipping, and the scale of mixed precision with its
// adaptation. All of it stays on the device.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct LossScaleOptions {
  double max_norm = 0.0;  ///< of the gradients without their scale; 0: no limit
  double growth = 2.0;    ///< multiplies the scale after `growth_interval` good steps in a row
  double backoff = 0.5;   ///< multiplies it after a bad one
  int64_t growth_interval = 2000;
  double min_scale = 1.0;  ///< a bad step does not take the scale below

  bool operator==(const LossScaleOptions&) const = default;
  template <class Self = LossScaleOptions>
  static constexpr auto fields() {
    return std::tuple(field("max_norm", &Self::max_norm), field("growth", &Self::growth),
                      field("backoff", &Self::backoff), field("growth_interval", &Self::growth_interval),
                      field("min_scale", &Self::min_scale));
  }
};

/// What the scale is and what led to it, both changed in place by loss_scale.
struct LossScaleState {
  Tensor scale;   ///< float32 scalar
  Tensor counts;  ///< int64 (3): good steps since the scale changed, bad steps in a row, bad steps ever
};

namespace update {
/// The factor on gradients of Euclidean norm `norm` (a float64 scalar, of gradients that carry the scale): a
/// float32 scalar, min(1, max_norm / (norm / scale + 1e-6)) / scale, the first part only if there is a limit;
/// NaN, which tells an update op to change nothing, if the norm is not finite. Then the scale grows or backs
/// off: a norm that is not finite marks a bad step. Growth beyond the largest float32 is left out. Source: P.
/// Micikevicius et al., "Mixed precision training", ICLR 2018; R. Pascanu, T. Mikolov, Y. Bengio, "On the
/// difficulty of training recurrent neural networks", ICML 2013. Throws InvalidArgument for other shapes and
/// dtypes, or options out of range.
Tensor loss_scale(const Tensor& norm, const LossScaleState& state, const LossScaleOptions& options);

/// The same for gradients without a scale: clipping only.
Tensor clip_factor(const Tensor& norm, double max_norm);
}  // namespace update

}  // namespace sinter::ops
