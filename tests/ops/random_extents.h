// Random extents for tests of how kernels cut what they are given.
#pragma once

#include <cmath>
#include <cstdint>

#include <sinter/core/runtime/random.h>

namespace sinter::ops::testing_plans {

/// From `low` to `high`, both among them.
inline int64_t integer(Generator& generator, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(generator.uniform() * static_cast<double>(high - low + 1));
}

/// Up to 2^most, small ones as likely as large ones.
inline int64_t extent(Generator& generator, int most) {
  return static_cast<int64_t>(
      std::exp2(generator.uniform() * static_cast<double>(integer(generator, 1, most))));
}

}  // namespace sinter::ops::testing_plans
