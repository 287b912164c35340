// Sinter's own convolution kernels on a GPU: one loop per output element, for every floating-point dtype and
// every geometry. They are right and not fast, and serve what cuDNN refuses.
#pragma once

#include <sinter/core/op/kernel.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops {

/// The three ops; `bias` may be null. The arrays of a pass's inputs are only read.
void run_conv2d_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, const void* x,
                            const void* weight, const void* bias, void* y);
void run_conv2d_grad_input_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype,
                                       const void* dy, const void* weight, void* dx);
void run_conv2d_grad_weight_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype,
                                        const void* x, const void* dy, void* dweight);

/// What conv2d_bias_act does to a convolution's result. bias (channels) and addend, as y, or as one image of
/// it for all, may be null, slope (channels) unless the activation is PReLU's.
struct BiasAct {
  const void *bias = nullptr, *addend = nullptr, *slope = nullptr;
  bool one_addend = false;
  fused::Activation activation = fused::Activation::kNone;
  DType slope_dtype = DType::kFloat32;  ///< y's, or compute_type of it
};

/// y <- activation(y + bias + addend) in place, rounded once.
void run_bias_act_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, void* y,
                       const BiasAct& what);

/// The sums over a convolution's result y of its elements and of their squares, (2, channels) in the compute
/// type: what conv2d_sums gives where cuDNN does not, always in the same order. `workspace` holds
/// channel_sums_workspace_cuda bytes, a multiple of 256.
void run_channel_sums_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, const void* y,
                           void* sums, void* workspace);
size_t channel_sums_workspace_cuda(const Conv2dGeometry& geometry, DType dtype, Device device);

}  // namespace sinter::ops
