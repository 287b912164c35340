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
void run_dilated_max_pool_cuda(const KernelContext& context);
void run_dilated_max_pool_grad_cuda(const KernelContext& context);

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
/// one kernel serves both. Index: uint32_t, or int64_t for tensors or windows that are too large.
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

/// True if 32-bit indices hold everything that PoolImages computes.
inline bool fits_32_bits(const PoolGeometry& geometry) {
  const auto axis_fits = [](const PoolAxis& axis) {
    const int64_t padding = axis.padding + axis.padding_after;
    return axis.extent < INT32_MAX && axis.extent + padding + 2 * axis.span + axis.stride < INT32_MAX;
  };
  return axis_fits(geometry.y) && axis_fits(geometry.x) &&
         geometry.y.kernel * geometry.x.kernel < INT32_MAX &&
         geometry.image_shape(Layout::kNHWC).numel() < INT32_MAX &&
         geometry.output_shape(Layout::kNHWC).numel() < INT32_MAX;
}

}  // namespace detail

/// Launches one thread for `pack` neighbouring channels of every pixel of the pooled images (or of the
/// images, if `over_images`). make_body.operator()<pack, Index>() gives the body, which is called as
/// detail::pool_kernel says. `wide`: all pointers allow accesses of `widest` elements.
template <int widest, class MakeBody>
void launch_pool(const Stream& stream, const PoolGeometry& geometry, Layout layout, bool over_images,
                 bool wide, MakeBody make_body) {
  const bool first = layout == Layout::kNCHW;
  const int64_t batch = first ? geometry.batch * geometry.channels : geometry.batch;
  const int64_t depth = first ? 1 : geometry.channels;
  const int64_t rows = over_images ? geometry.y.extent : geometry.y.out;
  const int64_t columns = over_images ? geometry.x.extent : geometry.x.out;
  if (batch * depth == 0) return;
  const auto run = [&]<int pack, class Index>() {
    using I = std::make_signed_t<Index>;
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
    const auto by = [](int64_t divisor) { return IndexDivide<Index>(static_cast<Index>(divisor)); };
    const PoolImages<Index> images{axis(geometry.y), axis(geometry.x), by(geometry.y.stride),
                                   by(geometry.x.stride), static_cast<I>(depth)};
    const int64_t count = batch * rows * columns * (depth / pack);
    const auto body = make_body.template operator()<pack, Index>();
    cuda::launch(stream, cuda::grid_stride_shape(count, detail::kPoolThreads, detail::kPoolThreads),
                 detail::pool_kernel<Index, std::remove_const_t<decltype(body)>>, count, pack, images,
                 by(depth / pack), by(columns), by(rows), body);
  };
  const bool packs = wide && depth % widest == 0;
  if (detail::fits_32_bits(geometry)) {
    packs ? run.template operator()<widest, uint32_t>() : run.template operator()<1, uint32_t>();
  } else {
    packs ? run.template operator()<widest, int64_t>() : run.template operator()<1, int64_t>();
  }
}

}  // namespace sinter::ops
