// Elements of batches of images on a GPU. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/ops/common/image_output.h>

namespace sinter::ops {

/// A value rounded to an element of the batch.
template <class T>
__device__ __forceinline__ T image_element(float value) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return nearest_byte(value);
  } else {
    return cuda::round_to<T>(value);
  }
}

}  // namespace sinter::ops
