// Rows of a table, looked up by index.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct EmbeddingGradAttributes {
  int64_t rows = 0;  ///< of the table
  bool operator==(const EmbeddingGradAttributes&) const = default;
  template <class Self = EmbeddingGradAttributes>
  static constexpr auto fields() {
    return std::tuple(field("rows", &Self::rows));
  }
};

/// weight (V, D) of any dtype, indices of any shape and dtype int64: the rows of `weight`, in shape
/// (indices..., D). An index outside [0, V) is an InvalidArgument on the CPU; on a GPU it gives a row of NaN
/// (0 for integer dtypes).
Tensor embedding(const Tensor& weight, const Tensor& indices);

/// The parts of x at `indices` of `axis`: x of rank >= 1 and any dtype, indices of any shape and dtype int64,
/// which takes the axis's place; indices out of range as in embedding. `index_select(images, 0, order)` puts
/// a batch into another order. Along the first axis rows are copied; along another one x is turned before and
/// behind. gather() picks element by element.
Tensor index_select(const Tensor& x, int64_t axis, const Tensor& indices);

namespace vjp {
/// The gradient of embedding for a table of `rows` rows: row v is the sum of the rows of dy whose index is v,
/// in float32 for the 16-bit dtypes. The order of a sum depends on the indices alone (deterministic). An
/// index outside [0, rows) is an InvalidArgument on the CPU and adds nothing on a GPU.
Tensor embedding(const Tensor& dy, const Tensor& indices, int64_t rows);
}  // namespace vjp

}  // namespace sinter::ops
