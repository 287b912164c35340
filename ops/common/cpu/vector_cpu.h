// Vectors of the processor's native width through the compilers' vector extension (GCC and Clang), so that
// one source serves AVX-512, AVX, SSE and NEON: the compile flags decide the width.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace sinter::ops {

#if defined(__AVX512F__)
inline constexpr size_t kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr size_t kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr size_t kVectorBytes = 16;
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr size_t kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif

/// Lanes of a vector of T.
template <class T>
inline constexpr int kLanes = static_cast<int>(kVectorBytes / sizeof(T));

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes), may_alias));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), may_alias, aligned(alignof(T))));
};
/// kLanes<T> values of T; arithmetic works lane by lane, also with a scalar.
template <class T>
using Vector = typename VectorOf<T>::type;

/// Memory need not be aligned.
template <class T>
Vector<T> load_vector(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(from);
}
template <class T>
void store_vector(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::unaligned*>(to) = value;
}

namespace detail {

template <class T, int... lane>
Vector<T> repeat(T value, std::integer_sequence<int, lane...>) {
  return Vector<T>{(static_cast<void>(lane), value)...};
}

}  // namespace detail

/// a * b + c lane by lane, with one rounding if the processor can. Written as an expression it would be up to
/// the compiler, loop by loop (GCC avoids chains of fused operations on some processors), so that the bits of
/// a sum depended on how many others are computed beside it.
template <class T>
inline Vector<T> multiply_add_lanes(Vector<T> a, Vector<T> b, Vector<T> c) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) {
    return (Vector<T>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  } else {
    return (Vector<T>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
  }
#elif defined(__AVX__) && defined(__FMA__)
  if constexpr (std::is_same_v<T, float>) {
    return (Vector<T>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  } else {
    return (Vector<T>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
  }
#elif defined(__aarch64__)
  if constexpr (std::is_same_v<T, float>) {
    return (Vector<T>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
  } else {
    return (Vector<T>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
  }
#else
  return a * b + c;  // there is nothing to fuse them
#endif
}

/// The same for one number a.
template <class T>
inline Vector<T> multiply_add(T a, Vector<T> b, Vector<T> c) {
  return multiply_add_lanes<T>(detail::repeat<T>(a, std::make_integer_sequence<int, kLanes<T>>()), b, c);
}

namespace detail {

template <class T, int lanes>
using Lanes __attribute__((vector_size(sizeof(T) * lanes))) = T;

/// The upper half of the lanes added to the lower, until `left` are left.
template <class T, int left, int lanes, int... lane>
inline Lanes<T, left> add_halves(Lanes<T, lanes> value, std::integer_sequence<int, lane...>) {
  if constexpr (left == lanes) {
    return value;
  } else {
    constexpr int half = lanes / 2;
    return add_halves<T, left, half>(__builtin_shufflevector(value, value, lane...) +
                                         __builtin_shufflevector(value, value, (lane + half)...),
                                     std::make_integer_sequence<int, half / 2>());
  }
}

}  // namespace detail

/// sums[i] = the sum of all lanes of rows[i], added by halves.
template <class T, size_t count>
inline void sum_lanes(const Vector<T> (&rows)[count], T* sums) {
  constexpr int kEnd = std::min(kLanes<T>, 4);
  constexpr auto kFirst = std::make_integer_sequence<int, kLanes<T> / 2>();
  const auto quarter = [&](size_t i) { return detail::add_halves<T, kEnd, kLanes<T>>(rows[i], kFirst); };
  if constexpr (count == 4 && kEnd == 4) {  // of four rows at once
    const auto a = quarter(0), b = quarter(1), c = quarter(2), d = quarter(3);
    const auto ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const auto cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const auto all =
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    std::memcpy(sums, &all, sizeof(all));
  } else {
    for (size_t i = 0; i < count; ++i) {
      const auto last = quarter(i);
      if constexpr (kEnd == 4) {
        sums[i] = (last[0] + last[2]) + (last[1] + last[3]);
      } else {
        sums[i] = last[0] + last[1];
      }
    }
  }
}

/// `value` with zeros from lane `count` on.
template <class T>
Vector<T> keep_lanes(Vector<T> value, int64_t count) {
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  const auto lanes = []<int... lane>(std::integer_sequence<int, lane...>) {
    return Vector<Index>{lane...};
  }
  (std::make_integer_sequence<int, kLanes<T>>());
  return lanes < static_cast<Index>(count) ? value : Vector<T>{};
}

namespace detail {

// One butterfly of the transpose: exchanges the off-diagonal blocks of size `distance` of rows a and b.
template <class T, int distance, int... lane>
inline void exchange_blocks(Vector<T>& a, Vector<T>& b, std::integer_sequence<int, lane...>) {
  constexpr int n = kLanes<T>;
  const Vector<T> upper = __builtin_shufflevector(a, b, ((lane & distance) ? n + lane - distance : lane)...);
  const Vector<T> lower = __builtin_shufflevector(a, b, ((lane & distance) ? n + lane : lane + distance)...);
  a = upper;
  b = lower;
}

template <class T, int distance>
inline void transpose_stage(Vector<T> (&rows)[kLanes<T>]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) {
    if ((i & distance) == 0) {
      exchange_blocks<T, distance>(rows[i], rows[i + distance], std::make_integer_sequence<int, kLanes<T>>());
    }
  }
  if constexpr (distance > 1) transpose_stage<T, distance / 2>(rows);
}

}  // namespace detail

/// Transposes a square of kLanes<T> rows in registers: log2(lanes) stages that exchange ever smaller blocks.
template <class T>
inline void transpose_vectors(Vector<T> (&rows)[kLanes<T>]) {
  detail::transpose_stage<T, kLanes<T> / 2>(rows);
}

}  // namespace sinter::ops
