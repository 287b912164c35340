#include <algorithm>
#include <cstring>
#include <type_traits>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/predict/picture.h>

namespace sinter::nn {

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

void copy_pixels(const Tensor& pixels, int64_t channels, data::Image& image) {
  const Tensor host = pixels.to(Device::cpu());
  image.reshape(host.size(0), host.size(1), host.size(2));
  std::memcpy(image.pixels.data(), host.data<uint8_t>(), image.pixels.size());
  if (image.channels % 2 == 0) data::lay_over_white(image);
  data::convert_channels(image, channels);
}

}  // namespace

Picture::Picture(const Tensor& pixels) : source_(pixels), name_("the picture") {
  SINTER_CHECK(pixels.defined() && pixels.dtype() == DType::kUInt8 && pixels.rank() == 3 &&
                   pixels.size(2) >= 1 && pixels.size(2) <= 4 && pixels.numel() > 0,
               "[picture] expected pixels uint8 (H, W, 1 to 4) but got {}",
               pixels.defined() ? fmt::format("{} {}", pixels.dtype(), pixels.shape()) : "none");
}

std::string Picture::name() const {
  const auto* const path = std::get_if<std::filesystem::path>(&source_);
  return path != nullptr ? path->string() : name_;
}

void Picture::read(const data::DecodeOptions& options, const data::DecodeHintFunction& reduction,
                   data::Image& image) const {
  if (const auto* const pixels = std::get_if<Tensor>(&source_))
    return copy_pixels(*pixels, options.channels, image);
  std::vector<uint8_t> file;
  std::span<const uint8_t> bytes;
  if (const auto* const path = std::get_if<std::filesystem::path>(&source_)) {
    data::read_file(*path, kMaxFileBytes, file);
    bytes = file;
  } else {
    bytes = std::get<std::span<const uint8_t>>(source_);
  }
  data::decode_image(bytes, name(), options, reduction, image);
}

bool Picture::read_encoded(data::EncodedSample& sample) const {
  if (const auto* const path = std::get_if<std::filesystem::path>(&source_)) {
    data::read_file(*path, kMaxFileBytes, sample.bytes);
    return true;
  }
  const auto* const bytes = std::get_if<std::span<const uint8_t>>(&source_);
  if (bytes == nullptr) return false;
  sample.bytes.assign(bytes->begin(), bytes->end());
  return true;
}

PictureSet::PictureSet(std::vector<Picture> pictures, const ModelMetadata& metadata)
    : pictures_(std::move(pictures)),
      height_(metadata.height),
      width_(metadata.width),
      channels_(metadata.channels),
      fits_(metadata.resize == "none") {}

void PictureSet::read(int64_t index, data::Sample& sample, const data::DecodeHintFunction& reduction) const {
  const Picture& picture = pictures_[checked_index(index)];
  sample.label = 0;
  data::Image& image = sample.image;
  try {
    picture.read({.channels = static_cast<int>(channels_)}, reduction, image);
  } catch (const IoError& error) {
    {
      const std::lock_guard lock(mutex_);
      errors_[index] = error.what();
    }
    if (reduction) reduction(height_, width_);  // a decoder may have asked with another size before it failed
    image.reshape(height_, width_, channels_);
    std::ranges::fill(image.pixels, uint8_t{0});
  }
  if (!fits_ || (image.height == height_ && image.width == width_)) return;
  const data::Box all{0, 0, static_cast<double>(image.height), static_cast<double>(image.width)};
  data::Image resized;
  data::resize(image, all, height_, width_, resized);
  std::swap(image, resized);
}

bool PictureSet::read_encoded(int64_t index, data::EncodedSample& sample) const {
  sample.decode = {.channels = static_cast<int>(channels_)};
  sample.label = 0;
  return pictures_[checked_index(index)].read_encoded(sample);
}

std::vector<std::string> PictureSet::take_errors(int64_t begin, int64_t end) const {
  std::vector<std::string> errors(static_cast<size_t>(end - begin));
  const std::lock_guard lock(mutex_);
  const auto first = errors_.lower_bound(begin), last = errors_.lower_bound(end);
  for (auto it = first; it != last; ++it) errors[static_cast<size_t>(it->first - begin)] = it->second;
  errors_.erase(first, last);
  return errors;
}

}  // namespace sinter::nn
