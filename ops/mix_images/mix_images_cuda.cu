// A thread has neighbouring elements, 16 bytes of them where the images allow it. Whether an element lies in
// the box is told by its place in its image.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/mix_images/mix_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Which elements of an image are mixed.
struct MixedPart {
  bool all = true;
  ImageBox box;
  bool channels_last = false;
  cuda::WideDivide channels, width, height;

  __device__ bool holds(int64_t at) const {
    if (all) return true;
    int64_t c = 0, x = 0, y = 0;
    const int64_t pixel = channels_last ? channels.divide(at, c) : at;
    height.divide(width.divide(pixel, x), y);
    return box.holds(y, x);
  }
};

/// `size`: elements of an image, a multiple of kPack.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    mix_kernel(int64_t packs, int64_t size, int64_t images, cuda::WideDivide image_packs,
               const __grid_constant__ MixedPart part, Mix<compute_type<T>> mix, const T* __restrict__ x,
               T* __restrict__ mixed) {
  using Pack = cuda::Pack<T, kPack>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += stride) {
    int64_t at = 0;
    const int64_t n = image_packs.divide(i, at);
    at *= kPack;
    const int64_t other = (n == 0 ? images - 1 : n - 1) * size + at;
    const Pack own = reinterpret_cast<const Pack*>(x)[i];
    const Pack others = *reinterpret_cast<const Pack*>(x + other);
    Pack result;
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      result.values[lane] = part.holds(at + lane)
                                ? cuda::round_to<T>(mix(cuda::load_as_compute(own.values[lane]),
                                                        cuda::load_as_compute(others.values[lane])))
                                : own.values[lane];
    }
    reinterpret_cast<Pack*>(mixed)[i] = result;
  }
}

MixedPart mixed_part(const Shape& shape, const MixImagesAttributes& options) {
  MixedPart part;
  if (!options.boxed) return part;
  const ImageAxes axes = image_axes(shape, options.layout);
  part.all = false;
  part.box = box_of(options);
  part.channels_last = axes.channels_last;
  part.channels = cuda::WideDivide(axes.channels);
  part.width = cuda::WideDivide(axes.width);
  part.height = cuda::WideDivide(axes.height);
  return part;
}

void run_mix_images(const KernelContext& context) {
  const auto& options = context.attributes<MixImagesAttributes>();
  const Shape& shape = context.input(0).shape;
  if (shape.numel() == 0) return;
  const int64_t images = shape[0], size = shape.numel() / images;
  const MixedPart part = mixed_part(shape, options);
  dispatch_float(context.output(0).dtype, "mix_images", [&]<class T> {
    const T* x = context.input(0).as<const T>();
    T* mixed = context.output(0).as<T>();
    const auto launch = [&]<int kPack> {
      const int64_t packs = shape.numel() / kPack;
      cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads, kThreads), mix_kernel<T, kPack>,
                   packs, size, images, cuda::WideDivide(size / kPack), part,
                   Mix<compute_type<T>>(options.share), x, mixed);
    };
    const bool aligned =
        size % cuda::kPackSize<T> == 0 && cuda::is_aligned(x, 16) && cuda::is_aligned(mixed, 16);
    aligned ? launch.template operator()<cuda::kPackSize<T>>() : launch.template operator()<1>();
  });
}

}  // namespace

void register_mix_images_cuda(OpRegistry& registry);
void register_mix_images_cuda(OpRegistry& registry) {
  registry.add_kernel("mix_images", {.device = DeviceType::kCuda, .run = run_mix_images});
}

}  // namespace sinter::ops
