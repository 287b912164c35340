// Matrix products with a side so thin that they are products of a matrix with a few vectors, and whether
// those kernels are the faster ones. Host code without devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/matvec/batch.h>
#include <sinter/ops/matvec/thin_product.h>

namespace sinter::ops {

/// The run of products op(a) (m, k) times op(b) (k, n) as products of the larger operand with the rows or
/// columns of the other; `swapped` if the larger one is b.
struct ThinMatmul {
  ThinProblem problem;
  bool swapped = false;
};

/// Nothing if both sides are too thick, or if what is thin lies in a way that the kernels do not read.
inline std::optional<ThinMatmul> as_thin(const MatmulOptions& options, DType dtype, int64_t m, int64_t n,
                                         int64_t k, const BatchRun& run) {
  if (std::min(m, n) > kMostThinVectors) return std::nullopt;
  ThinMatmul thin{.problem = {.dtype = dtype, .batch = run.count}, .swapped = m < n};
  ThinProblem& p = thin.problem;
  const int64_t a_stride = run.a_step * m * k, b_stride = run.b_step * k * n;
  // y = a b has the rows of a against the columns of b; y^T = b^T a^T those of b^T against those of a^T.
  const int64_t outs = std::max(m, n), vectors = std::min(m, n);
  const bool matrix_transposed = thin.swapped ? !options.transpose_b : options.transpose_a;
  const bool vectors_are_rows = thin.swapped ? !options.transpose_a : options.transpose_b;
  p.transpose = matrix_transposed;
  p.rows = matrix_transposed ? k : outs;
  p.columns = matrix_transposed ? outs : k;
  p.vectors = static_cast<int>(vectors);
  p.a_stride = thin.swapped ? b_stride : a_stride;
  p.x_stride = thin.swapped ? a_stride : b_stride;
  p.x_vector = vectors_are_rows ? k : 1;
  p.x_element = vectors_are_rows ? 1 : vectors;
  p.y_vector = thin.swapped ? outs : 1;
  p.y_element = thin.swapped ? 1 : vectors;
  if (!can_multiply_thin(p)) return std::nullopt;
  return thin;
}

/// Whether cuBLASLt takes a staged product of the 16-bit types: of more vectors than one instruction's eight,
/// with outs and terms enough that its tiles fill a GPU, and where all rows are whole units of 16 bytes,
/// which is how it reads them too. The thin kernels' second instruction and copies cost more there. Where
/// only the outs of a vector are no whole units, it is slower than the kernels for large matrices, and than
/// all if their number is odd.
inline bool has_full_tiles(const ThinProblem& problem) {
  constexpr int kOneInstruction = 8;
  constexpr int64_t kManyOuts = 512, kTileOuts = 128, kManyTerms = 64;
  const int64_t unit = unit_elements(problem);
  const int64_t vector_row = problem.x_element == 1 ? problem.in() : problem.vectors;
  if (problem.y_element == 1 && problem.out() % unit != 0) {
    const bool is_large = takes_row_products(problem) || takes_row_groups(problem);
    if (is_large || problem.out() % 2 != 0) return false;
  }
  return is_half(problem.dtype) && problem.vectors > kOneInstruction && problem.in() > kManyTerms &&
         problem.out() >= kTileOuts && problem.batch * problem.out() >= kManyOuts &&
         problem.columns % unit == 0 && vector_row % unit == 0;
}

/// Whether cuBLASLt takes a staged product in float64: of outs enough to fill a GPU without sharing their
/// terms, and of rows that are whole units of 16 bytes. It was 1.2 to 1.5 times as fast there on an H200.
inline bool has_full_double_tiles(const ThinProblem& problem) {
  constexpr int kFewVectors = 2;
  constexpr int64_t kManyOuts = 4096, kTileOuts = 128, kSomeTerms = 32;
  return problem.dtype == DType::kFloat64 && problem.vectors > kFewVectors && problem.in() >= kSomeTerms &&
         problem.out() >= kTileOuts && problem.batch * problem.out() >= kManyOuts &&
         problem.columns % unit_elements(problem) == 0;
}

/// Whether the thin kernels are faster than cuBLAS; docs/kernels/matvec.md has the figures. Staged products
/// are, except those with many vectors of matrices in float64 that are large both ways, which cuBLAS
/// multiplies on tensor cores too. With small matrices several vectors pay, as measured on an H200, where
/// they are few, lie densely and leave memory the bottleneck: in the 16-bit types cuBLAS has tensor cores,
/// which it feeds badly where rows are few.
inline bool is_thin_faster(const ThinProblem& problem) {
  constexpr int kManyVectors = 9;
  constexpr int64_t kLargeSide = 1024;
  if (problem.vectors == 1) return true;
  if (is_staged(problem) && (has_full_tiles(problem) || has_full_double_tiles(problem))) return false;
  if (is_staged(problem)) {
    return problem.dtype != DType::kFloat64 || problem.vectors < kManyVectors || problem.batch > 1 ||
           std::min(problem.rows, problem.columns) < kLargeSide;
  }
  if (problem.transpose || problem.x_element != 1) return false;
  const int64_t rows = problem.batch * problem.rows;
  if (problem.dtype != DType::kFloat32) {
    if (problem.vectors == 2 && problem.columns <= 32) return true;
    const bool few_rows = is_half(problem.dtype) && rows <= 1024 && problem.columns % 8 == 0;
    return few_rows && (problem.vectors == 2 || (problem.vectors <= 4 && problem.columns <= 512));
  }
  return problem.columns % 4 == 0 &&
         (problem.vectors == 2 || (problem.vectors <= 4 && (problem.columns <= 100 || rows <= 4096)));
}

}  // namespace sinter::ops
