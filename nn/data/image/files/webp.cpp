#include <algorithm>
#include <cstring>
#include <string_view>

#include <webp/decode.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/exif.h>
#include <sinter/nn/data/image/files/webp.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kFileHead = 12,
                 kChunkHead = 8;  // "RIFF", a length, "WEBP"; then chunks: four letters, a length

std::string_view letters(std::span<const uint8_t> bytes, size_t at) {
  return {reinterpret_cast<const char*>(&bytes[at]), 4};
}

const char* reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file is cut short";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "libwebp does not know what it uses";
    default:
      return "its data are wrong";
  }
}

void check(VP8StatusCode status, const std::string& name) {
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw_error<OutOfMemory>("[webp] {}: no memory to decode", name);
  if (status != VP8_STATUS_OK)
    throw_error<IoError>("[webp] {}: damaged or no WebP: {}", name, reason_of(status));
}

// The first EXIF chunk's, if the file is in the extended format, which alone has one.
int stored_orientation(std::span<const uint8_t> bytes) {
  for (size_t at = kFileHead; bytes.size() - at >= kChunkHead;) {
    size_t length = 0;
    for (size_t i = 4; i-- > 0;) length = length << 8 | bytes[at + 4 + i];
    if (length > bytes.size() - at - kChunkHead) return 1;
    if (letters(bytes, at) == "EXIF") return tiff_orientation(bytes.subspan(at + kChunkHead, length));
    at += kChunkHead + std::min(length + length % 2, bytes.size() - at - kChunkHead);
  }
  return 1;
}

}  // namespace

bool is_webp(std::span<const uint8_t> bytes) {
  return bytes.size() >= kFileHead && letters(bytes, 0) == "RIFF" && letters(bytes, 8) == "WEBP";
}

void decode_webp(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                 Image& image) {
  SINTER_CHECK(options.channels == 1 || options.channels == 3, "[webp] expected 1 or 3 channels but got {}",
               options.channels);
  if (!is_webp(bytes))
    throw_error<IoError>("[webp] {}: expected a file that starts with RIFF .... WEBP", name);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0)
    throw_error<InternalError>("[webp] another libwebp was built against");
  check(WebPGetFeatures(bytes.data(), bytes.size(), &config.input), name);
  const int64_t height = config.input.height, width = config.input.width;
  if (config.input.has_animation != 0)
    throw_error<IoError>("[webp] {}: expected a picture but it is animated", name);
  if (height * width > options.max_pixels) {
    throw_error<IoError>("[webp] {}: expected at most {} pixels but the image has {} x {}", name,
                         options.max_pixels, height, width);
  }
  const bool has_alpha = config.input.has_alpha != 0;
  image.reshape(height, width, has_alpha ? 4 : 3);
  config.output.colorspace = has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data(),
                          .stride = static_cast<int>(width * image.channels),
                          .size = image.pixels.size()};
  check(WebPDecode(bytes.data(), bytes.size(), &config), name);
  if (has_alpha) lay_over_white(image);
  convert_channels(image, options.channels);
  if (options.apply_orientation) orient(image, stored_orientation(bytes));
}

}  // namespace sinter::nn::data
