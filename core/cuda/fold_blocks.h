// Staging arrays on a GPU: blocks of pixels folded into channels, and back.
#pragma once

#include <sinter/core/cuda/conv_staging.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Writes all of `staged`, an array of fold.staged_count() elements aligned to 16 bytes. dtypes of 2 or 4
/// bytes.
void fold_blocks(const Stream& stream, const BlockFold& fold, DType dtype, const void* plain, void* staged);

/// Writes all of `plain` from its elements in `staged`; those that it does not hold are zero.
void unfold_blocks(const Stream& stream, const BlockFold& fold, DType dtype, const void* staged, void* plain);

}  // namespace sinter::cuda
