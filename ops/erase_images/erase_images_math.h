// Boxes and colours of erase_images, for every device.
#pragma once

#include <sinter/core/base/host_device.h>
#include <sinter/ops/common/image_box.h>
#include <sinter/ops/common/image_output.h>
#include <sinter/ops/erase_images/erase_images.h>

namespace sinter::ops {

/// What each channel is overwritten with; small enough to be passed by value.
struct EraseColour {
  float values[kMaxImageChannels];
};

inline EraseColour erase_colour(const EraseImagesOptions& options, int64_t channels) {
  EraseColour colour{};
  for (int64_t c = 0; c < channels; ++c) {
    colour.values[c] = options.values[options.values.size() == 1 ? 0 : static_cast<size_t>(c)];
  }
  return colour;
}

SINTER_HOST_DEVICE inline ImageBox erase_box(const int32_t* boxes, int64_t n) {
  return {boxes[4 * n], boxes[4 * n + 1], boxes[4 * n + 2], boxes[4 * n + 3]};
}

}  // namespace sinter::ops
