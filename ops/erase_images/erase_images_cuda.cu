// A thread has neighbouring elements, 16 bytes of them where the images allow it.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/erase_images/erase_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

struct EraseDivides {
  cuda::WideDivide image_packs, channels, width, height;
};

/// Images have a whole number of packs of kPack elements.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    erase_kernel(int64_t packs, EraseDivides divides, bool channels_last,
                 const __grid_constant__ EraseColour colour, const T* __restrict__ images,
                 const int32_t* __restrict__ boxes, T* __restrict__ erased) {
  using Pack = cuda::Pack<T, kPack>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += stride) {
    int64_t at = 0;
    const int64_t n = divides.image_packs.divide(i, at);
    const ImageBox box = erase_box(boxes, n);
    Pack pack = reinterpret_cast<const Pack*>(images)[i];
    if (box.height > 0 && box.width > 0) {
#pragma unroll
      for (int lane = 0; lane < kPack; ++lane) {
        int64_t c = 0, x = 0, y = 0;
        const int64_t element = at * kPack + lane;
        const int64_t pixel = channels_last ? divides.channels.divide(element, c) : element;
        const int64_t plane = divides.height.divide(divides.width.divide(pixel, x), y);
        if (!channels_last) c = plane;
        if (box.holds(y, x)) pack.values[lane] = cuda::round_to<T>(colour.values[c]);
      }
    }
    reinterpret_cast<Pack*>(erased)[i] = pack;
  }
}

void run_erase_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& options = context.attributes<EraseImagesAttributes>();
  const ImageAxes axes = image_axes(context.input(0).shape, options.layout);
  const EraseColour colour = erase_colour(options, axes.channels);
  const int64_t size = axes.elements();
  dispatch_float(context.output(0).dtype, "erase_images", [&]<class T> {
    const T* images = context.input(0).as<const T>();
    T* erased = context.output(0).as<T>();
    const auto launch = [&]<int kPack> {
      const int64_t packs = axes.images * size / kPack;
      const EraseDivides divides{.image_packs = cuda::WideDivide(size / kPack),
                                 .channels = cuda::WideDivide(axes.channels),
                                 .width = cuda::WideDivide(axes.width),
                                 .height = cuda::WideDivide(axes.height)};
      cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads, kThreads),
                   erase_kernel<T, kPack>, packs, divides, axes.channels_last, colour, images,
                   context.input(1).as<const int32_t>(), erased);
    };
    const bool aligned =
        size % cuda::kPackSize<T> == 0 && cuda::is_aligned(images, 16) && cuda::is_aligned(erased, 16);
    aligned ? launch.template operator()<cuda::kPackSize<T>>() : launch.template operator()<1>();
  });
}

}  // namespace

void register_erase_images_cuda(OpRegistry& registry);
void register_erase_images_cuda(OpRegistry& registry) {
  registry.add_kernel("erase_images", {.device = DeviceType::kCuda, .run = run_erase_images});
}

}  // namespace sinter::ops
