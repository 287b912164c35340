// Rows of a table, written over those of a tensor that is there: index_select without an output of its own.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops::update {

/// Row i of `target` (N, D) takes the values of row indices[i] of `table` (V, D), of the same dtype, which
/// must not overlap it. indices (N), int64, as in embedding(). Throws InvalidArgument for other shapes and
/// dtypes.
void take_rows_(const Tensor& target, const Tensor& table, const Tensor& indices);

}  // namespace sinter::ops::update
