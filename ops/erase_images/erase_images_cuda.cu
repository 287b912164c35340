// A thread has neighbouring elements, 16 bytes of them where the images allow it, several times, a block
// apart.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/image_places_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/erase_images/erase_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Packs that a thread has on the way at a time, a block apart.
template <int pack>
inline constexpr int kOnTheWay = pack == 1 ? 4 : 2;

/// Images have a whole number of packs of kPack elements.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    erase_kernel(int64_t packs, cuda::WideDivide image_packs, const __grid_constant__ ImagePlaces places,
                 const __grid_constant__ EraseColour colour, const T* __restrict__ images,
                 const int32_t* __restrict__ boxes, T* __restrict__ erased) {
  using Pack = cuda::Pack<T, kPack>;
  constexpr int ways = kOnTheWay<kPack>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * ways + threadIdx.x;
  Pack loaded[ways] = {};
#pragma unroll
  for (int way = 0; way < ways; ++way) {
    const int64_t i = first + way * static_cast<int64_t>(kThreads);
    if (i < packs) loaded[way] = reinterpret_cast<const Pack*>(images)[i];
  }
#pragma unroll
  for (int way = 0; way < ways; ++way) {
    const int64_t i = first + way * static_cast<int64_t>(kThreads);
    if (i >= packs) continue;
    int64_t at = 0;
    const ImageBox box = erase_box(boxes, image_packs.divide(i, at));
    if (box.height > 0 && box.width > 0) {
      ImagePlaces::Place place = places.place_of(at * kPack);
      const unsigned held = places.held<kPack>(place, box);
      if (held != 0) {
#pragma unroll
        for (int lane = 0; lane < kPack; ++lane) {
          if ((held >> lane & 1u) != 0) {
            loaded[way].values[lane] = cuda::round_to<T>(colour.values[place.c]);
          }
          places.advance(place);
        }
      }
    }
    reinterpret_cast<Pack*>(erased)[i] = loaded[way];
  }
}

void run_erase_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& options = context.attributes<EraseImagesOptions>();
  const ImageAxes axes = image_axes(context.input(0).shape, options.layout);
  const EraseColour colour = erase_colour(options, axes.channels);
  const int64_t size = axes.elements();
  dispatch_float(context.output(0).dtype, "erase_images", [&]<class T> {
    const T* images = context.input(0).as<const T>();
    T* erased = context.output(0).as<T>();
    const auto launch = [&]<int kPack> {
      const int64_t packs = axes.images * size / kPack;
      cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads * kOnTheWay<kPack>, kThreads),
                   erase_kernel<T, kPack>, packs, cuda::WideDivide(size / kPack), ImagePlaces(axes), colour,
                   images, context.input(1).as<const int32_t>(), erased);
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
