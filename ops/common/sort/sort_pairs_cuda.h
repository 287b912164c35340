// Pairs of a key and a value in the order of the keys, equal ones in the order in which they came. For .cu
// files.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/runtime/backend.h>

namespace sinter::ops {

/// Bytes of scratch that sort_pairs takes on the current GPU; they depend on nothing else.
size_t sort_pairs_bytes(int64_t count, int bits);

/// Writes the `count` pairs (keys[i], values[i]) in rising order of the keys' lowest `bits` bits (1 to 32) to
/// `sorted_keys` and `sorted_values`; what came is kept. A stable radix sort; nothing waits on the host.
/// `scratch` holds `scratch_bytes`, as sort_pairs_bytes says. A launch that fails is a DeviceError.
void sort_pairs(const Stream& stream, void* scratch, size_t scratch_bytes, const uint32_t* keys,
                uint32_t* sorted_keys, const uint32_t* values, uint32_t* sorted_values, int64_t count,
                int bits);

}  // namespace sinter::ops
