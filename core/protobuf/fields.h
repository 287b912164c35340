// Fields of protobuf messages, written one by one: a key of field number and wire type, then the value. A
// message is its fields one after the other, in any order.
//
// Source: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sinter::protobuf {

/// An integer of `Bytes` bytes, the lowest first.
template <int Bytes>
std::string little_endian(uint64_t value) {
  std::string text;
  for (int i = 0; i < Bytes; ++i) text.push_back(static_cast<char>(value >> 8 * i));
  return text;
}

/// Of int32, int64, bool and enum fields.
std::string integer_field(int field, int64_t value);
std::string float_field(int field, float value);
std::string double_field(int field, double value);
/// Of string and bytes fields, and of messages.
std::string bytes_field(int field, std::string_view bytes);
/// What stands before the bytes of such a field: whoever writes gigabytes writes them behind it piece by
/// piece.
std::string bytes_field_head(int field, uint64_t size);

}  // namespace sinter::protobuf
