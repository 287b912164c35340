// What mixing does to a value, for every device.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/image_box.h>
#include <sinter/ops/mix_images/mix_images.h>

namespace sinter::ops {

/// C: the compute type. Shares of 0 and 1 copy, whatever the other value is.
template <class C>
struct Mix {
  C share, rest;

  explicit Mix(double of_own) : share(static_cast<C>(of_own)), rest(static_cast<C>(1.0 - of_own)) {}

  SINTER_HOST_DEVICE C operator()(C own, C other) const {
    if (rest == C{0}) return own;
    if (share == C{0}) return other;
    return own * share + other * rest;
  }
};

inline ImageBox box_of(const MixImagesOptions& options) {
  return {options.top, options.left, options.height, options.width};
}

}  // namespace sinter::ops
