// cuBLASLt's matrix products behind one function, in row-major terms.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/base/dtype.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// y = op(a) op(b) for each matrix of a batch, all row-major and dense: op(a) (m, k), stored as (k, m) if
/// transposed, op(b) (k, n), stored as (n, k) if transposed, y (m, n). No extent is zero.
struct MatmulProblem {
  DType dtype = DType::kFloat32;
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t a_stride = 0,
          b_stride = 0;  ///< elements from one matrix of the batch to the next; 0: the same matrix

  bool operator==(const MatmulProblem&) const = default;
};

/// What the search for algorithms may count on; more does not help.
inline constexpr size_t kMatmulWorkspace = size_t{32} << 20;

/// What a product does besides, in the same kernel if cuBLASLt can. One of them at most.
struct MatmulEpilogue {
  const void* bias = nullptr;  ///< (n), is added to each row of y
  void* row_sums = nullptr;    ///< (m), gets the sums along the rows of op(a)
};

/// Queues the product on the stream; returns whether cuBLASLt could do all of the epilogue, else nothing of
/// it is done. The algorithm is cuBLASLt's first choice for the problem, asked for once and then remembered,
/// up to settings::plan_limit() of them. 16-bit types sum in float32, float32 multiplies in TF32 if
/// settings::allow_tf32(). The stream's device is the current one. Throws DeviceError.
bool run_matmul(const Stream& stream, const MatmulProblem& problem, const void* a, const void* b, void* y,
                const MatmulEpilogue& epilogue, void* workspace, size_t workspace_bytes);

}  // namespace sinter::cuda
