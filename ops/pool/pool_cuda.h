// What the pooling kernels on a GPU share: their one launch template, and who runs which. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {

void run_max_pool_cuda(const KernelContext& context);
void run_max_pool_grad_cuda(const KernelContext& context);
/// With any window and images of any size.
void run_any_max_pool_cuda(const KernelContext& context);
void run_any_max_pool_grad_cuda(const KernelContext& context);

/// Calls function.operator()<T, Place>() for max pooling.
template <class F>
void dispatch_pool(DType dtype, DType index, const char* tag, F function) {
  dispatch_float(dtype, tag, [&]<class T> {
    if (index == DType::kUInt8) {
      function.template operator()<T, uint8_t>();
    } else {
      function.template operator()<T, int32_t>();
    }
  });
}

/// Images and pooled images as kernels see them. NCHW is NHWC with every plane an image of one channel, so
/// one kernel serves both. Index: uint32_t, or int64_t for images or windows that are too large.
template <class Index>
struct PoolImages {
  using I = std::make_signed_t<Index>;

  BasicPoolAxis<I> y, x;
  IndexDivide<Index> by_y_stride, by_x_stride;
  I depth;

  /// The element of an image, or of a pooled image.
  __device__ I image(I n, I row, I column, I channel) const {
    return ((n * y.extent + row) * x.extent + column) * depth + channel;
  }
  __device__ I pooled(I n, I row, I column, I channel) const {
    return ((n * y.out + row) * x.out + column) * depth + channel;
  }
  /// The windows that contain a row or a column of the image.
  __device__ auto windows_of_row(I row) const { return y.windows(row, SignedDivide{by_y_stride}); }
  __device__ auto windows_of_column(I column) const { return x.windows(column, SignedDivide{by_x_stride}); }

 private:
  struct SignedDivide {
    const IndexDivide<Index>& by;
    __device__ I divide(I n) const { return static_cast<I>(by.divide(static_cast<Index>(n))); }
  };
};

namespace detail {

constexpr unsigned kPoolThreads = 256;

/// body(images, n, row, column, first channel, element) for every pack of a tensor (n, rows, columns, packs).
template <class Index, class Body>
__global__ void __launch_bounds__(kPoolThreads)
    pool_kernel(int64_t count, int pack, PoolImages<Index> images, IndexDivide<Index> by_packs,
                IndexDivide<Index> by_columns, IndexDivide<Index> by_rows, Body body) {
  using I = std::make_signed_t<Index>;
  const int64_t stride = int64_t{gridDim.x} * kPoolThreads;
  for (int64_t i = int64_t{blockIdx.x} * kPoolThreads + threadIdx.x; i < count; i += stride) {
    Index vector, column, row;
    const Index pixel = by_packs.divide(static_cast<Index>(i), vector);
    const Index n = by_rows.divide(by_columns.divide(pixel, column), row);
    body(images, static_cast<I>(n), static_cast<I>(row), static_cast<I>(column),
         static_cast<I>(vector) * pack, static_cast<I>(i) * pack);
  }
}

/// Images as launches cut them into slabs: batch and channels of NHWC.
struct PoolBatch {
  int64_t images, depth;

  PoolBatch(const PoolGeometry& geometry, Layout layout)
      : images(layout == Layout::kNCHW ? geometry.batch * geometry.channels : geometry.batch),
        depth(layout == Layout::kNCHW ? 1 : geometry.channels) {}
  int64_t image(const PoolGeometry& geometry) const { return geometry.y.extent * geometry.x.extent * depth; }
  int64_t pooled(const PoolGeometry& geometry) const { return geometry.y.out * geometry.x.out * depth; }
  int64_t largest(const PoolGeometry& geometry) const { return std::max(image(geometry), pooled(geometry)); }
};

}  // namespace detail

/// True if 32-bit indices hold everything that PoolImages computes for one image.
inline bool fits_32_bits(const PoolGeometry& geometry, Layout layout) {
  const auto axis_fits = [](const PoolAxis& axis) {
    const int64_t padding = axis.padding + axis.padding_after;
    return axis.extent < INT32_MAX && axis.extent + padding + 2 * axis.span + axis.stride < INT32_MAX;
  };
  return axis_fits(geometry.y) && axis_fits(geometry.x) &&
         geometry.y.kernel * geometry.x.kernel < INT32_MAX &&
         detail::PoolBatch(geometry, layout).largest(geometry) < INT32_MAX;
}

/// Launches one thread for `pack` neighbouring channels of every pixel of the pooled images (or of the
/// images, if `over_images`). make_body.operator()<pack, Index>() gives the body, which is called as
/// detail::pool_kernel says; body.at(images, pooled) is one for the images so many elements further on, and
/// for their pooled images. `wide`: all pointers allow accesses of `widest` elements. 32-bit indices go slab
/// by slab of images, of which each must fit.
template <int widest, class Index = uint32_t, class MakeBody>
void launch_pool(const Stream& stream, const PoolGeometry& geometry, Layout layout, bool over_images,
                 bool wide, MakeBody make_body) {
  using I = std::make_signed_t<Index>;
  const detail::PoolBatch batch(geometry, layout);
  if (batch.images * batch.depth == 0) return;
  const int64_t rows = over_images ? geometry.y.extent : geometry.y.out;
  const int64_t columns = over_images ? geometry.x.extent : geometry.x.out;
  const auto axis = [](const PoolAxis& from) {
    return BasicPoolAxis<I>{.extent = static_cast<I>(from.extent),
                            .kernel = static_cast<I>(from.kernel),
                            .stride = static_cast<I>(from.stride),
                            .padding = static_cast<I>(from.padding),
                            .padding_after = static_cast<I>(from.padding_after),
                            .dilation = static_cast<I>(from.dilation),
                            .span = static_cast<I>(from.span),
                            .out = static_cast<I>(from.out)};
  };
  const auto by = [](int64_t divisor) { return IndexDivide<Index>(divisor); };
  const PoolImages<Index> images{axis(geometry.y), axis(geometry.x), by(geometry.y.stride),
                                 by(geometry.x.stride), static_cast<I>(batch.depth)};
  const auto run = [&]<int pack>() {
    const auto body = make_body.template operator()<pack, Index>();
    const int64_t slab =
        sizeof(Index) == 8 ? batch.images : std::max<int64_t>(INT32_MAX / batch.largest(geometry), 1);
    for (int64_t first = 0; first < batch.images; first += slab) {
      const int64_t count = std::min(slab, batch.images - first) * rows * columns * (batch.depth / pack);
      cuda::launch(stream, cuda::grid_stride_shape(count, detail::kPoolThreads, detail::kPoolThreads),
                   detail::pool_kernel<Index, std::remove_const_t<decltype(body)>>, count, pack, images,
                   by(batch.depth / pack), by(columns), by(rows),
                   body.at(first * batch.image(geometry), first * batch.pooled(geometry)));
    }
  };
  if constexpr (widest > 1) {
    if (wide && batch.depth % widest == 0) return run.template operator()<widest>();
  }
  run.template operator()<1>();
}

}  // namespace sinter::ops
