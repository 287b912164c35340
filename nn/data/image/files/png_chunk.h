// A PNG is a signature and chunks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <sinter/core/file_system/file_system.h>

namespace sinter::nn::data {

inline constexpr std::array<uint8_t, 8> kPngSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
inline constexpr int64_t kMostPngExtent = 1 << 20;
inline constexpr size_t kMostPngChunkBytes = 1 << 23;
/// So few bytes cannot hold so many: at best a byte of deflate stands for 258 * 4. Source: RFC 1951.
inline constexpr int64_t kMostPngPacked = 1032;

inline uint32_t load_be32(const uint8_t* from) {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | uint32_t{from[3]};
}

/// A chunk: its length, four letters, what it holds, a checksum of letters and contents.
struct PngChunk {
  static constexpr size_t kHeadBytes = 8, kChecksumBytes = 4;  // before and behind what it holds
  std::span<const uint8_t> whole;

  std::string_view type() const { return {reinterpret_cast<const char*>(&whole[4]), 4}; }
  std::span<const uint8_t> payload() const {
    return whole.subspan(kHeadBytes, whole.size() - kHeadBytes - kChecksumBytes);
  }
  bool is_critical() const { return type().front() >= 'A' && type().front() <= 'Z'; }
  bool is_sound() const {
    return extend_crc32(0, std::as_bytes(whole.subspan(4, whole.size() - 8))) ==
           load_be32(&whole[whole.size() - kChecksumBytes]);
  }
};

/// The chunk that `rest` begins with; none if it is no whole one.
inline std::optional<PngChunk> first_png_chunk(std::span<const uint8_t> rest) {
  constexpr size_t kAround = PngChunk::kHeadBytes + PngChunk::kChecksumBytes;
  if (rest.size() < kAround) return std::nullopt;
  const size_t length = load_be32(rest.data());
  if (length > rest.size() - kAround) return std::nullopt;
  const PngChunk chunk{rest.first(length + kAround)};
  const bool has_letters = std::ranges::all_of(
      chunk.type(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return has_letters ? std::optional(chunk) : std::nullopt;
}

}  // namespace sinter::nn::data
