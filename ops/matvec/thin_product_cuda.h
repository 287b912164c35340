// The kernels of thin products on a GPU.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/matvec/thin_product.h>

namespace sinter::ops {

/// What is added to every sum of one matrix (no batch), of the problem's dtype.
struct ThinBias {
  const void* data = nullptr;  ///< null: nothing
  int64_t vector = 0,
          element = 0;  ///< strides: from an output vector to the next, from an element to the next
};

/// Queues the product. Nothing is empty but, perhaps, the sums; a batch of several has batch * out() <= 2^30.
void multiply_thin(const Stream& stream, const ThinProblem& problem, const void* a, const void* x, void* y,
                   void* workspace, const ThinBias& bias = {});

}  // namespace sinter::ops
