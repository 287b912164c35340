// A bias that no vendor kernel added: y[outer, channel, inner] += bias[channel].
#pragma once

#include <cstdint>

#include <sinter/core/base/dtype.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::ops {

/// Adds bias (channels) in place to y (outer, channels, inner), both of floating-point `dtype`, on the
/// stream's GPU.
void add_bias_cuda(const Stream& stream, DType dtype, void* y, const void* bias, int64_t outer,
                   int64_t channels, int64_t inner);

}  // namespace sinter::ops
