// An image at a time. Steps that map values one by one are a table, which the image's statistics fill.
#include <algorithm>
#include <array>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/augment_images/augment_images_math.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

using Histogram = std::array<int64_t, kByteValues>;
using Table = std::array<std::array<uint8_t, kByteValues>, 3>;

int64_t grey_mean(const ImageView& image) {
  const int64_t pixels = int64_t{image.height} * image.width;
  int64_t sum = 0;
  for (int64_t i = 0; i < pixels; ++i) {
    const uint8_t* pixel = image.bytes + i * image.channels;
    sum += image.channels == 3 ? grey_of(pixel) : pixel[0];
  }
  return pixels == 0 ? 0 : sum * kStepOne / pixels;
}

Histogram histogram_of(const ImageView& image, int c) {
  Histogram histogram{};
  const int64_t bytes = int64_t{image.height} * image.width * image.channels;
  for (int64_t i = c; i < bytes; i += image.channels) ++histogram[image.bytes[i]];
  return histogram;
}

ChannelStatistics statistics_of(const Histogram& histogram, int64_t pixels) {
  ChannelStatistics channel;
  const auto occurs = [](int64_t count) { return count > 0; };
  const auto first = std::find_if(histogram.begin(), histogram.end(), occurs);
  if (first == histogram.end()) return channel;
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), occurs);
  channel.least = static_cast<int32_t>(first - histogram.begin());
  channel.largest = static_cast<int32_t>(histogram.rend() - last) - 1;
  channel.step = equalize_step(pixels, *last);
  return channel;
}

Table make_table(const ImageView& image, ImageStep step, int32_t p0) {
  Table table{};
  ImageStatistics whole;
  if (step == ImageStep::kContrast) whole.grey_mean = grey_mean(image);
  for (int c = 0; c < image.channels; ++c) {
    Histogram histogram{};
    ChannelStatistics channel;
    if (needs_histogram(step)) {
      histogram = histogram_of(image, c);
      channel = statistics_of(histogram, int64_t{image.height} * image.width);
    }
    int64_t below = 0;
    for (int value = 0; value < kByteValues; ++value) {
      const auto at = static_cast<size_t>(value);
      table[static_cast<size_t>(c)][at] = table_value(step, p0, value, whole, channel, below);
      below += histogram[at];
    }
  }
  return table;
}

void augment_one(const ImageView& image, const int32_t* row, uint8_t* to) {
  const auto step = static_cast<ImageStep>(row[0]);
  const int64_t channels = image.channels, bytes = int64_t{image.height} * image.width * channels;
  if (step == ImageStep::kNone) {
    std::copy_n(image.bytes, bytes, to);
  } else if (has_table(step)) {
    const Table table = make_table(image, step, row[1]);
    for (int64_t i = 0; i < bytes; i += channels) {
      for (int64_t c = 0; c < channels; ++c) to[i + c] = table[static_cast<size_t>(c)][image.bytes[i + c]];
    }
  } else {
    for (int64_t y = 0; y < image.height; ++y) {
      for (int64_t x = 0; x < image.width; ++x, to += channels) augment_pixel(image, step, row + 1, y, x, to);
    }
  }
}

void run_augment_images(const KernelContext& context) {
  const Shape& images = context.input(0).shape;
  if (images.numel() == 0) return;
  const auto* bytes = context.input(0).as<const uint8_t>();
  const auto* steps = context.input(1).as<const int32_t>();
  auto* to = context.output(0).as<uint8_t>();
  const int64_t image_bytes = images[1] * images[2] * images[3];
  parallel_for(images[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const ImageView image{bytes + n * image_bytes, static_cast<int32_t>(images[1]),
                            static_cast<int32_t>(images[2]), static_cast<int32_t>(images[3])};
      augment_one(image, steps + n * kStepFields, to + n * image_bytes);
    }
  });
}

}  // namespace

void register_augment_images_cpu(OpRegistry& registry);
void register_augment_images_cpu(OpRegistry& registry) {
  registry.add_kernel("augment_images", {.device = DeviceType::kCpu, .run = run_augment_images});
}

}  // namespace sinter::ops
