#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/mix_images/mix_images_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

template <class T>
void mix_run(const Mix<compute_type<T>>& mix, int64_t count, const T* own, const T* other, T* to) {
  using C = compute_type<T>;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<T>(mix(static_cast<C>(own[i]), static_cast<C>(other[i])));
  }
}

template <class T>
void mix_rows(const KernelContext& context, double share) {
  const Shape& shape = context.input(0).shape;
  const int64_t rows = shape[0], size = shape.numel() / rows;
  const T* x = context.input(0).as<const T>();
  T* to = context.output(0).as<T>();
  const Mix<compute_type<T>> mix(share);
  parallel_for(rows, kGrainElements / size + 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      mix_run(mix, size, x + n * size, x + (n == 0 ? rows - 1 : n - 1) * size, to + n * size);
    }
  });
}

/// Rows of pixels, of which a box is mixed.
template <class T>
void mix_boxes(const KernelContext& context, const MixImagesOptions& options) {
  const ImageAxes axes = image_axes(context.input(0).shape, options.layout);
  const ImageBox box = box_of(options);
  const int64_t step = axes.channels_last ? axes.channels : 1, row_size = axes.width * step;
  const int64_t left = std::clamp<int64_t>(box.left, 0, axes.width) * step;
  const int64_t right = std::clamp<int64_t>(box.left + box.width, 0, axes.width) * step;
  const T* x = context.input(0).as<const T>();
  T* to = context.output(0).as<T>();
  const Mix<compute_type<T>> mix(options.share);
  const int64_t image_rows = axes.rows(), all_rows = axes.images * image_rows;
  parallel_for(all_rows, kGrainElements / row_size + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t y = row % axes.height;
      std::copy_n(x + row * row_size, row_size, to + row * row_size);
      if (y < box.top || y - box.top >= box.height || right <= left) continue;
      const int64_t other = (row < image_rows ? row + all_rows : row) - image_rows;
      mix_run(mix, right - left, x + row * row_size + left, x + other * row_size + left,
              to + row * row_size + left);
    }
  });
}

void run_mix_images(const KernelContext& context) {
  const auto& options = context.attributes<MixImagesOptions>();
  if (context.output(0).numel() == 0) return;
  dispatch_float(context.output(0).dtype, "mix_images", [&]<class T> {
    options.boxed ? mix_boxes<T>(context, options) : mix_rows<T>(context, options.share);
  });
}

}  // namespace

void register_mix_images_cpu(OpRegistry& registry);
void register_mix_images_cpu(OpRegistry& registry) {
  registry.add_kernel("mix_images", {.device = DeviceType::kCpu, .run = run_mix_images});
}

}  // namespace sinter::ops
