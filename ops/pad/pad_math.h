// Where a padded element comes from, for every device.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
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

/// The inverse of pad_source: the indices of the padded axis that repeat element `index` of an axis of extent
/// `extent`, in rising order.
class PadTargets {
 public:
  SINTER_HOST_DEVICE PadTargets(int64_t index, int64_t before, int64_t extent, int64_t after, PadMode mode)
      : first_(before + index), mode_(mode) {
    if (mode == PadMode::kReplicate) {
      if (index == 0) {
        count_ += before;
        first_ = 0;
      }
      if (index == extent - 1) count_ += after;
    } else if (mode == PadMode::kReflect) {
      left_ = index;
      right_ = extent - 1 - index;
      mirrored_left_ = left_ >= 1 && left_ <= before;
      count_ += (mirrored_left_ ? 1 : 0) + (right_ >= 1 && right_ <= after ? 1 : 0);
    }
  }

  SINTER_HOST_DEVICE int64_t count() const { return count_; }
  /// n in [0, count()).
  SINTER_HOST_DEVICE int64_t operator[](int64_t n) const {
    if (mode_ != PadMode::kReflect) return first_ + n;
    const int64_t which = n - (mirrored_left_ ? 1 : 0);  // -1: mirrored at the front, 1: at the back
    return which < 0 ? first_ - 2 * left_ : first_ + which * 2 * right_;
  }

 private:
  int64_t first_, count_ = 1;
  int64_t left_ = 0, right_ = 0;  // distances to the ends of the axis, the mirrors
  PadMode mode_;
  bool mirrored_left_ = false;
};

}  // namespace sinter::ops
