// cuDNN's batch normalisation fused with an addend and ReLU, in training, behind one small interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// A problem that cuDNN's fused kernels are made for: float16, NHWC, channels in fours, ReLU behind.
struct CudnnNormProblem {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  bool adds = false;
  double epsilon = 1e-5;
};

struct CudnnNormForward {
  const void *x, *addend;
  void* y;
  const float *weight, *bias;
  float *running_mean, *running_var;  ///< null: not kept
  double momentum;
  float *mean, *inv_std;
  void* reserve;  ///< what the gradient needs
  size_t reserve_bytes;
};

struct CudnnNormBackward {
  const void *x, *dy;
  void *dx, *daddend;
  const float *weight, *bias, *mean, *inv_std;
  float *dweight, *dbias;
  void* reserve;  ///< of the forward call
  size_t reserve_bytes;
};

/// Bytes of scratch of each direction, and of the reserve space that a forward call leaves for its gradient:
/// they depend on cuDNN's version.
struct CudnnNormBytes {
  size_t forward = 0, backward = 0, reserve = 0;
};

/// The version of the cuDNN that runs, as it gives it: 91900 for 9.19.0.
int64_t cudnn_library_version();

CudnnNormBytes cudnn_norm_bytes(const CudnnNormProblem& problem, const Stream& stream);

/// Queue the work; pointers are aligned to 16 bytes. Throw DeviceError, and InvalidArgument for a reserve
/// space that is too small.
void cudnn_norm_forward(const CudnnNormProblem& problem, const CudnnNormForward& tensors,
                        const Stream& stream, void* workspace, size_t workspace_bytes);
void cudnn_norm_backward(const CudnnNormProblem& problem, const CudnnNormBackward& tensors,
                         const Stream& stream, void* workspace, size_t workspace_bytes);

}  // namespace sinter::cuda
