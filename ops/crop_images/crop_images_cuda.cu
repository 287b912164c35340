// Accesses of 16 bytes to the batch, of words to the images where a window allows it. Neighbouring threads
// have neighbouring pixels, so that whole lines are read and written.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/image_places_cuda.h>
#include <sinter/ops/common/cuda/image_value_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/crop_images/crop_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

struct CropDivides {
  cuda::WideDivide width, plane_packs;
};

template <class T>
__device__ __forceinline__ T normalized(const ChannelScales& scales, int c, float value) {
  return image_element<T>(value * scales.scale[c] + scales.shift[c]);
}

/// The bytes of some neighbouring pixels of three channels, four to a word, the first in the lowest bits.
template <int kPixels>
struct RgbPixels {
  static constexpr int kWords = 3 * kPixels / 4;

  uint32_t words[kWords] = {};
  bool reversed = false;  // the last pixel is to be shown first

  __device__ float value(int pixel, int c) const {
    const int forward = 3 * pixel + c, backward = 3 * (kPixels - 1 - pixel) + c;
    const uint32_t word =
        reversed ? words[backward / 4] >> (8 * (backward % 4)) : words[forward / 4] >> (8 * (forward % 4));
    return static_cast<float>(word & 0xffu);
  }
  /// From any address: whole words, shifted into place. They reach up to three bytes beyond the pixels.
  __device__ void load(const uint8_t* from) {
    const auto misaligned = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 4);
    const auto* aligned = reinterpret_cast<const uint32_t*>(from - misaligned);
    uint32_t low = aligned[0];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t high = aligned[i + 1];
      words[i] = __funnelshift_r(low, high, 8 * misaligned);
      low = high;
    }
  }
  __device__ void set(int pixel, const uint8_t* rgb) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const int at = 3 * pixel + c;
      words[at / 4] |= static_cast<uint32_t>(rgb[c]) << (8 * (at % 4));
    }
  }
};

/// The pixels first, first + 1, ... of a window, row by row; black behind its end.
template <int kPixels>
__device__ RgbPixels<kPixels> window_pixels(const CropGeometry& crop, const CropDivides& divides, int64_t n,
                                            int64_t first, const uint8_t* bytes, const int32_t* window) {
  RgbPixels<kPixels> pixels;
  int64_t x = 0;
  int64_t y = divides.width.divide(first, x);
  int64_t row = crop.row_start(window, n, y);
  const bool mirrored = window[2] != 0;
  // Nearly all packs lie in one row and inside the image: their bytes are neighbours.
  const int64_t column = window[1] + (mirrored ? crop.out_width - kPixels - x : x);
  if (row >= 0 && x + kPixels <= crop.out_width && column >= 0 && column + kPixels <= crop.width) {
    const int64_t from = row + column * 3, end = crop.images * crop.height * crop.width * 3;
    if (from >= 3 && from + 3 * kPixels + 4 <= end) {
      pixels.load(bytes + from);
      pixels.reversed = mirrored;
      return pixels;
    }
  }
#pragma unroll
  for (int pixel = 0; pixel < kPixels; ++pixel) {
    const int64_t from = y < crop.out_height ? crop.pixel(window, row, x) : -1;
    if (from >= 0) pixels.set(pixel, bytes + from);
    if (++x == crop.out_width) {
      x = 0;
      row = crop.row_start(window, n, ++y);
    }
  }
  return pixels;
}

/// Three channels, the usual case: a thread has as many neighbouring pixels as make 16 bytes of a channel.
/// `aligned`: windows have a whole number of such packs, and the batch begins at a multiple of 16 bytes.
template <class T>
__global__ void crop_rgb_kernel(int64_t packs, CropGeometry crop, CropDivides divides, bool channels_last,
                                bool aligned, const __grid_constant__ ChannelScales scales,
                                const uint8_t* __restrict__ bytes, const int32_t* __restrict__ windows,
                                T* __restrict__ batch) {
  constexpr int kPixels = cuda::kPackSize<T>;
  using Pack = cuda::Pack<T, kPixels>;
  __shared__ Pack staged[kThreads / 32][32 * 3];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t plane = crop.out_height * crop.out_width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  // A warp stays together: it stores what its lanes have side by side.
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + warp * 32; i < packs; i += stride) {
    int64_t first = 0;
    const int64_t n = divides.plane_packs.divide(i + lane < packs ? i + lane : i, first);
    first *= kPixels;
    const auto pixels = window_pixels<kPixels>(crop, divides, n, first, bytes, windows + 3 * n);
    Pack values[3];
    if (channels_last) {
#pragma unroll
      for (int at = 0; at < 3 * kPixels; ++at) {
        values[at / kPixels].values[at % kPixels] =
            normalized<T>(scales, at % 3, pixels.value(at / 3, at % 3));
      }
    } else {
#pragma unroll
      for (int at = 0; at < 3 * kPixels; ++at) {
        values[at / kPixels].values[at % kPixels] =
            normalized<T>(scales, at / kPixels, pixels.value(at % kPixels, at / kPixels));
      }
    }
    if (aligned && channels_last) {
#pragma unroll
      for (int k = 0; k < 3; ++k) staged[warp][3 * lane + k] = values[k];
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        const int64_t to = 3 * i + 32 * k + lane;
        if (to < 3 * packs) reinterpret_cast<Pack*>(batch)[to] = staged[warp][32 * k + lane];
      }
      __syncwarp();
    } else if (i + lane < packs) {
      T* to = batch + n * 3 * plane + (channels_last ? 3 * first : first);
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        T* run = to + (channels_last ? k * kPixels : k * plane);
        if (aligned) {
          *reinterpret_cast<Pack*>(run) = values[k];
          continue;
        }
        const int64_t left = channels_last ? 3 * (plane - first) - k * kPixels : plane - first;
#pragma unroll
        for (int at = 0; at < kPixels; ++at) {
          if (at < left) run[at] = values[k].values[at];
        }
      }
    }
  }
}

/// Any number of channels and either layout: a thread writes 16 bytes of the batch.
template <class T>
__global__ void crop_kernel(int64_t count, CropGeometry crop, cuda::WideDivide by_image,
                            const __grid_constant__ ImagePlaces places,
                            const __grid_constant__ ChannelScales scales, const uint8_t* __restrict__ bytes,
                            const int32_t* __restrict__ windows, T* __restrict__ batch) {
  constexpr int kPack = cuda::kPackSize<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * kPack;
  const int64_t image = crop.out_height * crop.out_width * crop.channels;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack; i < count;
       i += stride) {
    int64_t at = 0, row = 0;
    int64_t n = by_image.divide(i, at);
    ImagePlaces::Place place = places.place_of(at);
    const int lanes = count - i < kPack ? static_cast<int>(count - i) : kPack;
    cuda::Pack<T, kPack> pack;
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      if (lane >= lanes) break;
      const int32_t* window = windows + 3 * n;
      if (lane == 0 || place.x == 0) row = crop.row_start(window, n, place.y);
      const int64_t from = crop.pixel(window, row, place.x);
      const float value = from < 0 ? 0.0f : static_cast<float>(bytes[from + place.c]);
      pack.values[lane] = normalized<T>(scales, static_cast<int>(place.c), value);
      places.advance(place);
      if (++at == image) {
        at = 0;
        ++n;
        place = {0, 0, 0};
      }
    }
    if (lanes == kPack) {
      *reinterpret_cast<cuda::Pack<T, kPack>*>(batch + i) = pack;
    } else {
      for (int lane = 0; lane < lanes; ++lane) batch[i + lane] = pack.values[lane];
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
  const bool channels_last = context.attributes<CropImagesAttributes>().output.layout == Layout::kNHWC;
  if (crop.channels == 3) {
    const int64_t packs = crop.images * plane_packs;
    const CropDivides divides{cuda::WideDivide(crop.out_width), cuda::WideDivide(plane_packs)};
    const bool aligned = plane % kPack == 0 && cuda::is_aligned(batch, 16);
    cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads, kThreads), crop_rgb_kernel<T>,
                 packs, crop, divides, channels_last, aligned, scales, bytes, windows, batch);
  } else {
    const ImageAxes axes{crop.images, crop.channels, crop.out_height, crop.out_width, channels_last};
    const int64_t count = context.output(0).numel();
    cuda::launch(context.stream(), cuda::grid_stride_shape(count, kPack * kThreads, kThreads), crop_kernel<T>,
                 count, crop, cuda::WideDivide(axes.elements()), ImagePlaces(axes), scales, bytes, windows,
                 batch);
  }
}

void run_crop_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& attributes = context.attributes<CropImagesAttributes>();
  const CropGeometry geometry = crop_geometry(context.input(0).shape, attributes);
  const ChannelScales scales = channel_scales(attributes.output, geometry.channels);
  dispatch_image_output(context.output(0).dtype, [&]<class T> { crop<T>(context, geometry, scales); });
}

}  // namespace

void register_crop_images_cuda(OpRegistry& registry);
void register_crop_images_cuda(OpRegistry& registry) {
  registry.add_kernel("crop_images", {.device = DeviceType::kCuda, .run = run_crop_images});
}

}  // namespace sinter::ops
