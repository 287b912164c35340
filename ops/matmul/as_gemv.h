// Matrix products with a side so thin that they are products of a matrix with a few vectors. Host code
// without devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv_problem.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::ops {

/// The run of products op(a) (m, k) times op(b) (k, n) as products of the larger operand with the rows or
/// columns of the other; `swapped` if the larger one is b.
struct GemvMatmul {
  GemvProblem problem;
  bool swapped = false;
};

/// Nothing if both sides are too thick, or if what is thin lies in a way that the kernels do not read.
inline std::optional<GemvMatmul> as_gemv(const MatmulOptions& options, DType dtype, int64_t m, int64_t n,
                                         int64_t k, const BatchRun& run) {
  if (std::min(m, n) > kMostGemvVectors) return std::nullopt;
  GemvMatmul product{.problem = {.dtype = dtype, .batch = run.count}, .swapped = m < n};
  GemvProblem& p = product.problem;
  const int64_t a_stride = run.a_step * m * k, b_stride = run.b_step * k * n;
  // y = a b has the rows of a against the columns of b; y^T = b^T a^T those of b^T against those of a^T.
  const int64_t outs = std::max(m, n), vectors = std::min(m, n);
  const bool matrix_transposed = product.swapped ? !options.transpose_b : options.transpose_a;
  const bool vectors_are_rows = product.swapped ? !options.transpose_a : options.transpose_b;
  p.transpose = matrix_transposed;
  p.rows = matrix_transposed ? k : outs;
  p.columns = matrix_transposed ? outs : k;
  p.vectors = static_cast<int>(vectors);
  p.a_stride = product.swapped ? b_stride : a_stride;
  p.x_stride = product.swapped ? a_stride : b_stride;
  p.x_vector = vectors_are_rows ? k : 1;
  p.x_element = vectors_are_rows ? 1 : vectors;
  p.y_vector = product.swapped ? outs : 1;
  p.y_element = product.swapped ? 1 : vectors;
  if (!can_gemv(p)) return std::nullopt;
  return product;
}

}  // namespace sinter::ops
