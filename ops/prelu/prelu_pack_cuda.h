// What PReLU's kernels do with a pack of elements: 16 bytes, or one element where addresses are not aligned.
// For .cu files.
//
// The 16-bit types are computed two by two in their own arithmetic: it rounds a product once, so that the
// result is that of a product in float32. Beside float32 slopes they are computed in float32. Sums are always
// in the compute type.
#pragma once

#include <bit>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {

template <class T>
inline constexpr bool kIsPaired = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// Two neighbours of a 16-bit type in a register.
template <class T>
struct PReluPair {
  using Vector = std::conditional_t<std::is_same_v<T, float16>, __half2, __nv_bfloat162>;

  /// All bits of the halves of x that are positive.
  static __device__ __forceinline__ uint32_t positive(uint32_t x) {
    return __hgt2_mask(as_vector(x), as_vector(0));
  }
  static __device__ __forceinline__ uint32_t product(uint32_t a, uint32_t b) {
    const Vector rounded = __hmul2_rn(as_vector(a), as_vector(b));
    return reinterpret_cast<const uint32_t&>(rounded);
  }
  static __device__ __forceinline__ uint32_t of(T low, T high) {
    return low.bits | static_cast<uint32_t>(high.bits) << 16;
  }
  static __device__ __forceinline__ float at(uint32_t pair, int half) {
    T element;
    element.bits = static_cast<uint16_t>(half == 0 ? pair : pair >> 16);
    return cuda::load_as_compute(element);
  }

 private:
  static __device__ __forceinline__ Vector as_vector(const uint32_t& pair) {
    return reinterpret_cast<const Vector&>(pair);
  }
};

/// `pack` elements as they are moved: whole words. Copies of a struct of elements may be split by the
/// compiler, and waits for loads come earlier than they need.
template <class T, int pack>
struct PReluWords {
  static constexpr bool kPaired = kIsPaired<T> && pack > 1;
  static constexpr int kCount = kPaired ? pack / 2 : pack;
  using Word = std::conditional_t<kPaired, uint32_t, T>;

  Word words[kCount];

  static __device__ __forceinline__ PReluWords load(const T* from, int64_t i) {
    if constexpr (pack == 1) {
      return {{from[i]}};
    } else {
      // One of 16 bytes, but for float32 slopes beside 16-bit elements: two.
      constexpr int vectors = sizeof(PReluWords) / sizeof(uint4);
      struct Loaded {
        uint4 vector[vectors];
      } loaded;
#pragma unroll
      for (int k = 0; k < vectors; ++k) {
        loaded.vector[k] = reinterpret_cast<const uint4*>(from)[i * vectors + k];
      }
      return std::bit_cast<PReluWords>(loaded);
    }
  }
  __device__ __forceinline__ void store(T* to, int64_t i) const {
    if constexpr (pack == 1) {
      to[i] = words[0];
    } else {
      reinterpret_cast<uint4*>(to)[i] = std::bit_cast<uint4>(*this);
    }
  }
  /// Elements [begin, end) of it, which begins at `to`.
  __device__ __forceinline__ void store_some(T* to, int begin, int end) const {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      if (i < begin || i >= end) continue;
      if constexpr (kPaired) {
        to[i].bits = static_cast<uint16_t>(i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16);
      } else {
        to[i] = words[i];
      }
    }
  }
  /// Zeros in place of all elements but [begin, end).
  __device__ __forceinline__ PReluWords kept(int begin, int end) const {
    if (end - begin == pack) return *this;
    PReluWords result;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if constexpr (kPaired) {
        const uint32_t low = 2 * k >= begin && 2 * k < end ? 0xFFFFu : 0u,
                       high = 2 * k + 1 >= begin && 2 * k + 1 < end ? 0xFFFF0000u : 0u;
        result.words[k] = words[k] & (low | high);
      } else {
        result.words[k] = k >= begin && k < end ? words[k] : T{};
      }
    }
    return result;
  }
  /// Every element is `value`.
  static __device__ __forceinline__ PReluWords all(T value) {
    return of([&](int) { return value; });
  }
  /// element(i) for every i, in order.
  template <class F>
  static __device__ __forceinline__ PReluWords of(F element) {
    PReluWords result;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if constexpr (kPaired) {
        const T low = element(2 * k), high = element(2 * k + 1);  // in order: it may count on
        result.words[k] = PReluPair<T>::of(low, high);
      } else {
        result.words[k] = element(k);
      }
    }
    return result;
  }
};

/// Word k of dy times its slopes, for the 16-bit types.
template <class T, int pack, class S>
__device__ __forceinline__ uint32_t scaled_pair(const PReluWords<T, pack>& dy, int k,
                                                const PReluWords<S, pack>& slopes) {
  using Pair = PReluPair<T>;
  if constexpr (std::is_same_v<S, T>) {
    return Pair::product(slopes.words[k], dy.words[k]);
  } else {
    return Pair::of(cuda::round_to<T>(slopes.words[2 * k] * Pair::at(dy.words[k], 0)),
                    cuda::round_to<T>(slopes.words[2 * k + 1] * Pair::at(dy.words[k], 1)));
  }
}

/// dx from x, dy and a slope per element; y, with x in dy's place. S: T or its compute type.
template <class T, int pack, class S>
__device__ __forceinline__ PReluWords<T, pack> prelu_pack(const PReluWords<T, pack>& x,
                                                          const PReluWords<T, pack>& dy,
                                                          const PReluWords<S, pack>& slopes) {
  PReluWords<T, pack> result;
#pragma unroll
  for (int k = 0; k < result.kCount; ++k) {
    if constexpr (result.kPaired) {
      const uint32_t keep = PReluPair<T>::positive(x.words[k]);
      result.words[k] = (dy.words[k] & keep) | (scaled_pair(dy, k, slopes) & ~keep);
    } else {
      result.words[k] = cuda::round_to<T>(prelu_slope(cuda::load_as_compute(x.words[k]),
                                                      cuda::load_as_compute(slopes.words[k]),
                                                      cuda::load_as_compute(dy.words[k])));
    }
  }
  return result;
}

/// Adds the terms of dalpha to the sums: one of each element, or one of all.
template <class T, int pack, int n>
__device__ __forceinline__ void add_prelu_terms(const PReluWords<T, pack>& x, const PReluWords<T, pack>& dy,
                                                compute_type<T> (&sums)[n]) {
#pragma unroll
  for (int k = 0; k < x.kCount; ++k) {
    if constexpr (x.kPaired) {
      const uint32_t take = ~PReluPair<T>::positive(x.words[k]);
      const uint32_t value = x.words[k] & take, gradient = dy.words[k] & take;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums[(2 * k + half) % n] += PReluPair<T>::at(value, half) * PReluPair<T>::at(gradient, half);
      }
    } else {
      sums[k % n] += prelu_alpha_slope(cuda::load_as_compute(x.words[k]), cuda::load_as_compute(dy.words[k]));
    }
  }
}

}  // namespace sinter::ops
