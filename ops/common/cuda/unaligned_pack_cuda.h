// Reading packs from addresses of any alignment. For .cu files.
#pragma once

#include <cstring>

#include <sinter/core/cuda/device/device_types.h>

namespace sinter::ops {

/// The `pack` elements from `from` on, in the widest accesses that its address allows: one, words of four
/// bytes, or single elements. Neighbours of a warp mostly lie in one row and go one way.
template <int pack, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_unaligned(const T* from) {
  using Packed = cuda::Pack<T, pack>;
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % sizeof(Packed) == 0) return *reinterpret_cast<const Packed*>(from);
  Packed loaded;
  if constexpr (sizeof(T) < 4 && sizeof(Packed) > 4) {
    if (address % 4 == 0) {
      uint32_t words[sizeof(Packed) / 4];
#pragma unroll
      for (unsigned i = 0; i < sizeof(Packed) / 4; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
      memcpy(&loaded, words, sizeof(Packed));
      return loaded;
    }
  }
#pragma unroll
  for (int j = 0; j < pack; ++j) loaded.values[j] = from[j];
  return loaded;
}

}  // namespace sinter::ops
