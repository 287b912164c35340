// The mask of an activation on the CPU, with a byte per element in place of a bit: loops over elements and
// bytes are vectorised, loops over bits are not.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// Whether the activation passes an element on. No character type: a store of those may change any object,
/// which keeps loops from being vectorised.
enum class Sign : int8_t { kOff = 0, kOn = -1 };

/// Runs of one channel that are shorter than this are not worked on beside signs, of which a vector holds so
/// many that it would not be filled.
inline constexpr int64_t kShortOfSigns = 64;

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

#if defined(__AVX2__)
/// Bytes of a mask that are worked on in one vector, a byte for each bit.
inline constexpr int64_t kVectorOfMask = 4;

inline void pack_vector(const Sign* signs, uint8_t* mask) {
  const int bits = _mm256_movemask_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(signs)));
  std::memcpy(mask, &bits, kVectorOfMask);
}
inline void unpack_vector(const uint8_t* mask, Sign* signs) {
  int bits = 0;
  std::memcpy(&bits, mask, kVectorOfMask);
  const __m256i eight_each = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
  const __m256i own = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), eight_each), own);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(signs), _mm256_cmpeq_epi8(spread, own));
}
#else
inline constexpr int64_t kVectorOfMask = 1;

inline void pack_vector(const Sign* signs, uint8_t* mask) {
  uint64_t word = 0;
  std::memcpy(&word, signs, sizeof(word));
  *mask = bits_of(word);
}
inline void unpack_vector(const uint8_t* mask, Sign* signs) {
  const uint64_t word = signs_of(*mask);
  std::memcpy(signs, &word, sizeof(word));
}
#endif

/// Which of eight results of ReLU are not 0.
template <class C>
uint8_t passing_bits(const C* y) {
#if defined(__AVX2__)
  if constexpr (sizeof(C) == 4) {
    const __m256 passes = _mm256_cmp_ps(_mm256_loadu_ps(y), _mm256_setzero_ps(), _CMP_NLE_UQ);
    return static_cast<uint8_t>(_mm256_movemask_ps(passes));
  } else {
    const auto four = [](const double* from) {
      return _mm256_movemask_pd(_mm256_cmp_pd(_mm256_loadu_pd(from), _mm256_setzero_pd(), _CMP_NLE_UQ));
    };
    return static_cast<uint8_t>(four(y) | four(y + 4) << 4);
  }
#else
  uint8_t bits = 0;
  for (int k = 0; k < 8; ++k) bits = static_cast<uint8_t>(bits | (!(y[k] <= C{0}) ? 1 << k : 0));
  return bits;
#endif
}

/// In parallel: of_vector(byte) for every kVectorOfMask bytes, of_byte(byte, elements) for those that are
/// left over, with the number of their elements.
template <class OfVector, class OfByte>
void for_mask_bytes(int64_t count, OfVector of_vector, OfByte of_byte) {
  parallel_for(mask_bytes(count), 4096, [=](int64_t begin, int64_t end) {
    const int64_t whole = std::min(end, count / 8);
    int64_t byte = begin;
    for (; byte + kVectorOfMask <= whole; byte += kVectorOfMask) of_vector(byte);
    for (; byte < end; ++byte) of_byte(byte, static_cast<size_t>(std::min<int64_t>(count - byte * 8, 8)));
  });
}

}  // namespace detail

/// Sets bit i % 8 of byte i / 8 of the mask where signs[i] is kOn. The last bits, of no element, are 0.
inline void pack_signs(const Sign* signs, int64_t count, uint8_t* mask) {
  detail::for_mask_bytes(
      count, [=](int64_t byte) { detail::pack_vector(signs + byte * 8, mask + byte); },
      [=](int64_t byte, size_t elements) {
        uint64_t word = 0;
        std::memcpy(&word, signs + byte * 8, elements);
        mask[byte] = detail::bits_of(word);
      });
}

/// The mask of ReLU, from its results: bit i % 8 of byte i / 8 is set where the argument passed.
template <class C>
void pack_relu(const C* y, int64_t count, uint8_t* mask) {
  detail::for_mask_bytes(
      count,
      [=](int64_t byte) {
        for (int64_t k = byte; k < byte + detail::kVectorOfMask; ++k)
          mask[k] = detail::passing_bits(y + k * 8);
      },
      [=](int64_t byte, size_t elements) {
        C last[8] = {};
        std::copy_n(y + byte * 8, elements, last);
        mask[byte] = detail::passing_bits(last);
      });
}

/// The signs that `mask` was packed from.
inline void unpack_signs(const uint8_t* mask, int64_t count, Sign* signs) {
  detail::for_mask_bytes(
      count, [=](int64_t byte) { detail::unpack_vector(mask + byte, signs + byte * 8); },
      [=](int64_t byte, size_t elements) {
        const uint64_t word = detail::signs_of(mask[byte]);
        std::memcpy(signs + byte * 8, &word, elements);
      });
}

}  // namespace sinter::ops
