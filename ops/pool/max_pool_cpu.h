// Max pooling on the CPU.
#pragma once

#include <cstdint>

#include <sinter/core/op/kernel.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {

size_t max_pool_workspace(const KernelQuery& query);
void run_max_pool(const KernelContext& context);
size_t max_pool_grad_workspace(const KernelQuery& query);
void run_max_pool_grad(const KernelContext& context);

/// The gradient of max pooling, not rounded to T: of images laid out as `layout` says. An index that names no
/// pixel of its window moves nothing. `threads`: KernelContext::threads(). For float, double, float16 and
/// bfloat16.
template <class T>
void max_pool_slopes(const PoolGeometry& geometry, Layout layout, const T* dy, const uint8_t* indices,
                     compute_type<T>* dx, int threads);

}  // namespace sinter::ops
