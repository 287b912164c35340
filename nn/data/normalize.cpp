#include <cmath>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/normalize.h>

namespace sinter::nn::data {
namespace {

// A fixed number of channels lets the compiler keep the scales in registers and vectorise over pixels.
template <int kChannels>
void write_nhwc(const uint8_t* from, int64_t pixels, const float* scale, const float* shift, float* to) {
  for (int64_t i = 0; i < pixels; ++i) {
    for (int c = 0; c < kChannels; ++c) {
      to[i * kChannels + c] = static_cast<float>(from[i * kChannels + c]) * scale[c] + shift[c];
    }
  }
}

template <int kChannels>
void write_nchw(const uint8_t* from, int64_t pixels, const float* scale, const float* shift, float* to) {
  for (int c = 0; c < kChannels; ++c, to += pixels) {
    const float a = scale[c], b = shift[c];
    for (int64_t i = 0; i < pixels; ++i) to[i] = static_cast<float>(from[i * kChannels + c]) * a + b;
  }
}

void write_any(const Image& image, Layout layout, const float* scale, const float* shift, float* to) {
  const int64_t pixels = image.height * image.width, channels = image.channels;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < pixels; ++i) {
      const int64_t at = layout == Layout::kNCHW ? c * pixels + i : i * channels + c;
      to[at] = static_cast<float>(image.pixels[static_cast<size_t>(i * channels + c)]) * scale[c] + shift[c];
    }
  }
}

}  // namespace

Normalization imagenet_normalization() {
  return {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
}
Normalization cifar10_normalization() {
  return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
}
Normalization symmetric_normalization() {
  return {{0.5f}, {0.5f}};
}

Normalizer::Normalizer(const Normalization& normalization, int64_t channels) {
  const auto& [mean, std] = normalization;
  const auto count = static_cast<size_t>(channels);
  SINTER_CHECK(mean.size() == 1 || mean.size() == count, "[normalize] expected 1 or {} means but got {}",
               channels, mean.size());
  SINTER_CHECK(std.size() == 1 || std.size() == count, "[normalize] expected 1 or {} deviations but got {}",
               channels, std.size());
  for (size_t c = 0; c < count; ++c) {
    const float m = mean[mean.size() == 1 ? 0 : c], s = std[std.size() == 1 ? 0 : c];
    SINTER_CHECK(std::isfinite(m) && std::isfinite(s) && s > 0,
                 "[normalize] expected a finite mean and a deviation > 0 but got {} and {}", m, s);
    scale_.push_back(1.0f / (255.0f * s));
    shift_.push_back(-m / s);
  }
}

void Normalizer::write(const Image& image, Layout layout, float* out) const {
  const int64_t pixels = image.height * image.width;
  const uint8_t* from = image.pixels.data();
  if (image.channels == 3 && layout == Layout::kNHWC) {
    write_nhwc<3>(from, pixels, scale_.data(), shift_.data(), out);
  } else if (image.channels == 3) {
    write_nchw<3>(from, pixels, scale_.data(), shift_.data(), out);
  } else if (image.channels == 1) {
    write_nchw<1>(from, pixels, scale_.data(), shift_.data(), out);  // the layouts are the same
  } else {
    write_any(image, layout, scale_.data(), shift_.data(), out);
  }
}

}  // namespace sinter::nn::data
