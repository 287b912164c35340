// Products of a matrix with one or a few vectors, for matvec and matmul: what they are, and what they need on
// a GPU. Host code without devices.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <sinter/core/base/dtype.h>
#include <sinter/ops/matvec/thin_plan.h>

namespace sinter::ops {

/// The most vectors that one pass over the matrix takes.
inline constexpr int kMostThinVectors = 8;

/// For each of `batch` dense row-major matrices a (rows, columns), and for each vector v of its own
/// `vectors`: y_v[i] = sum over j of a[i, j] x_v[j], or with `transpose` y_v[j] = sum over i of a[i, j]
/// x_v[i]. Strides are in elements; those of a and x from one matrix to the next may be 0.
struct ThinProblem {
  DType dtype = DType::kFloat32;
  bool transpose = false;
  int64_t batch = 1, rows = 0, columns = 0;
  int vectors = 1;
  int64_t a_stride = 0, x_stride = 0;
  int64_t x_vector = 0, x_element = 1;  ///< from a vector to the next, from an element to the next
  int64_t y_vector = 0, y_element = 1;

  /// Elements of an input vector, and of an output vector.
  int64_t in() const { return transpose ? rows : columns; }
  int64_t out() const { return transpose ? columns : rows; }
};

/// Whether the kernels understand how the vectors lie: sums along rows read them as dense vectors, or as the
/// rows of a dense (in, vectors) matrix.
inline bool can_multiply_thin(const ThinProblem& problem) {
  if (problem.vectors < 1 || problem.vectors > kMostThinVectors) return false;
  if (problem.transpose || problem.vectors == 1) return problem.transpose || problem.x_element == 1;
  if (problem.x_element == 1) return problem.x_vector == problem.columns;
  return problem.x_vector == 1 && problem.x_element == problem.vectors &&
         std::has_single_bit(static_cast<unsigned>(problem.vectors));
}

/// Scratch for the problem wherever its operands lie.
inline size_t thin_workspace(const ThinProblem& problem) {
  const int64_t sums = problem.batch * problem.out() * problem.vectors;
  const int widest = 16 / static_cast<int>(size_of(problem.dtype));
  int64_t most = 1;
  for (int pack = 1; pack <= widest && problem.columns % pack == 0; pack *= 2) {
    const int64_t all_rows = problem.batch * problem.rows;
    const int64_t parts = problem.transpose
                              ? plan_column_sums(problem.batch, problem.rows, problem.columns, pack).parts
                              : plan_row_sums(all_rows, problem.columns, pack, pack == widest).parts;
    most = std::max(most, parts);
  }
  return most == 1 ? 0 : static_cast<size_t>(most * sums) * size_of(accumulate_dtype(problem.dtype));
}

}  // namespace sinter::ops
