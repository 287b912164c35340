// Images enlarged, or made smaller, by nearest neighbours or bilinearly.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include <sinter/core/base/size2d.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

enum class UpsampleMode : uint8_t { kNearest, kBilinear };
std::string_view to_string(UpsampleMode mode);

struct UpsampleOptions {
  std::optional<Size2d> size = {};  ///< the output's
  double scale = 2.0;               ///< of height and width where no size is given, > 0; rounded down
  UpsampleMode mode = UpsampleMode::kNearest;
  /// For kBilinear: the centres of the corner pixels of input and output lie on each other, rather than the
  /// outer edges of the images.
  bool align_corners = false;
  Layout layout = Layout::kNCHW;
};

/// What the ops upsample, whose size is the output's, and upsample_grad, whose size is that of dx, record.
struct UpsampleAttributes {
  UpsampleMode mode = UpsampleMode::kNearest;
  bool align_corners = false;
  Layout layout = Layout::kNCHW;
  std::array<int64_t, 2> size{1, 1};

  bool operator==(const UpsampleAttributes&) const = default;
  template <class Self = UpsampleAttributes>
  static constexpr auto fields() {
    return std::tuple(field("mode", &Self::mode), field("align_corners", &Self::align_corners),
                      field("layout", &Self::layout), field("size", &Self::size));
  }
};

/// x: (N, C, H, W), or (N, H, W, C) under kNHWC, of a floating-point dtype; y has the size of the options in
/// place of H and W: H', W'. Row o of y stands for position (o + 1/2) H / H' - 1/2 of x, or o (H - 1) / (H' -
/// 1) with align_corners. kNearest takes row floor(o H / H'); kBilinear mixes the two rows beside the
/// position, which is first moved to the border if it lies beyond, and likewise the columns. As torch's
/// interpolate given sizes. Nothing is smoothed where the image shrinks. The 16-bit dtypes compute in
/// float32. Throws InvalidArgument for an empty image, sizes outside [1, 2^30], or align_corners with
/// kNearest.
Tensor upsample(const Tensor& x, const UpsampleOptions& options);

namespace vjp {
/// The gradient of upsample for images of attributes.size: every pixel of dx collects what y took from it, in
/// a fixed order. Differentiable.
Tensor upsample(const Tensor& dy, const UpsampleAttributes& attributes);
}  // namespace vjp

}  // namespace sinter::ops
