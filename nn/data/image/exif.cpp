#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include <sinter/nn/data/image/exif.h>

namespace sinter::nn::data {
namespace {

constexpr std::array<uint8_t, 6> kSignature = {'E', 'x', 'i', 'f', 0, 0};
constexpr uint16_t kOrientationTag = 0x0112;
constexpr uint16_t kTypeShort = 3;
constexpr size_t kEntryBytes = 12;

// Integers at offsets of a TIFF structure, in its own byte order; nothing beyond the end.
struct TiffReader {
  std::span<const uint8_t> bytes;
  bool big_endian = false;

  std::optional<uint32_t> read(size_t offset, size_t count) const {
    if (offset > bytes.size() || bytes.size() - offset < count) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      value = value << 8 | bytes[offset + (big_endian ? i : count - 1 - i)];
    }
    return value;
  }
};

bool has_signature(std::span<const uint8_t> bytes) {
  return bytes.size() >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

}  // namespace

int exif_orientation(std::span<const uint8_t> payload) {
  return has_signature(payload) ? tiff_orientation(payload) : 1;
}

int tiff_orientation(std::span<const uint8_t> bytes) {
  TiffReader tiff{has_signature(bytes) ? bytes.subspan(kSignature.size()) : bytes};
  if (tiff.bytes.size() < 2 || tiff.bytes[0] != tiff.bytes[1]) return 1;
  if (tiff.bytes[0] != 'I' && tiff.bytes[0] != 'M') return 1;
  tiff.big_endian = tiff.bytes[0] == 'M';
  if (tiff.read(2, 2) != 42u) return 1;

  const std::optional<uint32_t> directory = tiff.read(4, 4);
  if (!directory) return 1;
  const std::optional<uint32_t> entries = tiff.read(*directory, 2);
  if (!entries) return 1;
  for (size_t i = 0; i < *entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + i * kEntryBytes;
    const std::optional<uint32_t> tag = tiff.read(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientationTag) continue;
    if (tiff.read(entry + 2, 2) != kTypeShort || tiff.read(entry + 4, 4) != 1u) return 1;
    const std::optional<uint32_t> value = tiff.read(entry + 8, 2);
    return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

}  // namespace sinter::nn::data
