#include <algorithm>
#include <cmath>
#include <cstring>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/resize.h>

namespace sinter::nn::data {
namespace {

// For every output position of one axis: the inputs that it averages, `taps` weights each (unused ones are
// 0).
struct Filter {
  std::vector<int64_t> first;
  std::vector<float> weights;
  int64_t taps = 0;
};

// Keys' cubic for a = -1/2.
double cubic(double distance) {
  if (distance < 1) return (1.5 * distance - 2.5) * distance * distance + 1;
  return distance < 2 ? ((-0.5 * distance + 2.5) * distance - 4) * distance + 2 : 0;
}

// The filter over the part [start, start + extent) of an axis of `inputs` pixels.
Filter make_filter(int64_t inputs, double start, double extent, int64_t outputs, ResizeFilter kind) {
  const double step = extent / static_cast<double>(outputs);
  const double scale = std::max(step, 1.0), radius = kind == ResizeFilter::kBicubic ? 2 * scale : scale;
  const auto weight_at = [&](double from_centre) {
    const double distance = std::abs(from_centre) / scale;
    return kind == ResizeFilter::kBicubic ? cubic(distance) : std::max(0.0, 1.0 - distance);
  };
  Filter filter;
  filter.taps = std::min(inputs, static_cast<int64_t>(std::ceil(radius)) * 2 + 1);
  filter.first.resize(static_cast<size_t>(outputs));
  filter.weights.assign(static_cast<size_t>(outputs * filter.taps), 0.0f);
  for (int64_t i = 0; i < outputs; ++i) {
    const double centre = start + (static_cast<double>(i) + 0.5) * step;
    // Inputs whose centres (k + 1/2) are nearer than the radius.
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - radius + 0.5)));
    const int64_t last = std::min(inputs, static_cast<int64_t>(std::floor(centre + radius + 0.5)));
    const int64_t base = std::clamp<int64_t>(first, 0, inputs - filter.taps);
    float* weights = filter.weights.data() + i * filter.taps;
    double total = 0;
    for (int64_t k = first; k < last; ++k) {
      total += weight_at(static_cast<double>(k) + 0.5 - centre);
    }
    for (int64_t k = first; k < last; ++k) {
      const double weight = weight_at(static_cast<double>(k) + 0.5 - centre);
      weights[k - base] = static_cast<float>(weight / total);
    }
    filter.first[static_cast<size_t>(i)] = base;
  }
  return filter;
}

// Sums the rows under the filter at output row `y`, from value `skip` of each row on.
void blend_rows(const Image& image, const Filter& filter, int64_t y, int64_t skip, std::vector<float>& out) {
  const auto count = static_cast<int64_t>(out.size());
  std::fill(out.begin(), out.end(), 0.0f);
  for (int64_t tap = 0; tap < filter.taps; ++tap) {
    const float weight = filter.weights[static_cast<size_t>(y * filter.taps + tap)];
    if (weight == 0.0f) continue;
    const uint8_t* row = image.row(filter.first[static_cast<size_t>(y)] + tap) + skip;
    float* to = out.data();
    for (int64_t i = 0; i < count; ++i) to[i] += weight * static_cast<float>(row[i]);
  }
}

template <size_t kChannels>
void blend_columns(const std::vector<float>& row, const Filter& filter, int64_t width, uint8_t* out) {
  const int64_t begin = filter.first.front();  // the first column in `row`
  for (int64_t x = 0; x < width; ++x, out += kChannels) {
    const float* weights = filter.weights.data() + x * filter.taps;
    const float* from = row.data() + (filter.first[static_cast<size_t>(x)] - begin) * int64_t{kChannels};
    float sums[kChannels] = {};
    for (int64_t tap = 0; tap < filter.taps; ++tap, from += kChannels) {
      for (size_t c = 0; c < kChannels; ++c) sums[c] += weights[tap] * from[c];
    }
    for (size_t c = 0; c < kChannels; ++c)
      out[c] = static_cast<uint8_t>(std::clamp(sums[c] + 0.5f, 0.0f, 255.0f));
  }
}

}  // namespace

void resize(const Image& image, const Box& box, int64_t height, int64_t width, Image& out,
            ResizeFilter filter) {
  constexpr double kSlack = 1e-6;  // of the rounding of whoever computed the box
  const bool inside = box.top >= -kSlack && box.left >= -kSlack && box.height > 0 && box.width > 0 &&
                      box.top + box.height <= static_cast<double>(image.height) + kSlack &&
                      box.left + box.width <= static_cast<double>(image.width) + kSlack;
  SINTER_CHECK(inside, "[resize] expected a box inside the {} x {} image but got {} x {} at ({}, {})",
               image.height, image.width, box.height, box.width, box.top, box.left);
  SINTER_CHECK(height > 0 && width > 0, "[resize] expected an output of at least 1 x 1 but got {} x {}",
               height, width);
  SINTER_CHECK(image.channels == 1 || image.channels == 3, "[resize] expected 1 or 3 channels but got {}",
               image.channels);
  const Filter rows = make_filter(image.height, box.top, box.height, height, filter);
  const Filter columns = make_filter(image.width, box.left, box.width, width, filter);
  out.reshape(height, width, image.channels);
  // Rows first: their sums run along memory, so they vectorise; one blended row then lies in the cache for
  // the columns.
  const int64_t first_column = columns.first.front();
  const int64_t end_column = columns.first.back() + columns.taps;
  std::vector<float> row(static_cast<size_t>((end_column - first_column) * image.channels));
  for (int64_t y = 0; y < height; ++y) {
    blend_rows(image, rows, y, first_column * image.channels, row);
    if (image.channels == 1) {
      blend_columns<1>(row, columns, width, out.row(y));
    } else {
      blend_columns<3>(row, columns, width, out.row(y));
    }
  }
}

void resize(const Image& image, int64_t height, int64_t width, Image& out, ResizeFilter filter) {
  resize(image, {0, 0, static_cast<double>(image.height), static_cast<double>(image.width)}, height, width,
         out, filter);
}

}  // namespace sinter::nn::data
