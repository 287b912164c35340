// Copies of equally long pieces of memory, for ops that move whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace sinter::ops {
namespace detail {

/// Copies `bytes` >= kPiece bytes in pieces of a size that the compiler knows; the last may overlap.
template <int64_t kPiece>
inline void copy_pieces(std::byte* to, const std::byte* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes - kPiece; i += kPiece) std::memcpy(to + i, from + i, kPiece);
  std::memcpy(to + bytes - kPiece, from + bytes - kPiece, kPiece);
}

}  // namespace detail

/// memcpy without its price for a few bytes.
inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes > 128 || bytes <= 0) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  } else if (bytes >= 16) {
    detail::copy_pieces<16>(target, source, bytes);
  } else if (bytes >= 4) {
    detail::copy_pieces<4>(target, source, bytes);
  } else {
    for (int64_t i : {int64_t{0}, bytes / 2, bytes - 1}) target[i] = source[i];
  }
}

/// Copies `rows` pieces of `bytes` bytes, whose starts lie `to_stride` and `from_stride` bytes apart, in
/// parallel.
void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
               int64_t rows);

}  // namespace sinter::ops
