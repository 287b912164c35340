// Which elements dropout keeps, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

/// An element with random word `word`: 0 with probability p, whatever it holds, else x * `scale`, 1 / (1 -
/// p).
template <class C>
SINTER_HOST_DEVICE C dropped_out(C x, uint32_t word, float p, C scale) {
  const C scaled = x * scale;
  return uniform_from_word(word) >= p ? scaled : C{0};
}

}  // namespace sinter::ops
