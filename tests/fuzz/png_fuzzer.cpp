// Any bytes as a PNG whose signature and checksums are right, so that what lies behind them is reached: an
// image of the size that it claims, or an IoError. The first byte chooses the options.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/data/image/files/png.h>

namespace {

constexpr size_t kSignature = 8, kAround = 12;  // bytes of a chunk besides its payload

// Writes the signature, and behind every chunk its checksum.
void seal(std::vector<uint8_t>& png) {
  const uint8_t signature[kSignature] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  if (png.size() < kSignature) png.resize(kSignature);
  std::copy(signature, signature + kSignature, png.begin());
  for (size_t at = kSignature; png.size() - at >= kAround;) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | png[at + i];
    if (length > png.size() - at - kAround) return;
    const std::span<const uint8_t> covered = std::span<const uint8_t>(png).subspan(at + 4, length + 4);
    const uint32_t crc = sinter::extend_crc32(0, std::as_bytes(covered));
    at += length + kAround;
    for (size_t i = 0; i < 4; ++i) png[at - 4 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  if (size == 0) return 0;
  const DecodeOptions options = {.channels = (*data & 1) != 0 ? 3 : 1,
                                 .apply_orientation = (*data & 2) != 0,
                                 .max_pixels = 1 << 16,
                                 .stored_values = (*data & 4) != 0};
  std::vector<uint8_t> png(data + 1, data + size);
  seal(png);
  try {
    Image image;
    decode_png(png, "fuzz", options, image);
    if (image.channels != options.channels || image.height * image.width > options.max_pixels) std::abort();
    if (image.pixels.size() != static_cast<size_t>(image.height * image.width * image.channels)) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
