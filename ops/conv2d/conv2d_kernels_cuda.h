// Sinter's own convolution kernels on a GPU. Direct ones: one loop per output element, for every
// floating-point dtype and every geometry. They are right and not fast, and serve what cuDNN refuses. And one
// for few results.
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

// ---- few results: split/conv2d_split_kernel.h

/// How a convolution is cut: into tiles of 64 pixels by `columns` (64 or 32) filters, of which each is the
/// work of `blocks` blocks (1, 2, 4 or 8).
struct Conv2dSplit {
  int64_t tiles = 0;
  int blocks = 1;
};
/// For a GPU of so many processors: blocks until these have work, as long as each has two steps of 64 taps
/// and channels.
Conv2dSplit conv2d_split_of(const Conv2dGeometry& geometry, int columns, int processors);

/// Channels-last, 16 bits, without groups, channels in eights, a GPU with clusters. Arrays are aligned to 16
/// bytes.
bool conv2d_split_can_run(const Conv2dGeometry& geometry, DType dtype, Device device);
void run_conv2d_split_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, int columns,
                           const void* x, const void* weight, const BiasAct& what, void* y);

}  // namespace sinter::ops
