#include <sinter/ops/common/cpu/eigen.h>
#include <sinter/ops/common/cpu/matrix_product_cpu.h>

namespace sinter::ops {
namespace {

template <class C, int Order>
using ConstMap =
    Eigen::Map<const Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic, Order>, 0, Eigen::OuterStride<>>;

template <class C, int Order>
ConstMap<C, Order> mapped(const MatrixView<const C>& m) {
  return {m.data, m.rows, m.columns, Eigen::OuterStride<>(m.stride)};
}

template <class C, int OrderA, int OrderB>
void add_product(const MatrixView<const C>& a, const MatrixView<const C>& b, const MatrixView<C>& c) {
  Eigen::Map<Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic>, 0, Eigen::OuterStride<>> out(
      c.data, c.rows, c.columns, Eigen::OuterStride<>(c.stride));
  out.noalias() += mapped<C, OrderA>(a) * mapped<C, OrderB>(b);
}

template <class C>
void set_zero(const MatrixView<C>& c) {
  const int64_t count = c.row_major ? c.rows : c.columns, length = c.row_major ? c.columns : c.rows;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < length; ++j) c.data[i * c.stride + j] = C{0};
  }
}

}  // namespace

template <class C>
void multiply_matrices(const MatrixView<const C>& a, const MatrixView<const C>& b, const MatrixView<C>& c,
                       bool add) {
  if (!add) set_zero(c);
  if (a.columns == 0 || c.rows == 0 || c.columns == 0) return;
  // Row-major results are the transposed product, so that only column-major ones need code.
  const MatrixView<const C> left = c.row_major ? b.transposed() : a;
  const MatrixView<const C> right = c.row_major ? a.transposed() : b;
  const MatrixView<C> out = c.row_major ? c.transposed() : c;
  if (left.row_major && right.row_major) {
    add_product<C, Eigen::RowMajor, Eigen::RowMajor>(left, right, out);
  } else if (left.row_major) {
    add_product<C, Eigen::RowMajor, Eigen::ColMajor>(left, right, out);
  } else if (right.row_major) {
    add_product<C, Eigen::ColMajor, Eigen::RowMajor>(left, right, out);
  } else {
    add_product<C, Eigen::ColMajor, Eigen::ColMajor>(left, right, out);
  }
}

template void multiply_matrices(const MatrixView<const float>&, const MatrixView<const float>&,
                                const MatrixView<float>&, bool);
template void multiply_matrices(const MatrixView<const double>&, const MatrixView<const double>&,
                                const MatrixView<double>&, bool);

}  // namespace sinter::ops
