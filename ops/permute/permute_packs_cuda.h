// What the transposing kernels of permute share: packs of 16 bytes at any address, and indices over several
// axes. Everything runs on the host too, where the tests execute the kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include <sinter/core/base/shape.h>
#include <sinter/core/cuda/fast_divide.h>

#if defined(__CUDA_ARCH__)
#define SINTER_UNROLL _Pragma("unroll")
#else
#define SINTER_UNROLL
#endif

namespace sinter::ops {

inline constexpr int kTileThreads = 256;
inline constexpr int kTilePacks = 1024;  // of 16 bytes that a block moves at once: four for each thread

/// 16 bytes of elements.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = static_cast<int>(16 / sizeof(T));
  T at[16 / sizeof(T)];
};

/// An element of 16 bytes.
struct alignas(16) Bits128 {
  uint64_t low, high;
};

/// Axes that one index runs over, the last one fastest, with the distance of neighbours in elements. The
/// index may be of any size for one axis, and is below 2^31 for more.
struct SideAxes {
  int rank = 0;
  cuda::FastDivide extents[kMaxRank];
  int64_t strides[kMaxRank] = {};

  void add(int64_t extent, int64_t stride) {
    if (rank > 0) extents[rank] = cuda::FastDivide(static_cast<uint32_t>(extent));
    strides[rank++] = stride;
  }
  /// kSeveral: false if there is one axis.
  template <bool kSeveral>
  SINTER_HOST_DEVICE int64_t locate(int64_t index) const {
    if constexpr (!kSeveral) return index * strides[0];
    int64_t offset = 0;
    auto rest = static_cast<uint32_t>(index);
    for (int axis = rank - 1; axis > 0; --axis) {
      uint32_t at = 0;
      rest = extents[axis].divide(rest, at);
      offset += static_cast<int64_t>(at) * strides[axis];
    }
    return offset + (rank > 1 ? static_cast<int64_t>(rest) : index) * strides[0];
  }
};

/// The axes that number the matrices, the last one fastest, with strides in both tensors.
struct OuterAxes {
  int rank = 0;
  cuda::WideDivide extents[kMaxRank];
  int64_t in_strides[kMaxRank] = {}, out_strides[kMaxRank] = {};

  void add(int64_t extent, int64_t in_stride, int64_t out_stride) {
    extents[rank] = cuda::WideDivide(extent);
    in_strides[rank] = in_stride;
    out_strides[rank++] = out_stride;
  }
  SINTER_HOST_DEVICE void locate(int64_t index, int64_t& in, int64_t& out) const {
    in = out = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      int64_t at = index;
      if (axis > 0) index = extents[axis].divide(index, at);
      in += at * in_strides[axis];
      out += at * out_strides[axis];
    }
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
/// bytes.
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
  /// True if the packs that hold elements at, ..., at + kSize - 1 (one or two) lie inside the tensor.
  template <class T>
  SINTER_HOST_DEVICE bool holds(int64_t at) const {
    const int shift = behind<T>(at);
    return at >= shift && at + (shift == 0 ? 1 : 2) * Pack<T>::kSize - shift <= total;
  }
};

template <class T>
SINTER_HOST_DEVICE inline T load_element(const T* from) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) <= 8) return __ldg(from);
#endif
  return *from;
}

template <class T>
SINTER_HOST_DEVICE inline Pack<T> load_pack(const T* from) {
#if defined(__CUDA_ARCH__)
  Pack<T> pack;
  const uint4 bits = __ldg(reinterpret_cast<const uint4*>(from));
  memcpy(&pack, &bits, sizeof(pack));
  return pack;
#else
  return *reinterpret_cast<const Pack<T>*>(from);
#endif
}

template <class T>
SINTER_HOST_DEVICE inline void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

/// store_pack for what may leave the caches first.
template <class T>
SINTER_HOST_DEVICE inline void stream_pack(T* to, const Pack<T>& pack) {
#if defined(__CUDA_ARCH__)
  uint4 bits;
  memcpy(&bits, &pack, sizeof(pack));
  __stcs(reinterpret_cast<uint4*>(to), bits);
#else
  store_pack(to, pack);
#endif
}

/// Elements begin, ..., end - 1 of a pack.
template <class T>
SINTER_HOST_DEVICE inline void store_some(T* to, const Pack<T>& pack, int begin, int end) {
  SINTER_UNROLL
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    if (j >= begin && j < end) to[j] = pack.at[j];
  }
}

/// The elements shift, ..., shift + kSize - 1 of two packs that follow each other.
template <class T>
SINTER_HOST_DEVICE inline Pack<T> cut(const Pack<T>& low, const Pack<T>& high, int shift) {
  uint32_t words[8];
  memcpy(words, &low, 16);
  memcpy(words + 4, &high, 16);
  const int bytes = shift * static_cast<int>(sizeof(T));
  if constexpr (sizeof(T) <= 8) {
    SINTER_UNROLL
    for (int i = 0; i < 6; ++i) words[i] = (bytes & 8) != 0 ? words[i + 2] : words[i];
  }
  if constexpr (sizeof(T) <= 4) {
    SINTER_UNROLL
    for (int i = 0; i < 5; ++i) words[i] = (bytes & 4) != 0 ? words[i + 1] : words[i];
  }
  if constexpr (sizeof(T) <= 2) {
    const auto bits = static_cast<uint32_t>(bytes & 3) * 8;
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {
#if defined(__CUDA_ARCH__)
      words[i] = __funnelshift_r(words[i], words[i + 1], bits);
#else
      words[i] = static_cast<uint32_t>(((uint64_t{words[i + 1]} << 32) | words[i]) >> bits);
#endif
    }
  }
  Pack<T> pack;
  memcpy(&pack, words, 16);
  return pack;
}

/// Word w of the result is word (w + by) % 4 of the pack.
template <class T>
SINTER_HOST_DEVICE inline Pack<T> rotate_words(const Pack<T>& pack, int by) {
  uint32_t words[4], once[4], twice[4];
  memcpy(words, &pack, 16);
  SINTER_UNROLL
  for (int w = 0; w < 4; ++w) once[w] = (by & 1) != 0 ? words[(w + 1) % 4] : words[w];
  SINTER_UNROLL
  for (int w = 0; w < 4; ++w) twice[w] = (by & 2) != 0 ? once[(w + 2) % 4] : once[w];
  Pack<T> rotated;
  memcpy(&rotated, twice, 16);
  return rotated;
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

/// Four elements of one column.
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Quad {
  T at[4];
};

/// Column j of four rows.
template <class T>
SINTER_HOST_DEVICE inline void transpose(const Pack<T> (&rows)[4], Quad<T> (&columns)[16 / sizeof(T)]) {
  if constexpr (sizeof(T) >= 4) {
    SINTER_UNROLL
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      SINTER_UNROLL
      for (int i = 0; i < 4; ++i) columns[j].at[i] = rows[i].at[j];
    }
  } else {
    uint32_t words[4][4], turned[4 * sizeof(Quad<T>)];
    memcpy(words, rows, sizeof(words));
    SINTER_UNROLL
    for (int w = 0; w < 4; ++w) {
      const uint32_t a = words[0][w], b = words[1][w], c = words[2][w], d = words[3][w];
      if constexpr (sizeof(T) == 2) {
        turned[4 * w] = pick_bytes(a, b, 0x5410);
        turned[4 * w + 1] = pick_bytes(c, d, 0x5410);
        turned[4 * w + 2] = pick_bytes(a, b, 0x7632);
        turned[4 * w + 3] = pick_bytes(c, d, 0x7632);
      } else {
        const uint32_t ab = pick_bytes(a, b, 0x5140), cd = pick_bytes(c, d, 0x5140);
        const uint32_t ab_high = pick_bytes(a, b, 0x7362), cd_high = pick_bytes(c, d, 0x7362);
        turned[4 * w] = pick_bytes(ab, cd, 0x5410);
        turned[4 * w + 1] = pick_bytes(ab, cd, 0x7632);
        turned[4 * w + 2] = pick_bytes(ab_high, cd_high, 0x5410);
        turned[4 * w + 3] = pick_bytes(ab_high, cd_high, 0x7632);
      }
    }
    memcpy(columns, turned, sizeof(columns));
  }
}

}  // namespace sinter::ops
