// Works on tiles of a few output columns: the rows under an output row are blended first, along memory, so
// that the sums vectorise, and the blended pixels then in columns. Buffers have a fixed size; where the
// columns of a tile look at more pixels than fit, they are summed up piece by piece.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/resize_images/resize_images.h>
#include <sinter/ops/resize_images/resize_images_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kTile = 64;         // output columns
constexpr int32_t kPiece = 512;       // input pixels blended at a time
constexpr int64_t kRowsPerPart = 32;  // output rows that a thread takes

/// The parts of [first, last) of blended row `out_row`, `kChannels` floats a pixel.
template <int64_t kChannels>
void blend_rows(const ResampleImage& image, const ResampleTaps& rows, float inverse_total, int64_t first,
                int64_t last, float* blended) {
  const int64_t count = (last - first) * kChannels;
  std::fill_n(blended, count, 0.0f);
  for (int32_t k = rows.first; k < rows.last; ++k) {
    const float weight = image.rows.weight(rows, k) * inverse_total;
    const uint8_t* from = image.pixels + k * image.row_bytes + first * kChannels;
    for (int64_t i = 0; i < count; ++i) blended[i] += weight * static_cast<float>(from[i]);
  }
}

/// Where a tile's results go.
template <class T>
struct Target {
  T* pixel;  ///< of column 0 of the tile's row
  int64_t pixel_step, channel_step;
};

template <class T, int64_t kChannels>
void resample_row(const ResampleImage& image, const ChannelScales& scales, int64_t out_row,
                  const ResampleTaps* columns, int64_t count, const Target<T>& target) {
  float blended[size_t{kPiece} * kChannels], sums[size_t{kTile} * kChannels] = {}, totals[kTile] = {};
  const ResampleTaps rows = image.rows.taps(out_row);
  const float inverse_total = 1.0f / image.rows.total_weight(rows);
  const int32_t begin = std::min(columns[0].first, columns[count - 1].first);
  const int32_t end = std::max(columns[0].last, columns[count - 1].last);
  for (int32_t piece = begin; piece < end; piece += kPiece) {
    const int32_t piece_end = std::min(piece + kPiece, end);
    blend_rows<kChannels>(image, rows, inverse_total, piece, piece_end, blended);
    for (int64_t x = 0; x < count; ++x) {
      for (int32_t k = std::max(columns[x].first, piece); k < std::min(columns[x].last, piece_end); ++k) {
        const float weight = image.columns.weight(columns[x], k);
        totals[x] += weight;
        for (int64_t c = 0; c < kChannels; ++c) {
          sums[x * kChannels + c] += weight * blended[(k - piece) * kChannels + c];
        }
      }
    }
  }
  for (int64_t x = 0; x < count; ++x) {
    for (int64_t c = 0; c < kChannels; ++c) {
      target.pixel[x * target.pixel_step + c * target.channel_step] =
          image_value<T>(sums[x * kChannels + c] / totals[x] * scales.scale[c] + scales.shift[c]);
    }
  }
}

template <class T, int64_t kChannels>
void resample_part(const KernelContext& context, const ChannelScales& scales, int64_t n, int64_t row_begin,
                   int64_t row_end) {
  const ImageOutput& output = context.attributes<ResizeImagesAttributes>().output;
  const ResampleImage image =
      resample_image(context.input(0).as<const uint8_t>(), context.input(0).numel(), kChannels,
                     context.input(1).as<const int64_t>() + 3 * n,
                     context.input(2).as<const double>() + 5 * n, output.height, output.width);
  const bool channels_last = output.layout == Layout::kNHWC;
  const int64_t pixel_step = channels_last ? kChannels : 1;
  const int64_t channel_step = channels_last ? 1 : output.height * output.width;
  T* batch = context.output(0).as<T>() + n * kChannels * output.height * output.width;
  for (int64_t tile = 0; tile < output.width; tile += kTile) {
    const int64_t count = std::min(kTile, output.width - tile);
    ResampleTaps columns[kTile];
    for (int64_t x = 0; x < count; ++x) {
      columns[x] = image.columns.taps(image.mirrored ? output.width - 1 - (tile + x) : tile + x);
    }
    for (int64_t y = row_begin; y < row_end; ++y) {
      const Target<T> target{batch + (y * output.width + tile) * pixel_step, pixel_step, channel_step};
      if (image.pixels != nullptr) {
        resample_row<T, kChannels>(image, scales, y, columns, count, target);
        continue;
      }
      for (int64_t i = 0; i < count * kChannels; ++i) {
        const int64_t c = i % kChannels;
        target.pixel[i / kChannels * pixel_step + c * channel_step] = image_value<T>(scales.shift[c]);
      }
    }
  }
}

void run_resize_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& [output, channels] = context.attributes<ResizeImagesAttributes>();
  const ChannelScales scales = channel_scales(output, channels);
  const int64_t parts = (output.height + kRowsPerPart - 1) / kRowsPerPart, height = output.height;
  dispatch_image_output(output.dtype, [&, channels = channels]<class T> {
    const auto resample = channels == 3 ? resample_part<T, 3> : resample_part<T, 1>;
    parallel_for(context.input(1).shape[0] * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % parts * kRowsPerPart;
        resample(context, scales, i / parts, row, std::min(row + kRowsPerPart, height));
      }
    });
  });
}

}  // namespace

void register_resize_images_cpu(OpRegistry& registry);
void register_resize_images_cpu(OpRegistry& registry) {
  registry.add_kernel("resize_images", {.device = DeviceType::kCpu, .run = run_resize_images});
}

}  // namespace sinter::ops
