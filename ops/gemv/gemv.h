// Products of a matrix with a vector, and of two vectors to a matrix.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct MatvecOptions {
  bool transpose_a = false;

  bool operator==(const MatvecOptions&) const = default;
  template <class Self = MatvecOptions>
  static constexpr auto fields() {
    return std::tuple(field("transpose_a", &Self::transpose_a));
  }
};

/// y = a x: a (..., m, n), x (..., n), y (..., m); with transpose_a, y = a^T x: x (..., m), y (..., n). The
/// leading axes broadcast. One floating-point dtype; the 16-bit ones accumulate in float32. Throws
/// InvalidArgument for shapes or dtypes that do not fit together.
Tensor matvec(const Tensor& a, const Tensor& x, const MatvecOptions& options = {});

/// y = u v^T: u (..., m), v (..., n), y (..., m, n); the leading axes broadcast.
Tensor outer(const Tensor& u, const Tensor& v);

}  // namespace sinter::ops
