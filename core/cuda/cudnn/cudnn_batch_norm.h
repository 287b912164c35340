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
  double epsilon = 1e-5, momentum = 0.1;
};

/// The tensors of a call of either direction; those of the other one are not looked at. Null running
/// statistics are not kept.
struct CudnnNormTensors {
  const void *x = nullptr, *addend = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr, *daddend = nullptr;
  const float *weight = nullptr, *bias = nullptr;
  float *mean = nullptr, *inv_std = nullptr, *running_mean = nullptr, *running_var = nullptr;
  float *dweight = nullptr, *dbias = nullptr;
  void* reserve = nullptr;  ///< what the forward call leaves for its gradient
  size_t reserve_bytes = 0;
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
void cudnn_norm_forward(const CudnnNormProblem& problem, const CudnnNormTensors& tensors,
                        const Stream& stream, void* workspace, size_t workspace_bytes);
void cudnn_norm_backward(const CudnnNormProblem& problem, const CudnnNormTensors& tensors,
                         const Stream& stream, void* workspace, size_t workspace_bytes);

}  // namespace sinter::cuda
