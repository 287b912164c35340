#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/erase_images/erase_images_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

/// Overwrites the box in the rows of pixels of one image.
template <class T>
void erase_box_of(const ImageAxes& axes, const ImageBox& box, const EraseColour& colour, T* image) {
  const int64_t left = std::clamp<int64_t>(box.left, 0, axes.width);
  const int64_t right = std::clamp<int64_t>(box.left + box.width, 0, axes.width);
  const int64_t top = std::clamp<int64_t>(box.top, 0, axes.height);
  const int64_t bottom = std::clamp<int64_t>(box.top + box.height, 0, axes.height);
  const int64_t pixel_step = axes.channels_last ? axes.channels : 1;
  const int64_t channel_step = axes.channels_last ? 1 : axes.height * axes.width;
  for (int64_t c = 0; c < axes.channels; ++c) {
    const T value = static_cast<T>(colour.values[c]);
    for (int64_t y = top; y < bottom; ++y) {
      T* row = image + c * channel_step + y * axes.width * pixel_step;
      for (int64_t x = left; x < right; ++x) row[x * pixel_step] = value;
    }
  }
}

void run_erase_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& options = context.attributes<EraseImagesOptions>();
  const ImageAxes axes = image_axes(context.input(0).shape, options.layout);
  const EraseColour colour = erase_colour(options, axes.channels);
  const auto* boxes = context.input(1).as<const int32_t>();
  const int64_t size = axes.elements();
  dispatch_float(context.output(0).dtype, "erase_images", [&]<class T> {
    const T* images = context.input(0).as<const T>();
    T* erased = context.output(0).as<T>();
    parallel_for(axes.images, kGrainElements / size + 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        std::copy_n(images + n * size, size, erased + n * size);
        erase_box_of(axes, erase_box(boxes, n), colour, erased + n * size);
      }
    });
  });
}

}  // namespace

void register_erase_images_cpu(OpRegistry& registry);
void register_erase_images_cpu(OpRegistry& registry) {
  registry.add_kernel("erase_images", {.device = DeviceType::kCpu, .run = run_erase_images});
}

}  // namespace sinter::ops
