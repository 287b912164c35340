// Products of a matrix with a few vectors on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sinter/core/op/kernel.h>
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

/// The products that a call of matvec, matmul or linear consists of: each begins at elements of inputs 0 and
/// 1 and of the output.
struct PreparedGemv final : Prepared {
  struct Product {
    GemvProblem problem;
    bool swapped = false;  ///< the matrix is input 1
    int64_t first = 0, second = 0, out = 0;
  };
  std::vector<Product> products;

  size_t workspace_bytes() const override {
    size_t most = 0;
    for (const Product& product : products) most = std::max(most, gemv_workspace(product.problem));
    return most;
  }
  void run(const KernelContext& context, const GemvBias& bias = {}) const;
};

/// For Kernel::microseconds of calls that PreparedGemv is for: the time in which memory brings their
/// matrices.
double gemv_microseconds(const KernelQuery& query, const Prepared* prepared);

}  // namespace sinter::ops
