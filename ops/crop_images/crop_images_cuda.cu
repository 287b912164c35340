// One thread writes 16 bytes: in NHWC of the batch as one run of elements, in NCHW of every channel's plane.
// Neighbouring threads read neighbouring bytes, which the first-level cache gathers.
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/crop_images/crop_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

struct CropDivides {
  cuda::WideDivide channels, width, height, plane_packs;
};

/// kChannels: the number of channels, or 0 for any.
template <int kChannels>
__device__ __forceinline__ float scaled(const ChannelScales& scales, int c, float value) {
  if constexpr (kChannels == 3) {  // selects, as an index that differs among lanes is slow in constant memory
    const float scale = c == 0 ? scales.scale[0] : c == 1 ? scales.scale[1] : scales.scale[2];
    const float shift = c == 0 ? scales.shift[0] : c == 1 ? scales.shift[1] : scales.shift[2];
    return value * scale + shift;
  } else {
    return value * scales.scale[c] + scales.shift[c];
  }
}

template <class T, int kChannels>
__global__ void crop_nhwc_kernel(int64_t count, CropGeometry crop, CropDivides divides,
                                 const __grid_constant__ ChannelScales scales,
                                 const uint8_t* __restrict__ bytes, const int32_t* __restrict__ windows,
                                 T* __restrict__ batch) {
  constexpr int kPack = cuda::kPackSize<T>;
  const int channels = kChannels != 0 ? kChannels : static_cast<int>(crop.channels);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * kPack;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack; i < count;
       i += stride) {
    int64_t c64 = 0, x = 0, y = 0;
    int64_t n = divides.height.divide(divides.width.divide(divides.channels.divide(i, c64), x), y);
    int c = static_cast<int>(c64);
    int64_t row = crop.row_start(windows + 3 * n, n, y);
    int64_t from = crop.pixel(windows + 3 * n, row, x);
    cuda::Pack<T, kPack> pack;
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      const float value = from < 0 ? 0.0f : static_cast<float>(bytes[from + c]);
      pack.values[lane] = cuda::round_to<T>(scaled<kChannels>(scales, c, value));
      if (i + lane + 1 >= count) break;
      if (++c < channels) continue;
      c = 0;
      if (++x == crop.out_width) {
        x = 0;
        if (++y == crop.out_height) {
          y = 0;
          ++n;
        }
        row = crop.row_start(windows + 3 * n, n, y);
      }
      from = crop.pixel(windows + 3 * n, row, x);
    }
    if (i + kPack <= count) {
      *reinterpret_cast<cuda::Pack<T, kPack>*>(batch + i) = pack;
    } else {
      for (int lane = 0; i + lane < count; ++lane) batch[i + lane] = pack.values[lane];
    }
  }
}

/// `aligned`: packs begin at multiples of 16 bytes in every plane.
template <class T>
__global__ void crop_nchw_kernel(int64_t packs, CropGeometry crop, CropDivides divides, bool aligned,
                                 const __grid_constant__ ChannelScales scales,
                                 const uint8_t* __restrict__ bytes, const int32_t* __restrict__ windows,
                                 T* __restrict__ batch) {
  constexpr int kPack = cuda::kPackSize<T>;
  const int64_t plane = crop.out_height * crop.out_width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    int64_t first = 0, x = 0;
    const int64_t n = divides.plane_packs.divide(i, first);
    first *= kPack;
    int64_t y = divides.width.divide(first, x);
    const int32_t* window = windows + 3 * n;
    const int lanes = static_cast<int>(plane - first < kPack ? plane - first : kPack);
    int64_t from[kPack];
    int64_t row = crop.row_start(window, n, y);
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      from[lane] = lane < lanes ? crop.pixel(window, row, x) : -1;
      if (++x == crop.out_width) {
        x = 0;
        row = crop.row_start(window, n, ++y);
      }
    }
    T* to = batch + n * crop.channels * plane + first;
    for (int c = 0; c < static_cast<int>(crop.channels); ++c, to += plane) {
      cuda::Pack<T, kPack> pack;
#pragma unroll
      for (int lane = 0; lane < kPack; ++lane) {
        const float value = from[lane] < 0 ? 0.0f : static_cast<float>(bytes[from[lane] + c]);
        pack.values[lane] = cuda::round_to<T>(scaled<0>(scales, c, value));
      }
      if (aligned && lanes == kPack) {
        *reinterpret_cast<cuda::Pack<T, kPack>*>(to) = pack;
      } else {
#pragma unroll
        for (int lane = 0; lane < kPack; ++lane) {
          if (lane < lanes) to[lane] = pack.values[lane];
        }
      }
    }
  }
}

template <class T>
void crop(const KernelContext& context, const CropGeometry& crop, const ChannelScales& scales) {
  constexpr int64_t kPack = cuda::kPackSize<T>;
  const auto* bytes = context.input(0).as<const uint8_t>();
  const auto* windows = context.input(1).as<const int32_t>();
  T* batch = context.output(0).as<T>();
  const int64_t plane = crop.out_height * crop.out_width, plane_packs = cuda::blocks_for(plane, kPack);
  const CropDivides divides{.channels = cuda::WideDivide(crop.channels),
                            .width = cuda::WideDivide(crop.out_width),
                            .height = cuda::WideDivide(crop.out_height),
                            .plane_packs = cuda::WideDivide(plane_packs)};
  // With one channel the layouts are the same.
  if (context.attributes<CropImagesAttributes>().output.layout == Layout::kNHWC && crop.channels > 1) {
    const int64_t count = context.output(0).numel();
    cuda::launch(context.stream(), cuda::grid_stride_shape(count, kPack * kThreads, kThreads),
                 crop.channels == 3 ? crop_nhwc_kernel<T, 3> : crop_nhwc_kernel<T, 0>, count, crop, divides,
                 scales, bytes, windows, batch);
  } else {
    const int64_t packs = crop.images * plane_packs;
    const bool aligned = plane % kPack == 0 && cuda::is_aligned(batch, 16);
    cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads, kThreads), crop_nchw_kernel<T>,
                 packs, crop, divides, aligned, scales, bytes, windows, batch);
  }
}

void run_crop_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const Shape& images = context.input(0).shape;
  const auto& attributes = context.attributes<CropImagesAttributes>();
  const CropGeometry geometry{.images = images[0],
                              .height = images[1],
                              .width = images[2],
                              .channels = images[3],
                              .out_height = attributes.output.height,
                              .out_width = attributes.output.width,
                              .border = attributes.border};
  const ChannelScales scales = channel_scales(attributes.output, geometry.channels);
  dispatch_image_output(context.output(0).dtype, [&]<class T> { crop<T>(context, geometry, scales); });
}

}  // namespace

void register_crop_images_cuda(OpRegistry& registry);
void register_crop_images_cuda(OpRegistry& registry) {
  registry.add_kernel("crop_images", {.device = DeviceType::kCuda, .run = run_crop_images});
}

}  // namespace sinter::ops
