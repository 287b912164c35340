// How a key is made, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>

namespace sinter::ops {

/// Writes seed and offset; behind `base`, unless that is null. Sums wrap.
SINTER_HOST_DEVICE inline void make_random_key(const int64_t* base, uint64_t seed, uint64_t offset,
                                               int64_t* key) {
  key[0] = static_cast<int64_t>(base == nullptr ? seed : static_cast<uint64_t>(base[0]) + seed);
  key[1] = static_cast<int64_t>(base == nullptr ? offset : static_cast<uint64_t>(base[1]) + offset);
}

}  // namespace sinter::ops
