// Winograd's kernel for the gradient of the filters; T is the tensors' type, C the type that computes.
#pragma once

#include <sinter/core/op/kernel.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops {

/// Defined for float and double.
template <class C>
size_t conv2d_winograd_weight_workspace(const Conv2dGeometry& geometry, int threads);
/// Defined for every floating-point element type.
template <class T>
void run_conv2d_winograd_weight(const KernelContext& context, const Conv2dGeometry& geometry);

}  // namespace sinter::ops
