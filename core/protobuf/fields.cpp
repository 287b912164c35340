#include <bit>

#include <sinter/core/protobuf/fields.h>

namespace sinter::protobuf {
namespace {

enum WireType : int { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Seven bits a byte, the lowest first; all but the last have their highest bit set.
std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

std::string key(int field, WireType type) {
  return varint(static_cast<uint64_t>(field << 3 | type));
}

}  // namespace

std::string integer_field(int field, int64_t value) {
  return key(field, kVarint) + varint(static_cast<uint64_t>(value));
}

std::string float_field(int field, float value) {
  return key(field, kFixed32) + little_endian<4>(std::bit_cast<uint32_t>(value));
}

std::string double_field(int field, double value) {
  return key(field, kFixed64) + little_endian<8>(std::bit_cast<uint64_t>(value));
}

std::string bytes_field(int field, std::string_view bytes) {
  return bytes_field_head(field, bytes.size()) + std::string(bytes);
}

std::string bytes_field_head(int field, uint64_t size) {
  return key(field, kBytes) + varint(size);
}

}  // namespace sinter::protobuf
