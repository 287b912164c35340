#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/faces/augment.h>
#include <sinter/ops/augment_images/augment_images_math.h>

namespace sinter::nn::data {
namespace {

using ops::ImageStep;

/// The place in [0, extent) that a step of `at` beyond a border is mirrored to.
int64_t mirrored(int64_t at, int64_t extent) {
  if (at < 0) at = -at;
  return at < extent ? at : 2 * (extent - 1) - at;
}

/// A line of an image blurred along its pixels, which are `step` bytes apart.
void blur_line(const uint8_t* from, int64_t count, int64_t step, const std::vector<double>& weights,
               double* to) {
  const auto reach = static_cast<int64_t>(weights.size()) / 2;
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0.0;
    for (int64_t k = -reach; k <= reach; ++k)
      sum += weights[static_cast<size_t>(k + reach)] * from[mirrored(i + k, count) * step];
    to[i] = sum;
  }
}

void resample(const Image& image, int64_t height, int64_t width, Resampling how, Image& out) {
  if (how == Resampling::kArea) return resize(image, height, width, out);
  out.reshape(height, width, image.channels);
  const double rows = static_cast<double>(image.height) / static_cast<double>(height);
  const double columns = static_cast<double>(image.width) / static_cast<double>(width);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double at_y = (static_cast<double>(y) + 0.5) * rows,
                   at_x = (static_cast<double>(x) + 0.5) * columns;
      uint8_t* const to = out.row(y) + x * image.channels;
      if (how == Resampling::kNearest) {
        const uint8_t* const from =
            image.row(static_cast<int64_t>(at_y)) + static_cast<int64_t>(at_x) * image.channels;
        std::copy_n(from, image.channels, to);
        continue;
      }
      const double top = std::max(at_y - 0.5, 0.0), left = std::max(at_x - 0.5, 0.0);
      const auto y0 = static_cast<int64_t>(top), x0 = static_cast<int64_t>(left);
      const int64_t y1 = std::min(y0 + 1, image.height - 1), x1 = std::min(x0 + 1, image.width - 1);
      const double down = top - static_cast<double>(y0), right = left - static_cast<double>(x0);
      for (int64_t c = 0; c < image.channels; ++c) {
        const auto pixel = [&](int64_t row, int64_t column) {
          return static_cast<double>(image.row(row)[column * image.channels + c]);
        };
        const double value = (1 - down) * ((1 - right) * pixel(y0, x0) + right * pixel(y0, x1)) +
                             down * ((1 - right) * pixel(y1, x0) + right * pixel(y1, x1));
        to[c] = static_cast<uint8_t>(value + 0.5);
      }
    }
  }
}

/// A factor on brightness, contrast or saturation, or a turn of the hue.
void apply_colour(Image& image, ImageStep step, double value) {
  const auto p0 = static_cast<int32_t>(std::lround(value * ops::kStepOne));
  const int64_t pixels = image.height * image.width;
  ops::ImageStatistics whole;
  if (step == ImageStep::kContrast) {
    int64_t sum = 0;
    for (int64_t i = 0; i < pixels; ++i) sum += ops::grey_of(image.pixels.data() + 3 * i);
    whole.grey_mean = sum * ops::kStepOne / pixels;
  }
  for (int64_t i = 0; i < pixels; ++i) {
    uint8_t* const pixel = image.pixels.data() + 3 * i;
    if (step == ImageStep::kHue) {
      const std::array<uint8_t, 3> own = {pixel[0], pixel[1], pixel[2]};
      ops::turn_hue(own.data(), p0, pixel);
      continue;
    }
    const int64_t grey = step == ImageStep::kSaturation ? ops::grey_of(pixel) : 0;
    for (int c = 0; c < 3; ++c)
      pixel[c] = step == ImageStep::kSaturation ? ops::blend(pixel[c], grey, p0)
                                                : ops::table_value(step, p0, pixel[c], whole, {}, 0);
  }
}

/// Draws of one image. `take` is true with a probability.
struct Draws {
  SampleRandom& random;

  bool take(double probability) { return static_cast<double>(random.uniform()) < probability; }
  double between(double low, double high) { return random.uniform(low, high); }
};

int64_t part_of(int64_t pixels, double share) {
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(pixels)));
}

void change_as_insightface(Image& image, Draws draws) {
  if (draws.take(0.1)) {
    const double share = draws.between(56.0 / 112.0, 89.0 / 112.0);
    resize_and_back(image, part_of(image.height, share), part_of(image.width, share));
  }
  if (draws.take(0.2)) gaussian_blur(image, draws.take(0.5) ? 5 : 3);
  if (draws.take(0.2)) {
    apply_colour(image, ImageStep::kHue, draws.between(0.0, 20.0 / 360.0));
    apply_colour(image, ImageStep::kSaturation, draws.between(1.0, 1.2));
  }
  if (draws.take(0.1)) apply_colour(image, ImageStep::kSaturation, 0.0);
}

/// A window as torchvision's RandomResizedCrop draws it; the whole image after ten that do not fit.
Box draw_box(const Image& image, Draws draws) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = height * width * draws.between(0.2, 1.0);
    const double aspect = std::exp(draws.between(std::log(3.0 / 4.0), std::log(4.0 / 3.0)));
    const double h = std::sqrt(area / aspect), w = std::sqrt(area * aspect);
    const double y = draws.between(0, 1), x = draws.between(0, 1);
    if (h <= height && w <= width) return {y * (height - h), x * (width - w), h, w};
  }
  return {0, 0, height, width};
}

void change_as_adaface(Image& image, Draws draws) {
  if (draws.take(0.2)) keep_box(image, draw_box(image, draws));
  if (draws.take(0.2)) {
    const double share = draws.between(0.2, 1.0);
    const auto down = static_cast<Resampling>(draws.random.below(3)),
               up = static_cast<Resampling>(draws.random.below(3));
    resize_and_back(image, part_of(image.height, share), part_of(image.width, share), down, up);
  }
  if (!draws.take(0.2)) return;
  std::array<ImageStep, 3> order = {ImageStep::kBrightness, ImageStep::kContrast, ImageStep::kSaturation};
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.random.below(i)]);
  for (const ImageStep step : order) apply_colour(image, step, draws.between(0.5, 1.5));
}

TransformPtr on_colour(const char* tag, void (*change)(Image&, Draws)) {
  return make_transform([tag, change](Sample& sample, SampleRandom& random) {
    SINTER_CHECK(sample.image.channels == 3, "[{}] expected an image of 3 channels but got {}", tag,
                 sample.image.channels);
    change(sample.image, Draws{random});
  });
}

}  // namespace

void resize_and_back(Image& image, int64_t height, int64_t width, Resampling down, Resampling up) {
  SINTER_CHECK(height > 0 && width > 0 && image.height > 0 && image.width > 0,
               "[resize_and_back] expected sizes of at least 1 x 1 but got {} x {} of {} x {}", height, width,
               image.height, image.width);
  const int64_t own_height = image.height, own_width = image.width;
  Image small;
  resample(image, height, width, down, small);
  resample(small, own_height, own_width, up, image);
}

void gaussian_blur(Image& image, int64_t window) {
  SINTER_CHECK(window % 2 == 1 && window > 0 && window <= 2 * std::min(image.height, image.width) - 1,
               "[gaussian_blur] expected an odd window that fits into an image of {} x {} but got {}",
               image.height, image.width, window);
  const int64_t reach = window / 2, channels = image.channels, row_bytes = image.width * channels;
  const double deviation = 0.3 * (static_cast<double>(reach) - 1.0) + 0.8;
  std::vector<double> weights;
  double sum = 0.0;
  for (int64_t k = -reach; k <= reach; ++k) {
    weights.push_back(std::exp(-0.5 * std::pow(static_cast<double>(k) / deviation, 2.0)));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  std::vector<double> rows(static_cast<size_t>(image.height * row_bytes));
  std::vector<double> line(static_cast<size_t>(image.width));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t c = 0; c < channels; ++c) {
      blur_line(image.row(y) + c, image.width, channels, weights, line.data());
      for (int64_t x = 0; x < image.width; ++x)
        rows[static_cast<size_t>(y * row_bytes + x * channels + c)] = line[static_cast<size_t>(x)];
    }
  }
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t i = 0; i < row_bytes; ++i) {
      double value = 0.0;
      for (int64_t k = -reach; k <= reach; ++k)
        value += weights[static_cast<size_t>(k + reach)] *
                 rows[static_cast<size_t>(mirrored(y + k, image.height) * row_bytes + i)];
      image.row(y)[i] = static_cast<uint8_t>(value + 0.5);
    }
  }
}

void keep_box(Image& image, const Box& box) {
  const auto top = std::llround(box.top), bottom = std::llround(box.top + box.height);
  const auto left = std::llround(box.left), right = std::llround(box.left + box.width);
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      if (y >= top && y < bottom && x >= left && x < right) continue;
      std::fill_n(image.row(y) + x * image.channels, image.channels, uint8_t{0});
    }
  }
}

TransformPtr insightface_augmentation() {
  return on_colour("insightface_augmentation", change_as_insightface);
}

TransformPtr adaface_augmentation() {
  return on_colour("adaface_augmentation", change_as_adaface);
}

}  // namespace sinter::nn::data
