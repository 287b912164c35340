// The mask of an activation on the CPU, with a byte per element in place of a bit: loops over elements and
// bytes are vectorised, loops over bits are not.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Whether the activation passes an element on. No character type: a store of those may change any object,
/// which keeps loops from being vectorised.
enum class Sign : int8_t { kOff = 0, kOn = -1 };

/// Bytes of scratch for the signs of `count` elements.
inline size_t signs_bytes(int64_t count) {
  return (static_cast<size_t>(count) + 15) / 16 * 16;
}

/// All bits, or none, of an integer as wide as C. What follows from a condition is computed from it: on the
/// condition itself the compiler branches, or mixes vectors of different widths, and gives up on both.
template <class C>
using WideBool = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;
template <class C>
WideBool<C> widen(bool condition) {
  return static_cast<WideBool<C>>(-static_cast<WideBool<C>>(condition));
}
/// a where `first` is all bits, else b.
template <class C>
C select(WideBool<C> first, C a, C b) {
  using Bits = WideBool<C>;
  return std::bit_cast<C>((std::bit_cast<Bits>(a) & first) | (std::bit_cast<Bits>(b) & ~first));
}

namespace detail {

static_assert(std::endian::native == std::endian::little, "the first byte of a word is its lowest");
inline constexpr uint64_t kLowBits = 0x0101010101010101;  // of eight bytes

/// The lowest bits of eight bytes: the factor brings that of byte k to bit 56 + k, and no two to one place.
constexpr uint8_t bits_of(uint64_t signs) {
  return static_cast<uint8_t>((signs & kLowBits) * 0x0102040810204080 >> 56);
}
/// Eight signs, in their bytes.
constexpr uint64_t signs_of(uint8_t bits) {
  const uint64_t apart = bits * kLowBits & 0x8040201008040201;  // bit k alone in byte k
  return ((apart + 0x7F * kLowBits) >> 7 & kLowBits) * 0xFF;
}

/// Calls body(byte, elements) for every byte of a mask, in parallel, with the number of its elements.
template <class Body>
void for_mask_bytes(int64_t count, Body body) {
  parallel_for(mask_bytes(count), 4096, [=](int64_t begin, int64_t end) {
    const int64_t whole = std::min(end, count / 8);
    for (int64_t byte = begin; byte < whole; ++byte) body(byte, std::integral_constant<size_t, 8>());
    if (end > whole) body(whole, static_cast<size_t>(count % 8));
  });
}

}  // namespace detail

/// Sets bit i % 8 of byte i / 8 of the mask where signs[i] is kOn. The last bits, of no element, are 0.
inline void pack_signs(const Sign* signs, int64_t count, uint8_t* mask) {
  detail::for_mask_bytes(count, [=](int64_t byte, auto elements) {
    uint64_t word = 0;
    std::memcpy(&word, signs + byte * 8, elements);
    mask[byte] = detail::bits_of(word);
  });
}

/// The signs that `mask` was packed from.
inline void unpack_signs(const uint8_t* mask, int64_t count, Sign* signs) {
  detail::for_mask_bytes(count, [=](int64_t byte, auto elements) {
    const uint64_t word = detail::signs_of(mask[byte]);
    std::memcpy(signs + byte * 8, &word, elements);
  });
}

}  // namespace sinter::ops
