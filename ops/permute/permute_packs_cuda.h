// What the transposing kernels of permute share: packs of 16 bytes at any address, and indices over several
// axes. Everything runs on the host too, where the tests execute the kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <sinter/core/base/host_device.h>
#include <sinter/core/base/shape.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/in_register.h>

#if defined(__CUDA_ARCH__)
#define SINTER_UNROLL _Pragma("unroll")
#define SINTER_UNROLL_4 _Pragma("unroll 4")
#define SINTER_KEEP_LOOP _Pragma("unroll 1")
#else
#define SINTER_UNROLL
#define SINTER_UNROLL_4
#define SINTER_KEEP_LOOP
#endif

namespace sinter::ops {

/// 16 bytes of elements.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = static_cast<int>(16 / sizeof(T));
  T at[16 / sizeof(T)];
};

/// Division of indices of any size by a number that is fixed for a launch: cuda::FastDivide's method in 64
/// bits. Unlike cuda::WideDivide it has neither a branch nor a division, which matters here since a kernel's
/// instructions come out of memory when it starts.
class LongDivide {
 public:
  LongDivide() = default;
  /// divisor >= 1.
  explicit LongDivide(int64_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << shift_) < static_cast<uint64_t>(divisor)) ++shift_;
    // floor(2^64 (2^s - d) / d) + 1, by long division: the quotient's bits from the highest one on.
    uint64_t rest = (uint64_t{1} << shift_) - static_cast<uint64_t>(divisor), quotient = 0;
    for (int bit = 0; bit < 64; ++bit) {
      rest <<= 1;
      quotient = (quotient << 1) | (rest >= static_cast<uint64_t>(divisor) ? 1u : 0u);
      if (rest >= static_cast<uint64_t>(divisor)) rest -= static_cast<uint64_t>(divisor);
    }
    multiplier_ = quotient + 1;
  }

  /// Quotient and remainder of n >= 0.
  SINTER_HOST_DEVICE int64_t divide(int64_t n, int64_t& remainder) const {
    // The sum stays below 2^64, since n is below 2^63 and the product's high half below n.
    const uint64_t high = multiply_high(static_cast<uint64_t>(n), multiplier_);
    const auto quotient = static_cast<int64_t>((high + static_cast<uint64_t>(n)) >> shift_);
    remainder = n - quotient * divisor_;
    return quotient;
  }
  int64_t divisor() const { return divisor_; }

 private:
  /// The upper half of the product.
  SINTER_HOST_DEVICE static uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & UINT32_MAX);
    return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
  }

  int64_t divisor_ = 1;
  uint64_t multiplier_ = 1;
  int shift_ = 0;
};

/// Axes that one index runs over, the last one fastest, with the distance of neighbours in elements. The
/// index may be of any size for one axis, and is below 2^31 for more. All of an axis lies together: a
/// kernel's parameters come out of memory by lines when it starts.
struct SideAxes {
  struct Axis {
    int64_t stride = 0;
    cuda::FastDivide extent;  ///< but of the first axis
  };
  int rank = 0;
  Axis axes[kMaxRank];

  void add(int64_t extent, int64_t stride) {
    if (rank > 0) axes[rank].extent = cuda::FastDivide(static_cast<uint32_t>(extent));
    axes[rank++].stride = stride;
  }
  bool all_divide_by(int64_t pack) const {
    return std::all_of(axes, axes + rank, [&](const Axis& axis) { return axis.stride % pack == 0; });
  }
  /// kSeveral: false if there is one axis.
  template <bool kSeveral>
  SINTER_HOST_DEVICE int64_t locate(int64_t index) const {
    if constexpr (!kSeveral) return index * axes[0].stride;
    int64_t offset = 0;
    auto rest = static_cast<uint32_t>(index);
    SINTER_KEEP_LOOP
    for (int i = rank - 1; i > 0; --i) {
      uint32_t at = 0;
      rest = axes[i].extent.divide(rest, at);
      offset += static_cast<int64_t>(at) * axes[i].stride;
    }
    return offset + (rank > 1 ? static_cast<int64_t>(rest) : index) * axes[0].stride;
  }
};

/// The axes that number the matrices, the last one fastest, with strides in both tensors.
struct OuterAxes {
  struct Axis {
    LongDivide extent;
    int64_t in_stride = 0, out_stride = 0;
  };
  int rank = 0;
  Axis axes[kMaxRank];

  void add(int64_t extent, int64_t in_stride, int64_t out_stride) {
    axes[rank++] = {LongDivide(extent), in_stride, out_stride};
  }
  SINTER_HOST_DEVICE void locate(int64_t index, int64_t& in, int64_t& out) const {
    in = out = 0;
    SINTER_KEEP_LOOP
    for (int i = rank - 1; i > 0; --i) {
      int64_t at = 0;
      index = axes[i].extent.divide(index, at);
      in += at * axes[i].in_stride;
      out += at * axes[i].out_stride;
    }
    in += index * axes[0].in_stride;  // zero without axes
    out += index * axes[0].out_stride;
  }
};

/// A count as an int; more than any tile holds becomes 2^30.
SINTER_HOST_DEVICE inline int limited(int64_t count) {
  return static_cast<int>(count < (1 << 30) ? count : (1 << 30));
}

SINTER_HOST_DEVICE inline int smaller(int a, int b) {
  return a < b ? a : b;
}

/// One side of a permutation: the tensor's elements, and how far the first one lies behind a multiple of 16
/// or 32 bytes.
struct PackSpace {
  int64_t total = 0;
  int phase = 0;

  /// Elements from the pack boundary before element `at` to it.
  template <class T>
  SINTER_HOST_DEVICE int behind(int64_t at) const {
    return static_cast<int>((at + phase) & (Pack<T>::kSize - 1));
  }
  /// Elements from element `at` to the next pack boundary.
  template <class T>
  SINTER_HOST_DEVICE int ahead(int64_t at) const {
    return static_cast<int>(-(at + phase) & (Pack<T>::kSize - 1));
  }
};

/// Copies 16 bytes to shared memory without passing through registers; wait_for_copies() waits for them.
template <class T>
SINTER_HOST_DEVICE inline void copy_pack(std::byte* to, const T* from) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from))
      : "memory");
#else
  memcpy(to, from, 16);
#endif
}

/// A thread's own copies; a barrier makes them visible to others.
SINTER_HOST_DEVICE inline void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Stores 16 bytes; kStream: they may leave the caches first.
template <bool kStream, class T>
SINTER_HOST_DEVICE inline void store_pack(T* to, const Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  uint4 bits;
  memcpy(&bits, &pack, sizeof(pack));
  if constexpr (kStream) {
    __stcs(reinterpret_cast<uint4*>(to), bits);
  } else {
    *reinterpret_cast<uint4*>(to) = bits;
  }
#else
  *reinterpret_cast<Pack<T>*>(to) = pack;
#endif
}

/// Four bytes out of the eight of two words: digit i of `selector` (from the right) names byte i.
SINTER_HOST_DEVICE inline uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const uint64_t both = (uint64_t{high} << 32) | low;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= static_cast<uint32_t>((both >> ((selector >> (4 * i) & 7) * 8)) & 0xff) << (8 * i);
  }
  return picked;
#endif
}

/// The pack of read(0), read(1), ...; called in this order. With its first and last 8 bytes exchanged if
/// `turned`: chosen by words, since compilers take packs of short elements apart.
template <class T, class F>
SINTER_HOST_DEVICE inline Pack<T> collect(F&& read, bool turned = false) {
  constexpr int n = Pack<T>::kSize;
  Pack<T> pack;
  if constexpr (n == 1) {
    pack.at[0] = read(0);
  } else if constexpr (sizeof(T) >= 4) {
    T elements[size_t{n}];
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) elements[j] = read(j);
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) pack.at[j] = turned ? elements[j ^ (n / 2)] : elements[j];
  } else {
    uint32_t elements[size_t{n}], words[4];
    SINTER_UNROLL
    for (int j = 0; j < n; ++j) elements[j] = read(j);
    SINTER_UNROLL
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(T) == 2) {
        words[w] = pick_bytes(elements[2 * w], elements[2 * w + 1], 0x5410);
      } else {
        const uint32_t low = pick_bytes(elements[4 * w], elements[4 * w + 1], 0x0040);
        const uint32_t high = pick_bytes(elements[4 * w + 2], elements[4 * w + 3], 0x0040);
        words[w] = pick_bytes(low, high, 0x5410);
      }
    }
    const uint32_t placed[4] = {turned ? words[2] : words[0], turned ? words[3] : words[1],
                                turned ? words[0] : words[2], turned ? words[1] : words[3]};
    memcpy(&pack, placed, sizeof(pack));
  }
  return pack;
}

}  // namespace sinter::ops
