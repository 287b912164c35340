// Matrix products on one thread by Eigen, compiled once for all ops that need them.
#pragma once

#include <cstdint>

namespace sinter::ops {

/// A matrix in memory: neighbours along a row (row-major) or along a column lie side by side, and `stride`
/// elements lie between one row (column) and the next.
template <class T>
struct MatrixView {
  T* data;
  int64_t rows, columns, stride;
  bool row_major = true;

  /// The same elements read as the transposed matrix.
  MatrixView transposed() const { return {data, columns, rows, stride, !row_major}; }
};

/// c = a b, or c += a b if `add`; c overlaps neither. An empty sum is 0. For float and double.
template <class C>
void multiply_matrices(const MatrixView<const C>& a, const MatrixView<const C>& b, const MatrixView<C>& c,
                       bool add = false);

extern template void multiply_matrices(const MatrixView<const float>&, const MatrixView<const float>&,
                                       const MatrixView<float>&, bool);
extern template void multiply_matrices(const MatrixView<const double>&, const MatrixView<const double>&,
                                       const MatrixView<double>&, bool);

}  // namespace sinter::ops
