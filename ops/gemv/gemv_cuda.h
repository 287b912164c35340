// Products of a matrix with a few vectors on a GPU.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/gemv/gemv_problem.h>

namespace sinter::ops {

/// What is added to every sum of one matrix (no batch), of the problem's dtype.
struct GemvBias {
  const void* data = nullptr;  ///< null: nothing
  int64_t vector = 0,
          element = 0;  ///< strides: from an output vector to the next, from an element to the next
};

/// Queues the product. Nothing is empty but, perhaps, the sums; a batch of several has batch * out() <= 2^30.
void run_gemv(const Stream& stream, const GemvProblem& problem, const void* a, const void* x, void* y,
              void* workspace, const GemvBias& bias = {});

}  // namespace sinter::ops
