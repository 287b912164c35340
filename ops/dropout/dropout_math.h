// Which elements dropout keeps, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

/// The factor of an element with random word `word`: 0 with probability p, else `scale` = 1 / (1 - p).
template <class C>
SINTER_HOST_DEVICE C dropout_factor(uint32_t word, float p, C scale) {
  return uniform_from_word(word) >= p ? scale : C{0};
}

}  // namespace sinter::ops
