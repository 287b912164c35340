#include <algorithm>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/netpbm.h>

namespace sinter::nn::data {
namespace {

bool is_space(uint8_t byte) {
  return byte == ' ' || (byte >= '\t' && byte <= '\r');
}
bool is_digit(uint8_t byte) {
  return byte >= '0' && byte <= '9';
}

// Reads the numbers of a header: separated by white space and by comments from # to the end of the line.
class HeaderReader {
 public:
  HeaderReader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  int64_t number(const char* what, int64_t most) {
    skip_space();
    const size_t start = at_;
    int64_t value = 0;
    while (at_ < bytes_.size() && is_digit(bytes_[at_]) && value <= most)
      value = value * 10 + (bytes_[at_++] - '0');
    if (at_ == start || value < 1 || value > most) {
      throw_error<IoError>("[netpbm] {}: expected a {} from 1 to {} at byte {}", name_, what, most, start);
    }
    return value;
  }
  // The single white-space byte before the pixels.
  size_t end() {
    if (at_ >= bytes_.size() || !is_space(bytes_[at_])) {
      throw_error<IoError>("[netpbm] {}: expected white space after the header at byte {}", name_, at_);
    }
    return at_ + 1;
  }

 private:
  void skip_space() {
    while (at_ < bytes_.size() && (is_space(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
      } else {
        ++at_;
      }
    }
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t at_ = 2;  // after the magic
};

}  // namespace

bool is_netpbm(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
         (is_space(bytes[2]) || bytes[2] == '#');
}

void decode_netpbm(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                   Image& image) {
  constexpr int64_t kMaxExtent = 1 << 20;
  SINTER_CHECK(options.channels == 1 || options.channels == 3, "[netpbm] expected 1 or 3 channels but got {}",
               options.channels);
  if (!is_netpbm(bytes)) throw_error<IoError>("[netpbm] {}: expected a file that starts with P5 or P6", name);
  HeaderReader header(bytes, name);
  const int64_t width = header.number("width", kMaxExtent);
  const int64_t height = header.number("height", kMaxExtent);
  const int64_t maximum = header.number("maximum value", 255);
  const std::span<const uint8_t> values = bytes.subspan(header.end());
  const int64_t channels = bytes[1] == '5' ? 1 : 3;
  if (options.stored_values && channels != 1)
    throw_error<IoError>("[netpbm] {}: expected a mask, a PGM (P5), but got a PPM", name);
  if (height * width > options.max_pixels) {
    throw_error<IoError>("[netpbm] {}: expected at most {} pixels but the image has {} x {}", name,
                         options.max_pixels, height, width);
  }
  if (values.size() != static_cast<size_t>(height * width * channels)) {
    throw_error<IoError>(
        "[netpbm] {}: expected {} bytes for {} x {} x {} pixels from byte {} on but the file has {}", name,
        height * width * channels, height, width, channels, bytes.size() - values.size(), values.size());
  }
  if (const auto over = std::find_if(values.begin(), values.end(), [&](uint8_t v) { return v > maximum; });
      over != values.end()) {
    throw_error<IoError>("[netpbm] {}: expected values up to {} but got {} at byte {}", name, maximum, *over,
                         bytes.size() - static_cast<size_t>(values.end() - over));
  }
  image.reshape(height, width, channels);
  std::transform(values.begin(), values.end(), image.pixels.begin(), [&](uint8_t value) {
    return maximum == 255 || options.stored_values
               ? value
               : static_cast<uint8_t>((value * 255 + maximum / 2) / maximum);
  });
  convert_channels(image, options.channels);
}

}  // namespace sinter::nn::data
