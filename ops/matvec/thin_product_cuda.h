// The kernels of thin products on a GPU.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/matvec/thin_product.h>

namespace sinter::ops {

/// Queues the product. Nothing is empty but, perhaps, the sums; a batch of several has batch * out() <= 2^30.
void multiply_thin(const Stream& stream, const ThinProblem& problem, const void* a, const void* x, void* y,
                   void* workspace);

}  // namespace sinter::ops
