// GradScaler: training steps in float16 whose small gradients survive and whose overflows do no harm.
#pragma once

#include <vector>

#include <sinter/nn/optim/optimizer.h>

namespace sinter {
class Communicator;
}

namespace sinter::nn {

struct GradScalerOptions {
  /// The factor on the loss, adapted from step to step. false: the loss stays as it is, which is all that
  /// bfloat16 and float32 need; steps whose gradients are not finite are still skipped and counted.
  bool enabled = true;
  double initial_scale = 65536.0;
  double growth = 2.0;   ///< multiplies the scale after `growth_interval` good steps in a row
  double backoff = 0.5;  ///< multiplies it after a skipped step
  int64_t growth_interval = 2000;
  double min_scale = 1.0;  ///< the scale never falls below; skipping there too is an error for check()
  int64_t max_consecutive_skips = 20;  ///< so many skipped steps in a row are an error for check()
};

struct ScaledStepOptions {
  /// Largest norm of all gradients together, as clip_grad_norm, but for groups whose `clip` is false; 0: no
  /// limit.
  double max_grad_norm = 0.0;
  /// Parameters that are each rank's own part of something (PartialFC), and the ranks: norms then are those
  /// of all ranks' parts together, so that all ranks clip and skip alike. Not owned; null: alone.
  std::vector<Parameter> sharded = {};
  const Communicator* communicator = nullptr;
};

/// Multiplies the loss, so that gradients do not vanish below float16's smallest number, and takes the factor
/// out again in the optimiser. If a gradient is infinite or NaN, the step changes nothing and the scale
/// falls. Scale and counts live on the device, where all of this is decided: no call but check(), state() and
/// those that read waits for it.
///
///   model.to_mixed(DType::kFloat16);
///   nn::GradScaler scaler(nn::GradScaler::options_for(DType::kFloat16));
///   ...
///   optimizer.zero_grad();
///   backward(scaler.scale(loss));
///   scaler.step(optimizer, lr, {.max_grad_norm = 5.0});
///   if (step % 100 == 0) scaler.check(optimizer);
///
/// Source: P. Micikevicius et al., "Mixed precision training", ICLR 2018.
class GradScaler {
 public:
  /// Throws InvalidArgument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});
  /// The defaults for gradients in `dtype`: a scale for float16, none for the others.
  static GradScalerOptions options_for(DType dtype) { return {.enabled = dtype == DType::kFloat16}; }

  const GradScalerOptions& options() const { return options_; }

  /// loss * scale, differentiable; `loss` itself if this scaler does not scale. The scale moves to the device
  /// of the first loss.
  Tensor scale(const Tensor& loss);

  /// Steps the optimiser with gradients divided by the scale and clipped, or skips the step, and adapts the
  /// scale. Throws InvalidArgument, and changes nothing, if no parameter has a gradient or the optimiser
  /// refuses the step.
  void step(Optimizer& optimizer, double learning_rate, const ScaledStepOptions& options = {});

  /// Throws Error if the last steps were skipped too often: `max_consecutive_skips` in a row, or two at
  /// `min_scale` (which does not count without a scale). The message names the first and the last of the
  /// optimiser's parameters whose present gradient is not finite, so call it before they are cleared. Waits
  /// for the device.
  void check(const Optimizer& optimizer) const;

  /// The present scale, the skipped steps since the last good one, and all skipped steps. Each waits for the
  /// device.
  double scale() const;
  int64_t consecutive_skips() const;
  int64_t skipped() const;

  /// For jobs: scale and counts, on `device`; and whether these are still the ones.
  std::vector<Tensor> tensors_on(Device device);
  bool owns(const std::vector<Tensor>& tensors) const;

  /// All that the next step depends on besides the options: "scale", "good_steps", "consecutive_skips" and
  /// "skipped", scalars.
  State state() const;
  /// The inverse. Throws InvalidArgument, and changes nothing, if names, dtypes or shapes differ or a value
  /// is out of range.
  void load_state(const State& state);

 private:
  void move_to(Device device);

  GradScalerOptions options_;
  Tensor scale_;   // float32 scalar
  Tensor counts_;  // int64 (3), as of ops::LossScaleState
};

}  // namespace sinter::nn
