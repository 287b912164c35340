// Short blocks of elements in their compute type: the 16-bit types are converted a vector at a time, all
// others are used where they lie.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sinter/core/base/dtype.h>

/// SINTER_IVDEP before a loop: its steps are independent, though its pointers might overlap by their types,
/// so that it can be vectorised. Clang has no such mark; it compares the pointers at run time.
#if defined(__GNUC__) && !defined(__clang__)
#define SINTER_IVDEP _Pragma("GCC ivdep")
#else
#define SINTER_IVDEP
#endif

namespace sinter::ops {

/// Elements that a kernel converts at once: a few blocks of floats stay in the first-level cache.
inline constexpr int64_t kBlock = 512;

/// to[i] = from[i] for the 16-bit types; the arrays do not overlap.
inline void convert_block(const float16* __restrict from, float* __restrict to, int64_t count) {
  int64_t i = 0;
#if defined(__F16C__) && !defined(__CUDACC__)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void convert_block(const float* __restrict from, float16* __restrict to, int64_t count) {
  int64_t i = 0;
#if defined(__F16C__) && !defined(__CUDACC__)
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) to[i] = static_cast<float16>(from[i]);
}

inline void convert_block(const bfloat16* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = sinter::detail::bfloat16_bits_to_float(from[i].bits);
}

inline void convert_block(const float* __restrict from, bfloat16* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i].bits = sinter::detail::float_to_bfloat16_bits(from[i]);
}

/// `count` <= kBlock elements in the compute type: `from` itself, or `buffer` filled from it.
template <class T>
const compute_type<T>* load_block(const T* from, int64_t count, compute_type<T>* buffer) {
  if constexpr (std::is_same_v<T, compute_type<T>>) {
    return from;
  } else {
    convert_block(from, buffer, count);
    return buffer;
  }
}

/// Where a kernel writes a block of results before finish_block(): `to` itself, or `buffer`.
template <class T>
compute_type<T>* result_block(T* to, compute_type<T>* buffer) {
  if constexpr (std::is_same_v<T, compute_type<T>>) {
    return to;
  } else {
    return buffer;
  }
}

template <class T>
void finish_block(const compute_type<T>* results, T* to, int64_t count) {
  if constexpr (!std::is_same_v<T, compute_type<T>>) convert_block(results, to, count);
}

/// The buffer that load_block and result_block need; empty for the types that need none.
template <class T>
struct BlockBuffer {
  alignas(64) compute_type<T> values[std::is_same_v<T, compute_type<T>> ? 1 : kBlock];
};

}  // namespace sinter::ops
