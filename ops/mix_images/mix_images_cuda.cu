// A thread has neighbouring elements, 16 bytes of them where the images allow it, else several that lie a
// block apart. Which of them lie in the box is told by their place in the image; of what a box only copies,
// only one image is read.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/image_places_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/mix_images/mix_images_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Which elements of an image are mixed.
struct MixedPart {
  bool all;
  ImageBox box;
  ImagePlaces places;

  /// Of the `count` elements from `at` on, a bit for each that is mixed.
  template <int count>
  __device__ unsigned mask(int64_t at) const {
    return all ? (1u << count) - 1 : places.held<count>(places.place_of(at), box);
  }
};

/// Packs that a thread has on the way at a time, a block apart.
template <int pack>
inline constexpr int kOnTheWay = pack == 1 ? 4 : 2;

/// `size`: elements of an image, a multiple of kPack.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    mix_kernel(int64_t packs, int64_t size, int64_t images, cuda::WideDivide image_packs,
               const __grid_constant__ MixedPart part, Mix<compute_type<T>> mix, const T* __restrict__ x,
               T* __restrict__ mixed) {
  using C = compute_type<T>;
  using Pack = cuda::Pack<T, kPack>;
  constexpr int ways = kOnTheWay<kPack>;
  constexpr unsigned full = (1u << kPack) - 1;
  const bool copies = mix.share == C{0};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * ways + threadIdx.x;
  Pack own[ways] = {}, others[ways] = {};
  unsigned masks[ways];
#pragma unroll
  for (int way = 0; way < ways; ++way) {
    const int64_t i = first + way * static_cast<int64_t>(kThreads);
    masks[way] = 0;
    if (i >= packs) continue;
    int64_t at = 0;
    const int64_t n = image_packs.divide(i, at);
    at *= kPack;
    masks[way] = part.mask<kPack>(at);
    const int64_t other = (n == 0 ? images - 1 : n - 1) * size + at;
    if (!copies || masks[way] != full) own[way] = reinterpret_cast<const Pack*>(x)[i];
    if (masks[way] != 0) others[way] = *reinterpret_cast<const Pack*>(x + other);
  }
#pragma unroll
  for (int way = 0; way < ways; ++way) {
    const int64_t i = first + way * static_cast<int64_t>(kThreads);
    if (i >= packs) continue;
    Pack result;
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      const T value = own[way].values[lane];
      const T mean = cuda::round_to<T>(
          mix(cuda::load_as_compute(value), cuda::load_as_compute(others[way].values[lane])));
      result.values[lane] = (masks[way] >> lane & 1u) != 0 ? mean : value;
    }
    reinterpret_cast<Pack*>(mixed)[i] = result;
  }
}

void run_mix_images(const KernelContext& context) {
  const auto& options = context.attributes<MixImagesOptions>();
  const Shape& shape = context.input(0).shape;
  if (shape.numel() == 0) return;
  const int64_t images = shape[0], size = shape.numel() / images;
  const ImageAxes axes = options.boxed ? image_axes(shape, options.layout) : ImageAxes{1, 1, 1, 1, false};
  const MixedPart part{.all = !options.boxed, .box = box_of(options), .places = ImagePlaces(axes)};
  dispatch_float(context.output(0).dtype, "mix_images", [&]<class T> {
    const T* x = context.input(0).as<const T>();
    T* mixed = context.output(0).as<T>();
    const auto launch = [&]<int kPack> {
      const int64_t packs = shape.numel() / kPack;
      cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kThreads * kOnTheWay<kPack>, kThreads),
                   mix_kernel<T, kPack>, packs, size, images, cuda::WideDivide(size / kPack), part,
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
