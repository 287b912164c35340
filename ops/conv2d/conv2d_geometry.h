// The numbers of one convolution, whichever of its three ops asks: extents by name instead of by axis.
#pragma once

#include <cstdint>

#include <sinter/core/base/shape.h>
#include <sinter/ops/conv2d/conv2d.h>

namespace sinter::ops {

/// One of the two image axes.
struct Conv2dAxis {
  int64_t input = 0, kernel = 0, output = 0;
  int64_t stride = 1, padding = 0, dilation = 1;

  /// Distance between the first and the last tap.
  int64_t reach() const { return dilation * (kernel - 1); }
};

struct Conv2dGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  Conv2dAxis height, width;
  Layout layout = Layout::kNCHW;

  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t taps() const { return height.kernel * width.kernel; }
  int64_t in_pixels() const { return height.input * width.input; }
  int64_t out_pixels() const { return height.output * width.output; }
  int64_t weight_count() const { return out_channels * group_in() * taps(); }
  /// True for a 1x1 filter that reads every pixel once, so that the images themselves are the matrices to
  /// multiply.
  bool is_pointwise() const;

  Shape x_shape() const;
  Shape weight_shape() const;
  Shape y_shape() const;
};

/// The geometry of a convolution of x with weight; throws InvalidArgument, tagged, if they do not fit
/// together.
Conv2dGeometry conv2d_geometry(const char* tag, const Shape& x, const Shape& weight,
                               const Conv2dAttributes& options);

/// The shape of one of several images.
inline Shape one_image(const Shape& images) {
  return images.with(0, 1);
}

/// (N, C, H, W) or (N, H, W, C); as filters (O, I, KH, KW) or (O, KH, KW, I).
Shape image_shape(Layout layout, int64_t n, int64_t channels, int64_t height, int64_t width);

}  // namespace sinter::ops
