// Loads of 16 bytes that begin at any element, from the aligned units that hold them. For .cu files.
#pragma once

#include <cstdint>

#include <sinter/ops/gemv/gemv_kernels_cuda.h>

namespace sinter::ops {

/// 16 bytes from any element on, as two aligned units. In front of an operand lies the allocation that it
/// begins in; behind its end nothing is read.
template <class T>
struct ShiftedPack {
  static constexpr int kPack = cuda::kPackSize<T>;
  using Loaded = LoadedPack<T, kPack>;

  Loaded low, high;
  uint32_t shift;  // bytes of `low` that lie in front

  /// `from` lies in front of `end`; elements from there on are zero. `once`: no one will read it again.
  template <bool once>
  __device__ __forceinline__ void load(const T* from, const T* end) {
    const auto address = reinterpret_cast<uintptr_t>(from), behind = reinterpret_cast<uintptr_t>(end);
    shift = static_cast<uint32_t>(address) & 15;
    const auto* const unit = reinterpret_cast<const typename Loaded::Source*>(address - shift);
    if (address - shift + (shift == 0 ? 16 : 32) <= behind) {
      load_unit<once>(low, unit);
      if (shift != 0) load_unit<once>(high, unit + 1);
      return;
    }
    shift = 0;
    auto* const elements = reinterpret_cast<T*>(&low.word);
#pragma unroll
    for (int j = 0; j < kPack; ++j) elements[j] = from + j < end ? from[j] : T{};
  }

  /// The elements, in place.
  __device__ __forceinline__ Loaded get() const {
    if constexpr (sizeof(T) == 8) {
      if (shift == 0) return low;
      return {typename Loaded::Word{low.word.y, high.word.x}};
    } else {
      return get_words();
    }
  }

 private:
  __device__ __forceinline__ Loaded get_words() const {
    uint32_t words[8] = {low.word.x,  low.word.y,  low.word.z,  low.word.w,
                         high.word.x, high.word.y, high.word.z, high.word.w};
    if ((shift & 8) != 0) {
#pragma unroll
      for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
    }
    if ((shift & 4) != 0) {
#pragma unroll
      for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
    }
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], (shift & 2) * 8);
    }
    return {uint4{words[0], words[1], words[2], words[3]}};
  }

  template <bool once>
  static __device__ __forceinline__ void load_unit(Loaded& to, const typename Loaded::Source* from) {
    if constexpr (once) {
      to.load_once(from);
    } else {
      to.load(from);
    }
  }
};

}  // namespace sinter::ops
