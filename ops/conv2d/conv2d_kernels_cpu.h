// The CPU's families of convolution kernels:
// winograd - 3x3 filters of stride 1 and many channels, with fewer products (winograd/);
// direct - vectorised over output channels, the filter's taps in the inner loops; every floating-point dtype;
// im2col - Eigen's matrix product on unfolded images; float32 and float64, for groups too thin to fill
// vectors;
// onednn - oneDNN's, where Sinter is built with it: bfloat16 on processors with AMX, float32 on those with
// AVX-512 (onednn/).
#pragma once

#include <memory>

#include <sinter/core/op/kernel.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops {

// Workspace and run take the same number of threads: KernelQuery::threads(), KernelContext::threads().

/// The three ops, in terms of one geometry.
enum class Conv2dPass { kForward, kGradInput, kGradWeight };

bool conv2d_direct_can_run(const Conv2dGeometry& geometry);
/// True where the direct kernels are the better choice, or the only one.
bool conv2d_direct_pays(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype);
size_t conv2d_direct_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads);
void run_conv2d_direct(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass);

/// 3x3 filters of stride 1, neither dilated nor in groups.
bool conv2d_winograd_can_run(const Conv2dGeometry& geometry);
/// Tiles of 2x2 pixels of y in the batch.
int64_t conv2d_winograd_tiles(const Conv2dGeometry& geometry);
/// True where channels fill vectors and tiles are many enough to repay transforming the filters.
bool conv2d_winograd_pays(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype);
size_t conv2d_winograd_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads);
void run_conv2d_winograd(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass);

/// False without the library, and where another kernel is the better choice.
bool conv2d_onednn_can_run(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype);
/// Null for what oneDNN cannot do.
std::shared_ptr<const Prepared> prepare_conv2d_onednn(const Conv2dGeometry& geometry, Conv2dPass pass,
                                                      DType dtype, bool has_bias, int threads);
/// Of a call that was prepared.
void run_conv2d_onednn(const KernelContext& context);

bool conv2d_im2col_can_run(DType dtype);
size_t conv2d_im2col_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads);
void run_conv2d_im2col(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass);

}  // namespace sinter::ops
