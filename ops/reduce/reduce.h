// Reductions along axes, and broadcasting, which is their inverse.
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// The axes over which x is reduced and what becomes of them.
struct ReduceAttributes {
  std::vector<int64_t> axes;  ///< in [-rank, rank), each at most once; none: all
  bool keep_dims = false;     ///< reduced axes stay with extent 1

  bool operator==(const ReduceAttributes&) const = default;
  template <class Self = ReduceAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axes", &Self::axes), field("keep_dims", &Self::keep_dims));
  }
};

/// Of sum_to and broadcast_to.
struct ShapeAttributes {
  std::vector<int64_t> shape;

  bool operator==(const ShapeAttributes&) const = default;
  template <class Self = ShapeAttributes>
  static constexpr auto fields() {
    return std::tuple(field("shape", &Self::shape));
  }
};

/// Reductions over `axes` (none given: all of them), which disappear or, with keep_dims, stay with extent 1.
/// The order of summation depends on the shape alone, never on threads. Throws InvalidArgument for an axis
/// out of range or named twice.

/// Floating-point dtypes keep their dtype (the 16-bit ones add up in float32); integers and bool add up to
/// int64. The sum over no elements is 0.
Tensor sum(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});
/// Floating-point dtypes. The mean of no elements is NaN.
Tensor mean(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});
/// Any dtype; NaN if any element is NaN. Throws InvalidArgument for a reduction over no elements. The whole
/// gradient goes to the first of the extreme elements in row-major order (PyTorch spreads it over all of
/// them).
Tensor max(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});
Tensor min(const Tensor& x, const IntList& axes = {}, const ReduceOptions& options = {});

/// Sums x over those axes along which a tensor of `shape` would be repeated to get the shape of x; x itself
/// if the shapes are equal. Floating-point dtypes. Throws InvalidArgument unless `shape` can be broadcast to
/// the shape of x.
Tensor sum_to(const Tensor& x, const Shape& shape);

/// x repeated along its axes of extent 1 and along new leading axes; x itself if the shapes are equal. Any
/// dtype. Throws InvalidArgument unless x can be broadcast to `shape` under NumPy's rules.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

namespace vjp {
/// The gradients of max and min: dy at the first extreme element of each group that was reduced, 0 elsewhere.
Tensor max(const Tensor& dy, const Tensor& x, const ReduceAttributes& attributes);
Tensor min(const Tensor& dy, const Tensor& x, const ReduceAttributes& attributes);
}  // namespace vjp

}  // namespace sinter::ops
