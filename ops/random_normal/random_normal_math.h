// A draw of the standard normal distribution from a block of random words, for every device.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include <sinter/core/base/host_device.h>
#include <sinter/core/runtime/random.h>

namespace sinter::ops {

/// Box and Muller (1958), with 53-bit uniforms.
SINTER_HOST_DEVICE inline double normal_draw(const PhiloxBlock& block) {
  const uint64_t first = (uint64_t{block.words[0]} << 32) | block.words[1];
  const uint64_t second = (uint64_t{block.words[2]} << 32) | block.words[3];
  const double u = (static_cast<double>(first >> 11) + 1.0) * 0x1p-53;  // in (0, 1]
  const double v = static_cast<double>(second >> 11) * 0x1p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace sinter::ops
