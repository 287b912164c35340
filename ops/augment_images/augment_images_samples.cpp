// The reference works in real numbers on whole images, as the papers and Pillow's manual say it.
#include <algorithm>
#include <cmath>
#include <functional>

#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/common/samples/image_samples.h>

namespace sinter::ops {
namespace {

constexpr double kOne = 65536.0;
constexpr auto kLastStep = static_cast<int64_t>(ImageStep::kBlurY);

/// Parameters that make sense, and now and then any numbers at all.
std::vector<int32_t> random_parameters(SampleMaker& maker, ImageStep step, const Shape& image) {
  std::vector<int32_t> p(7);
  const auto fixed = [&](double low, double high) {
    return static_cast<int32_t>(kOne * maker.uniform(low, high));
  };
  if (maker.chance(0.05)) {
    for (int32_t& value : p) value = static_cast<int32_t>(maker.integer(INT32_MIN, INT32_MAX));
  } else if (step == ImageStep::kAffine) {
    const double most = static_cast<double>(std::max(image[0], image[1]));
    for (const size_t i : {0U, 4U}) p[i] = maker.chance(0.3) ? kStepOne : fixed(-1.5, 1.5);
    for (const size_t i : {1U, 3U}) p[i] = maker.chance(0.3) ? 0 : fixed(-1, 1);
    for (const size_t i : {2U, 5U}) p[i] = maker.chance(0.3) ? kStepOne : fixed(-most, most);
  } else if (step == ImageStep::kHue) {
    p[0] = fixed(-1.5, 1.5);
  } else if (step == ImageStep::kPosterize) {
    p[0] = static_cast<int32_t>(maker.integer(-1, 9));
  } else if (step == ImageStep::kSolarize || step == ImageStep::kSolarizeAdd) {
    p[0] = static_cast<int32_t>(maker.integer(-1, 257));
  } else if (step == ImageStep::kBlurX || step == ImageStep::kBlurY) {
    for (int32_t& weight : p) weight = maker.chance(0.2) ? 0 : fixed(0, 0.15);
  } else {
    p[0] = maker.chance(0.1) ? kStepOne : fixed(0, 2);
  }
  return p;
}

OpSample make_augment_images(SampleMaker& maker) {
  const bool large = maker.chance(0.08);  // enough pixels for equalize to have something to do
  const Shape base = large ? Shape{2, maker.integer(40, 120), maker.integer(40, 120)} : maker.shape(3, 17);
  const Shape shape{base[0], base[1], base[2], maker.chance(0.7) ? 3 : 1};
  const Tensor images = random_bytes(maker, shape),
               steps = Tensor::empty({shape[0], kStepFields}, DType::kInt32);
  const int64_t bytes = Shape{shape[1], shape[2], shape[3]}.numel();
  for (int64_t n = 0; n < shape[0]; ++n) {
    const auto step = static_cast<ImageStep>(maker.integer(0, kLastStep));
    int32_t* row = steps.data<int32_t>() + n * kStepFields;
    row[0] = maker.chance(0.03) ? static_cast<int32_t>(maker.integer(kLastStep + 1, INT32_MAX))
                                : static_cast<int32_t>(step);
    std::ranges::copy(random_parameters(maker, step, {shape[1], shape[2]}), row + 1);
    if (!maker.chance(0.3)) continue;  // few values, or one
    const auto levels = static_cast<int>(maker.integer(1, 4));
    for (int64_t i = n * bytes; i < (n + 1) * bytes; ++i) {
      uint8_t& byte = images.data<uint8_t>()[i];
      byte = static_cast<uint8_t>(40 + byte % levels * 50);
    }
  }
  return {{images, steps}, {}};
}

/// An image in real numbers.
struct Picture {
  int64_t height, width, channels;
  std::vector<double> values;

  double& at(int64_t y, int64_t x, int64_t c) {
    return values[static_cast<size_t>((y * width + x) * channels + c)];
  }
  double at(int64_t y, int64_t x, int64_t c) const {
    return values[static_cast<size_t>((y * width + x) * channels + c)];
  }
  double grey(int64_t y, int64_t x) const {
    if (channels == 1) return at(y, x, 0);
    const double sum =
        19595 * at(y, x, 0) + 38470 * at(y, x, 1) + 7471 * at(y, x, 2);  // sum of factors: 65536
    return std::floor(sum / kOne + 0.5);
  }
};

double cut(double value) {
  return std::clamp(std::floor(value), 0.0, 255.0);
}

using NewValue = std::function<double(int64_t y, int64_t x, int64_t c)>;

Picture map(const Picture& picture, const NewValue& value) {
  Picture result = picture;
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) {
      for (int64_t c = 0; c < picture.channels; ++c) result.at(y, x, c) = value(y, x, c);
    }
  }
  return result;
}

Picture warped(const Picture& from, const int32_t* p) {
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    const double px = static_cast<double>(x) + 0.5, py = static_cast<double>(y) + 0.5;
    const double left = std::floor((p[0] * px + p[1] * py + p[2]) / kOne);
    const double top = std::floor((p[3] * px + p[4] * py + p[5]) / kOne);
    const bool inside = left >= 0 && top >= 0 && left < static_cast<double>(from.width) &&
                        top < static_cast<double>(from.height);
    return inside ? from.at(static_cast<int64_t>(top), static_cast<int64_t>(left), c) : 0.0;
  });
}

Picture with_contrast(const Picture& from, double factor) {
  double sum = 0;
  for (int64_t y = 0; y < from.height; ++y) {
    for (int64_t x = 0; x < from.width; ++x) sum += from.grey(y, x);
  }
  const double mean = std::floor(kOne * sum / static_cast<double>(from.height * from.width)) / kOne;
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    return cut(from.at(y, x, c) * factor + mean * (1 - factor));
  });
}

/// Red, green and blue lie on a circle of six sixths; each is full within a sixth of its place, and falls to
/// nothing over the next. Places are scaled by d, so that all of them are exact in double.
Picture with_hue(const Picture& from, int32_t turn) {
  if (from.channels == 1) return from;
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    const double r = from.at(y, x, 0), g = from.at(y, x, 1), b = from.at(y, x, 2);
    const double least = std::min({r, g, b}), largest = std::max({r, g, b}), d = largest - least;
    if (d == 0) return from.at(y, x, c);
    double hue = largest == r ? g - b : largest == g ? b - r + 2 * d : r - g + 4 * d;
    hue += 6 * d * (turn % 65536) / kOne;
    hue = std::fmod(std::fmod(hue, 6 * d) + 6 * d, 6 * d);
    double distance = std::abs(hue - 2 * d * static_cast<double>(c));
    distance = std::min(distance, 6 * d - distance);
    return std::floor(least + std::clamp(2 * d - distance, 0.0, d) + 0.5);
  });
}

Picture with_sharpness(const Picture& from, double factor) {
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    if (y == 0 || x == 0 || y + 1 == from.height || x + 1 == from.width) return from.at(y, x, c);
    double sum = 0;
    for (int64_t i = 0; i < 9; ++i) sum += (i == 4 ? 5 : 1) * from.at(y + i / 3 - 1, x + i % 3 - 1, c);
    return cut(from.at(y, x, c) * factor + std::round(sum / 13) * (1 - factor));
  });
}

/// The sorted values of each channel.
std::vector<std::vector<double>> sorted_channels(const Picture& picture) {
  std::vector<std::vector<double>> channels(static_cast<size_t>(picture.channels));
  for (size_t i = 0; i < picture.values.size(); ++i) {
    channels[i % channels.size()].push_back(picture.values[i]);
  }
  for (auto& values : channels) std::ranges::sort(values);
  return channels;
}

Picture with_autocontrast(const Picture& from) {
  const auto channels = sorted_channels(from);
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    const auto& values = channels[static_cast<size_t>(c)];
    const double least = values.front(), range = values.back() - least, value = from.at(y, x, c);
    return range == 0 ? value : std::floor((value - least) * 255 / range);
  });
}

/// Pixels that are not of the largest value, shared out among 255 steps.
Picture equalized(const Picture& from) {
  const auto channels = sorted_channels(from);
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    const auto& values = channels[static_cast<size_t>(c)];
    const double value = from.at(y, x, c);
    const auto smaller = [&](double than) {
      return static_cast<double>(std::ranges::lower_bound(values, than) - values.begin());
    };
    const double step = std::floor(smaller(values.back()) / 255);
    if (step == 0) return value;
    return std::min(255.0, std::floor((smaller(value) + std::floor(step / 2)) / step));
  });
}

/// Of a row that goes on, mirrored at both ends, for ever.
int64_t mirrored(int64_t at, int64_t extent) {
  while (extent > 1 && (at < 0 || at >= extent)) at = at < 0 ? -at : 2 * (extent - 1) - at;
  return extent > 1 ? at : 0;
}

Picture with_blur(const Picture& from, const int32_t* p, bool along_x) {
  return map(from, [&](int64_t y, int64_t x, int64_t c) {
    double sum = 0;
    for (int64_t distance = -6; distance <= 6; ++distance) {
      const int64_t from_y = along_x ? y : mirrored(y + distance, from.height);
      const int64_t from_x = along_x ? mirrored(x + distance, from.width) : x;
      sum += p[std::abs(distance)] * from.at(from_y, from_x, c);
    }
    return cut(sum / kOne + 0.5);
  });
}

Picture augmented(const Picture& from, const int32_t* row) {
  const double factor = row[1] / kOne;
  const auto each = [&](const std::function<double(double)>& value) {
    return map(from, [&](int64_t y, int64_t x, int64_t c) { return value(from.at(y, x, c)); });
  };
  switch (static_cast<ImageStep>(row[0])) {
    case ImageStep::kAffine:
      return warped(from, row + 1);
    case ImageStep::kBrightness:
      return each([&](double value) { return cut(value * factor); });
    case ImageStep::kContrast:
      return with_contrast(from, factor);
    case ImageStep::kSaturation:
      if (from.channels == 1) return from;
      return map(from, [&](int64_t y, int64_t x, int64_t c) {
        return cut(from.at(y, x, c) * factor + from.grey(y, x) * (1 - factor));
      });
    case ImageStep::kHue:
      return with_hue(from, row[1]);
    case ImageStep::kSharpness:
      return with_sharpness(from, factor);
    case ImageStep::kPosterize: {
      const double unit = std::exp2(8 - std::clamp(row[1], 0, 8));
      return each([&](double value) { return std::floor(value / unit) * unit; });
    }
    case ImageStep::kSolarize:
      return each([&](double value) { return value < row[1] ? value : 255 - value; });
    case ImageStep::kSolarizeAdd:
      return each([&](double value) { return value < 128 ? cut(value + row[1]) : value; });
    case ImageStep::kBlurX:
    case ImageStep::kBlurY:
      return with_blur(from, row + 1, static_cast<ImageStep>(row[0]) == ImageStep::kBlurX);
    case ImageStep::kAutocontrast:
      return with_autocontrast(from);
    case ImageStep::kEqualize:
      return equalized(from);
    default:
      return from;
  }
}

std::vector<ReferenceTensor> augment_images_reference(const OpSample& sample) {
  const Shape& shape = sample.inputs[0].shape();
  ReferenceTensor values = reference_of(sample.inputs[0]);
  if (values.values.empty()) return {values};
  const int64_t bytes = shape[1] * shape[2] * shape[3];
  for (int64_t n = 0; n < shape[0]; ++n) {
    const auto begin = values.values.begin() + n * bytes;
    const Picture picture{shape[1], shape[2], shape[3], {begin, begin + bytes}};
    const Picture result = augmented(picture, sample.inputs[1].data<int32_t>() + n * kStepFields);
    std::ranges::copy(result.values, begin);
  }
  return {values};
}

}  // namespace

void register_augment_images_samples(SampleRegistry& registry);
void register_augment_images_samples(SampleRegistry& registry) {
  registry.add({.op = "augment_images",
                .make = make_augment_images,
                .reference = augment_images_reference,
                .dtypes = {DType::kUInt8},
                .check_gradient = false});
}

}  // namespace sinter::ops
