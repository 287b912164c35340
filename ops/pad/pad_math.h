// Where a padded element comes from, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::ops {

/// The index in [0, extent) of the element that lands at `index` of an axis padded with `before` elements in
/// front; -1 if it is a new one (PadMode::kConstant).
SINTER_HOST_DEVICE inline int64_t pad_source(int64_t index, int64_t before, int64_t extent, PadMode mode) {
  const int64_t at = index - before;
  if (at >= 0 && at < extent) return at;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kReplicate) return at < 0 ? 0 : extent - 1;
  return at < 0 ? -at : 2 * (extent - 1) - at;
}

}  // namespace sinter::ops
