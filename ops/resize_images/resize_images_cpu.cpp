// Works on tiles of a few output columns: the rows under an output row are blended first, along memory, so
// that the sums vectorise, and the blended pixels then in columns. Buffers have a fixed size; where the
// columns of a tile look at more pixels than fit, they are summed up piece by piece.
#include <algorithm>
#include <cstring>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/resize_images/resize_images.h>
#include <sinter/ops/resize_images/resize_images_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kTile = 64;         // output columns
constexpr int32_t kPiece = 512;       // input pixels blended at a time
constexpr int64_t kRowsPerPart = 32;  // output rows that a thread takes
constexpr int32_t kMostKept = 16;     // weights of a column that are kept from row to row

/// The parts of [first, last) of blended row `out_row`, `kChannels` floats a pixel.
template <int64_t kChannels>
void blend_rows(const ResampleImage& image, const ResampleTaps& rows, float inverse_total, int64_t first,
                int64_t last, float* blended) {
  const int64_t count = (last - first) * kChannels;
  const auto weight_of = [&](int32_t k) { return image.rows.weight(rows, k) * inverse_total; };
  const uint8_t* from = image.pixels + rows.first * image.row_bytes + first * kChannels;
  const float first_weight = weight_of(rows.first);
  for (int64_t i = 0; i < count; ++i) blended[i] = first_weight * static_cast<float>(from[i]);
  for (int32_t k = rows.first + 1; k < rows.last; ++k) {
    from += image.row_bytes;
    const float weight = weight_of(k);
    for (int64_t i = 0; i < count; ++i) blended[i] += weight * static_cast<float>(from[i]);
  }
}

/// Where a tile's results go.
template <class T>
struct Target {
  T* pixel;  ///< of column 0 of the tile's row
  int64_t pixel_step, channel_step;
};

/// What the columns of a tile look at: the same in every row, so that it is computed once.
struct TileColumns {
  int64_t count = 0;
  int32_t begin = 0, end = 0;  ///< all inputs that they look at
  ResampleTaps taps[kTile];
  float weights[kTile][kMostKept];  ///< of the taps of each column and 0 behind them, where `kept`
  int32_t most_taps = 0;            ///< of any column
  float totals[kTile];
  bool kept = true;

  TileColumns(const ResampleImage& image, int64_t tile, int64_t given_count, int64_t width)
      : count(given_count) {
    for (int64_t x = 0; x < count; ++x) {
      taps[x] = image.columns.taps(image.mirrored ? width - 1 - (tile + x) : tile + x);
      totals[x] = image.columns.total_weight(taps[x]);
      most_taps = std::max(most_taps, taps[x].last - taps[x].first);
    }
    kept = most_taps <= kMostKept;
    begin = std::min(taps[0].first, taps[count - 1].first);
    end = std::max(taps[0].last, taps[count - 1].last);
    if (!kept) return;
    for (int64_t x = 0; x < count; ++x) {
      for (int32_t i = 0; i < most_taps; ++i) {
        const int32_t k = taps[x].first + i;
        weights[x][i] = k < taps[x].last ? image.columns.weight(taps[x], k) : 0.0f;
      }
    }
  }
};

/// The values of a pixel while they are summed up. Three channels have a fourth place, which is never looked
/// at, so that they are one vector.
template <int64_t kChannels>
constexpr int64_t kPlaces = kChannels == 3 ? 4 : kChannels;
template <int64_t kChannels>
using PixelSums [[gnu::vector_size(sizeof(float) * kPlaces<kChannels>)]] = float;

/// Adds what column `x` sees of the blended pixels [piece, piece_end).
template <int64_t kChannels>
void add_taps(const ResampleImage& image, const TileColumns& columns, int64_t x, int32_t piece,
              int32_t piece_end, const float* blended, PixelSums<kChannels>& sums) {
  const ResampleTaps& taps = columns.taps[x];
  const int32_t first = std::max(taps.first, piece), last = std::min(taps.last, piece_end);
  const float* from = blended + (first - piece) * kChannels;
  PixelSums<kChannels> pixel;
  for (int32_t k = first; k < last; ++k, from += kChannels) {
    const float weight = columns.kept ? columns.weights[x][k - taps.first] : image.columns.weight(taps, k);
    std::memcpy(&pixel, from, sizeof pixel);
    sums += weight * pixel;
  }
}

/// Sums up all columns over blended pixels that lie there as a whole, with zeros behind them: every column
/// takes as many steps, so that no branch depends on it.
template <int64_t kChannels>
void sum_columns(const TileColumns& columns, const float* blended, PixelSums<kChannels>* sums) {
  for (int64_t x = 0; x < columns.count; ++x) {
    const float* from = blended + (columns.taps[x].first - columns.begin) * kChannels;
    PixelSums<kChannels> sum{}, pixel;
    for (int32_t i = 0; i < columns.most_taps; ++i, from += kChannels) {
      std::memcpy(&pixel, from, sizeof pixel);
      sum += columns.weights[x][i] * pixel;
    }
    sums[x] = sum;
  }
}

template <class T, int64_t kChannels>
void resample_row(const ResampleImage& image, const ChannelScales& scales, int64_t out_row,
                  const TileColumns& columns, const Target<T>& target) {
  constexpr size_t kBehind = size_t{kMostKept} * kChannels + kPlaces<kChannels>;
  float blended[size_t{kPiece} * kChannels + kBehind];
  PixelSums<kChannels> sums[kTile];
  const ResampleTaps rows = image.rows.taps(out_row);
  const float inverse_total = 1.0f / image.rows.total_weight(rows);
  if (columns.kept && columns.end - columns.begin <= kPiece) {
    blend_rows<kChannels>(image, rows, inverse_total, columns.begin, columns.end, blended);
    std::fill_n(blended + (columns.end - columns.begin) * kChannels, kBehind, 0.0f);
    sum_columns<kChannels>(columns, blended, sums);
  } else {
    std::fill_n(sums, columns.count, PixelSums<kChannels>{});
    for (int32_t piece = columns.begin; piece < columns.end; piece += kPiece) {
      const int32_t piece_end = std::min(piece + kPiece, columns.end);
      blend_rows<kChannels>(image, rows, inverse_total, piece, piece_end, blended);
      blended[(piece_end - piece) * kChannels] = 0;  // the fourth place of the last pixel
      for (int64_t x = 0; x < columns.count; ++x)
        add_taps<kChannels>(image, columns, x, piece, piece_end, blended, sums[x]);
    }
  }
  PixelSums<kChannels> scale{}, shift{};
  for (int64_t c = 0; c < kChannels; ++c) {
    scale[c] = scales.scale[c];
    shift[c] = scales.shift[c];
  }
  const bool overshoots = image.columns.overshoots();
  for (int64_t x = 0; x < columns.count; ++x) {
    PixelSums<kChannels> mean = sums[x] / columns.totals[x];
    for (int64_t c = 0; overshoots && c < kChannels; ++c) mean[c] = cut_to_pixels(mean[c]);
    sums[x] = mean * scale + shift;
  }
  for (int64_t c = 0; c < kChannels; ++c) {
    T* const to = target.pixel + c * target.channel_step;
    for (int64_t x = 0; x < columns.count; ++x) to[x * target.pixel_step] = image_value<T>(sums[x][c]);
  }
}

template <class T, int64_t kChannels>
void resample_part(const KernelContext& context, const ChannelScales& scales, int64_t n, int64_t row_begin,
                   int64_t row_end) {
  const auto& attributes = context.attributes<ResizeImagesAttributes>();
  const ImageOutput& output = attributes.output;
  const ResampleImage image = resample_image(context.input(0).as<const uint8_t>(), context.input(0).numel(),
                                             kChannels, context.input(1).as<const int64_t>() + 3 * n,
                                             context.input(2).as<const double>() + 5 * n, output.height,
                                             output.width, attributes.filter);
  const bool channels_last = output.layout == Layout::kNHWC;
  const int64_t pixel_step = channels_last ? kChannels : 1;
  const int64_t channel_step = channels_last ? 1 : output.height * output.width;
  T* batch = context.output(0).as<T>() + n * kChannels * output.height * output.width;
  for (int64_t tile = 0; tile < output.width; tile += kTile) {
    const int64_t count = std::min(kTile, output.width - tile);
    const TileColumns columns(image, tile, count, output.width);
    for (int64_t y = row_begin; y < row_end; ++y) {
      const Target<T> target{batch + (y * output.width + tile) * pixel_step, pixel_step, channel_step};
      if (image.pixels != nullptr) {
        resample_row<T, kChannels>(image, scales, y, columns, target);
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
  const auto& [output, channels, filter] = context.attributes<ResizeImagesAttributes>();
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
