// The kernel that transposes small tensors on a GPU.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/permute/plain_transpose.h>

namespace sinter::ops {

/// What choose_plain chose, of elements of 2, 4 or 8 bytes.
void transpose_plain_cuda(const Stream& stream, const PlainJob& job, int element_bytes, const void* in,
                          void* out);

}  // namespace sinter::ops
