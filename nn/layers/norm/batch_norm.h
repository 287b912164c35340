// Batch normalisation.
#pragma once

#include <optional>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;  ///< >= 0
  /// Weight of the new batch in the running statistics; none: they are the mean over all batches so far, as
  /// with PyTorch's momentum None.
  std::optional<double> momentum = 0.1;
  Layout layout = Layout::kNCHW;  ///< of rank-4 inputs
};

/// Normalises each channel over the batch (training) or by the running statistics (evaluation), then scales
/// and shifts. Members as in PyTorch, each of shape (C) and float32 even in a half-precision model: `weight`
/// (starts at 1), `bias` (0), buffers `running_mean` (0), `running_var` (1, unbiased), and
/// `num_batches_tracked`, an int64 scalar on the CPU. The batch is that of this process, or
/// of all ranks under a SyncBatchNormScope (nn/parallel). Source: S. Ioffe, C. Szegedy, "Batch
/// normalization", ICML 2015.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) const override;

  Parameter weight;
  Parameter bias;
  Buffer running_mean;
  Buffer running_var;
  Buffer num_batches_tracked;

 protected:
  BatchNorm(const char* tag, int rank, int64_t channels, const BatchNormOptions& options);

 private:
  const char* tag_;
  int rank_;
  BatchNormOptions options_;
};

/// Of (N, C).
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t channels, const BatchNormOptions& options = {});
};

/// Of (N, C, H, W), or (N, H, W, C) under kNHWC.
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNormOptions& options = {});
};

}  // namespace sinter::nn
