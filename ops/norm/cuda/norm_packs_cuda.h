// How the passes of batch normalisation access a tensor, what belongs to its channels, and a mask. For .cu
// files.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/ops/norm/plan/norm_plan.h>

namespace sinter::ops {
namespace detail {

constexpr int kWarp = 32;

}  // namespace detail

/// Elements of float64, which no network trains in, are taken one at a time by all kernels.
template <class T>
inline constexpr bool has_norm_packs = sizeof(T) < sizeof(double);

/// The bytes of a pack as accesses of 16. Copies of a whole pack must not be left to the compiler: where it
/// has kept the elements apart, it may split them into accesses of 2 and 4 bytes.
template <class T, int pack>
struct PackWords {
  static constexpr int kCount = static_cast<int>(sizeof(cuda::Pack<T, pack>) / sizeof(uint4));
  uint4 words[kCount];
};

/// `pack` elements from `offset` on; where they may not be aligned, or all there, one by one.
template <int pack, bool whole = true, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_pack(const T* from, int64_t offset, int valid = pack) {
  if constexpr (whole && pack > 1) {
    PackWords<T, pack> result;
#pragma unroll
    for (int i = 0; i < result.kCount; ++i) {
      result.words[i] = reinterpret_cast<const uint4*>(from + offset)[i];
    }
    return std::bit_cast<cuda::Pack<T, pack>>(result);
  } else {
    cuda::Pack<T, pack> result{};
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      if (whole || i < valid) result.values[i] = from[offset + i];
    }
    return result;
  }
}

/// A pack in registers, in the words that came from memory, for loads that a thread has several of in flight.
/// Its elements are taken apart where they are asked for: else compilers do so at the end of the load's
/// branch, where there is one, and wait for its data there before they send for more.
template <class T, int pack>
class HeldPack {
 public:
  HeldPack() = default;
  __device__ __forceinline__ HeldPack(const cuda::Pack<T, pack>& values)
      : words_(std::bit_cast<Words>(values)) {}

  __device__ __forceinline__ T operator[](int i) const {
    if constexpr (sizeof(T) == 2) {
      return std::bit_cast<T>(static_cast<uint16_t>(words_.values[i / 2] >> i % 2 * 16));
    } else if constexpr (sizeof(T) == 4) {
      return std::bit_cast<T>(words_.values[i]);
    } else {
      return std::bit_cast<T>(uint64_t{words_.values[2 * i + 1]} << 32 | words_.values[2 * i]);
    }
  }

 private:
  struct Words {
    uint32_t values[sizeof(cuda::Pack<T, pack>) / sizeof(uint32_t)];
  };
  Words words_;
};
template <class T>
class HeldPack<T, 1> {
 public:
  HeldPack() = default;
  __device__ __forceinline__ HeldPack(const cuda::Pack<T, 1>& values) : value_(values.values[0]) {}

  __device__ __forceinline__ T operator[](int) const { return value_; }

 private:
  T value_;
};

template <int pack, bool whole = true, class T>
__device__ __forceinline__ void store_pack(T* to, int64_t offset, const cuda::Pack<T, pack>& values,
                                           int valid = pack) {
  if constexpr (whole && pack > 1) {
    const auto result = std::bit_cast<PackWords<T, pack>>(values);
#pragma unroll
    for (int i = 0; i < result.kCount; ++i) {
      const uint4& w = result.words[i];
      asm volatile(
          "st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(to + offset) + i),
          "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
          : "memory");
    }
  } else {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      if (whole || i < valid) to[offset + i] = values.values[i];
    }
  }
}

/// What neighbouring channels have, `count` of them from `from` on, which is aligned to 16 bytes.
template <int count, class P>
struct Neighbours {
  P values[count];
};
template <int count, class P>
__device__ __forceinline__ Neighbours<count, P> load_neighbours(const P* from) {
  struct Words {
    uint4 words[sizeof(Neighbours<count, P>) / sizeof(uint4)];
  } result;
#pragma unroll
  for (size_t i = 0; i < sizeof(Words) / sizeof(uint4); ++i) {
    result.words[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return std::bit_cast<Neighbours<count, P>>(result);
}

/// What a map over a tensor needs of its channels, forward and backward alike: P for the tensor that is
/// normalised, and for the addend if `two` are; C, PReLU's slope, if it has_alpha.
template <class P, class C, bool two, bool has_alpha>
struct MapParameters {
  struct Nothing {};
  struct Parameter {
    P main;
    std::conditional_t<two, P, Nothing> addend;
    std::conditional_t<has_alpha, C, Nothing> alpha;
  };

  const P *main, *addend;
  const C* alpha;
  int64_t alpha_step;  ///< 0: one slope for all channels

  __device__ Parameter at(int64_t channel) const {
    Parameter result;
    result.main = of_channel(main, channel);
    if constexpr (two) result.addend = of_channel(addend, channel);
    if constexpr (has_alpha) result.alpha = alpha[channel * alpha_step];
    return result;
  }
  /// Those of a pack of channels, in wide accesses.
  template <int pack>
  __device__ void neighbours(int64_t channel, Parameter (&result)[pack]) const {
    const auto mains = load_neighbours<pack>(main + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      result[i].main = mains.values[i];
      if constexpr (has_alpha) result[i].alpha = alpha[(channel + i) * alpha_step];
    }
    if constexpr (two) {
      const auto addends = load_neighbours<pack>(addend + channel);
#pragma unroll
      for (int i = 0; i < pack; ++i) result[i].addend = addends.values[i];
    }
  }

 private:
  /// In one access where it is as long as that.
  static __device__ P of_channel(const P* parameters, int64_t channel) {
    if constexpr (sizeof(P) % sizeof(uint4) == 0) {
      return load_neighbours<1>(parameters + channel).values[0];
    } else {
      return parameters[channel];
    }
  }
};

/// The byte of the mask that has a pack's bits, and these. A pack of fewer elements than the byte has takes
/// them out where they are asked for: at the load, it would wait for it there.
__device__ __forceinline__ unsigned load_mask(const uint8_t* mask, int64_t offset) {
  return mask[offset >> 3];
}
template <int pack>
__device__ __forceinline__ unsigned own_bits(unsigned byte, int64_t offset) {
  return pack == NormPlan::kGroup ? byte : byte >> (offset & (NormPlan::kGroup - 1));
}

/// Writes a pack's bits. Shorter packs than a group share a byte with their neighbours, which the
/// neighbouring threads have at the same time; those without elements come with no bits.
template <int pack>
__device__ __forceinline__ void store_mask(uint8_t* mask, int64_t offset, unsigned bits) {
  constexpr unsigned lanes = NormPlan::kGroup / pack;
  if constexpr (lanes > 1) {
    const unsigned group = ((1u << lanes) - 1) << (threadIdx.x % 32 & ~(lanes - 1));
    bits <<= offset & (NormPlan::kGroup - 1);
#pragma unroll
    for (unsigned step = 1; step < lanes; step *= 2) bits |= __shfl_xor_sync(group, bits, step);
    if (offset % NormPlan::kGroup == 0) mask[offset >> 3] = static_cast<uint8_t>(bits);
  } else {
    mask[offset >> 3] = static_cast<uint8_t>(bits);
  }
}

namespace detail {

/// Sends for what lies at `address`: it is in the L2 cache then, as what it is whoever writes it.
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace detail
}  // namespace sinter::ops
