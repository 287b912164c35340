// Rows of a table, overwritten by index: the other way round of index_select.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// The parts of `target` at `indices` of `axis` take the values of those of `source`, in their order; the
/// others keep theirs. target of rank >= 1 and any dtype, indices (N), int64, each at most once (of one that
/// comes twice, either part may stay), source of the target's dtype and of its shape but for N along `axis`;
/// source and indices may lie in the target's memory. An index out of range is an InvalidArgument on the CPU,
/// and then nothing changes; on a GPU its part goes nowhere. Along an axis other than the first the whole
/// target is copied. Throws InvalidArgument for other shapes and dtypes, or if a gradient of target or source
/// is being recorded: it would be lost.
void index_copy_(const Tensor& target, int64_t axis, const Tensor& indices, const Tensor& source);

}  // namespace sinter::ops
