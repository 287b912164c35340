// Products of a matrix with one or a few vectors on a GPU, for matvec and matmul.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/base/dtype.h>
#include <sinter/core/runtime/backend.h>

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
bool can_multiply_thin(const ThinProblem& problem);

/// Scratch for the problem wherever its operands lie.
size_t thin_workspace(const ThinProblem& problem);

/// Queues the product. Nothing is empty but, perhaps, the sums; a batch of several has batch * out() <= 2^30.
void multiply_thin(const Stream& stream, const ThinProblem& problem, const void* a, const void* x, void* y,
                   void* workspace);

}  // namespace sinter::ops
