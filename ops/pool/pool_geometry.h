// Extents of a pooling call, from its shapes and options.
#pragma once

#include <sinter/core/base/shape.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/pool/pool_math.h>

namespace sinter::ops {

struct PoolGeometry {
  int64_t batch, channels;
  PoolAxis y, x;

  bool is_dilated() const { return y.dilation != 1 || x.dilation != 1; }
  Shape image_shape(Layout layout) const {
    return layout == Layout::kNCHW ? Shape{batch, channels, y.extent, x.extent}
                                   : Shape{batch, y.extent, x.extent, channels};
  }
  Shape output_shape(Layout layout) const {
    return layout == Layout::kNCHW ? Shape{batch, channels, y.out, x.out}
                                   : Shape{batch, y.out, x.out, channels};
  }
};

/// The geometry for images of shape `image` (rank 4). Throws InvalidArgument, tagged, if the options leave no
/// output.
PoolGeometry pool_geometry(const Shape& image, const PoolAttributes& options, const char* tag);

/// The shape of images with the extents of `options` and the batch and channels of `dy` (rank 4).
Shape pooled_image_shape(const Shape& dy, const PoolGradOptions& options);

/// What averages of these options are divided by.
inline PoolCounts counts_of(const PoolAttributes& options) {
  return {options.count_include_pad, options.divisor};
}

/// The dtype of max_pool2d's indices.
DType pool_index_dtype(const PoolAttributes& options);

}  // namespace sinter::ops
