// Staging arrays on a GPU: pixels folded into channels, and back.
#pragma once

#include <sinter/core/cuda/cudnn/conv_staging.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Writes all of `staged`, an array of fold.staged_count() < 2^31 elements aligned to 16 bytes. dtypes of 2
/// or 4 bytes.
void fold_pixels(const Stream& stream, const PixelFold& fold, DType dtype, const void* plain, void* staged);

/// Writes all of `plain` from its elements in `staged`; those that it does not hold are zero. Windows must
/// not overlap.
void unfold_pixels(const Stream& stream, const PixelFold& fold, DType dtype, const void* staged, void* plain);

}  // namespace sinter::cuda
