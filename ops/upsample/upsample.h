// Images enlarged, or made smaller, by nearest neighbours or bilinearly.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

enum class UpsampleMode : uint8_t { kNearest, kBilinear };
std::string_view to_string(UpsampleMode mode);

struct UpsampleOptions {
  UpsampleMode mode = UpsampleMode::kNearest;
  /// For kBilinear: the centres of the corner pixels of input and output lie on each other, rather than the
  /// outer edges of the images.
  bool align_corners = false;
  Layout layout = Layout::kNCHW;

  bool operator==(const UpsampleOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("mode", &UpsampleOptions::mode),
                      field("align_corners", &UpsampleOptions::align_corners),
                      field("layout", &UpsampleOptions::layout));
  }
};

/// Attributes of the ops upsample, whose size is the output's, and upsample_grad, whose size is that of dx.
struct UpsampleAttributes : UpsampleOptions {
  std::array<int64_t, 2> size{1, 1};

  bool operator==(const UpsampleAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple_cat(UpsampleOptions::fields(), std::tuple(field("size", &UpsampleAttributes::size)));
  }
};

/// x: (N, C, H, W), or (N, H, W, C) under kNHWC, of a floating-point dtype; y with `size` (height, width) in
/// place of H and W. Row o of y stands for position (o + 1/2) H / H' - 1/2 of x, or o (H - 1) / (H' - 1) with
/// align_corners. kNearest takes row floor(o H / H'); kBilinear mixes the two rows beside the position, which
/// is first moved to the border if it lies beyond, and likewise the columns. As torch's interpolate given
/// sizes. Nothing is smoothed where the image shrinks. The 16-bit dtypes compute in float32. Throws
/// InvalidArgument for an empty image, sizes outside [1, 2^30], or align_corners with kNearest.
Tensor upsample(const Tensor& x, std::array<int64_t, 2> size, const UpsampleOptions& options = {});

namespace vjp {
/// The gradient of upsample for images of `size`: every pixel of dx collects what y took from it, in a fixed
/// order. Differentiable.
Tensor upsample(const Tensor& dy, std::array<int64_t, 2> size, const UpsampleOptions& options = {});
}  // namespace vjp

}  // namespace sinter::ops
