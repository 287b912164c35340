#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/crop_images/crop_images_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainPixels = 1 << 14;

CropGeometry geometry_of(const KernelContext& context) {
  return crop_geometry(context.input(0).shape, context.attributes<CropImagesAttributes>());
}

/// What every byte becomes, (C, 256): a byte has few values, and a look-up also rounds to T.
template <class T>
void fill_table(const ImageOutput& output, int64_t channels, T* table) {
  const ChannelScales scales = channel_scales(output, channels);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t value = 0; value < 256; ++value) {
      table[c * 256 + value] = image_value<T>(static_cast<float>(value) * scales.scale[c] + scales.shift[c]);
    }
  }
}

/// kChannels: the number of channels, or 0 for any.
template <class T, int64_t kChannels>
void crop_rows(const KernelContext& context, const T* table, int64_t begin, int64_t end) {
  const CropGeometry crop = geometry_of(context);
  const bool channels_last = context.attributes<CropImagesAttributes>().output.layout == Layout::kNHWC;
  const int64_t channels = kChannels != 0 ? kChannels : crop.channels;
  const int64_t plane = crop.out_height * crop.out_width;
  const int64_t pixel_step = channels_last ? channels : 1, channel_step = channels_last ? 1 : plane;
  const auto* bytes = context.input(0).as<const uint8_t>();
  const auto* windows = context.input(1).as<const int32_t>();
  T* batch = context.output(0).as<T>();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t n = row / crop.out_height, y = row % crop.out_height;
    const int32_t* window = windows + 3 * n;
    const int64_t row_start = crop.row_start(window, n, y);
    T* to = batch + n * plane * channels + y * crop.out_width * pixel_step;
    for (int64_t x = 0; x < crop.out_width; ++x, to += pixel_step) {
      const int64_t from = crop.pixel(window, row_start, x);
      for (int64_t c = 0; c < channels; ++c) {
        to[c * channel_step] = table[c * 256 + (from < 0 ? 0 : bytes[from + c])];
      }
    }
  }
}

size_t crop_images_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.input(0).shape[3]) * 256 * size_of(query.output(0).dtype);
}

void run_crop_images(const KernelContext& context) {
  const CropGeometry crop = geometry_of(context);
  if (context.output(0).numel() == 0) return;
  dispatch_image_output(context.output(0).dtype, [&]<class T> {
    T* table = context.workspace<T>();
    fill_table(context.attributes<CropImagesAttributes>().output, crop.channels, table);
    const auto rows = crop.channels == 3   ? crop_rows<T, 3>
                      : crop.channels == 1 ? crop_rows<T, 1>
                                           : crop_rows<T, 0>;
    parallel_for(crop.images * crop.out_height, kGrainPixels / crop.out_width + 1,
                 [&](int64_t begin, int64_t end) { rows(context, table, begin, end); });
  });
}

}  // namespace

void register_crop_images_cpu(OpRegistry& registry);
void register_crop_images_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "crop_images",
      {.device = DeviceType::kCpu, .workspace_bytes = crop_images_workspace, .run = run_crop_images});
}

}  // namespace sinter::ops
