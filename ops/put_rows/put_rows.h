// Rows of a table, overwritten by index: the other way round of take_rows.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// target[indices[i]] = rows[i] for all i; the other rows of `target` keep their values. target (V, D) of any
/// dtype, indices (N), int64, each at most once (of one that comes twice, either row may stay), rows (N, D)
/// of the target's dtype. An index outside [0, V) is an InvalidArgument on the CPU, and then nothing changes;
/// on a GPU its row goes nowhere. Throws InvalidArgument for other shapes and dtypes, or if the gradient of
/// `target` is being recorded.
void put_rows_(const Tensor& target, const Tensor& indices, const Tensor& rows);

}  // namespace sinter::ops
