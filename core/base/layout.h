// Layout: the order of the axes of images and filters.
#pragma once

#include <cstdint>
#include <string_view>

namespace sinter {

/// Order of the axes of image tensors. It belongs to the op that reads them, never to the tensor.
/// Filters follow: (out, in/groups, height, width) with kNCHW, (out, height, width, in/groups) with kNHWC.
enum class Layout : uint8_t { kNCHW, kNHWC };
using enum Layout;  // kNHWC for short

/// Of ops on images that need no other option.
struct LayoutOptions {
  Layout layout = Layout::kNCHW;
};

constexpr std::string_view to_string(Layout layout) {
  return layout == Layout::kNCHW ? "NCHW" : "NHWC";
}

}  // namespace sinter
