// What a map over a tensor needs of its channels, forward and backward alike. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sinter/ops/norm/cuda/norm_packs_cuda.h>

namespace sinter::ops {

/// P for the tensor that is normalised, and for the addend if `two` are; C, PReLU's slope, if it has_alpha.
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

}  // namespace sinter::ops
