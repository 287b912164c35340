// What conv2d_bias_act does behind the convolution, in a kernel that has the convolution's result: bias,
// addend and activation. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/norm/activation.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {

/// BiasAct (conv2d_kernels_cuda.h) with types: of T and of the slopes.
template <class T, class S>
struct TypedBiasAct {
  const T *bias, *addend;
  cuda::WideDivide addends;  ///< packs of the addend
  const S* slope;
  fused::Activation activation;
};

namespace detail {

/// `pack` values of channels in a row, or of one channel, in the compute type.
template <int pack, class V>
__device__ __forceinline__ void load_channels(const V* values, bool steps, compute_type<V> (&into)[pack]) {
#pragma unroll
  for (int j = 0; j < pack; ++j) into[j] = cuda::load_as_compute(values[steps ? j : 0]);
}

}  // namespace detail

/// y <- activation(values + bias + addend), rounded once: pack `place` of y, of channels from `channel` on
/// with `steps`, else of that channel.
template <int pack, class T, class S>
__device__ __forceinline__ void write_bias_act(const TypedBiasAct<T, S>& what,
                                               compute_type<T> (&values)[pack], int64_t place,
                                               int64_t channel, bool steps, T* y) {
  using C = compute_type<T>;
  using Values = cuda::Pack<T, pack>;
  if (what.bias != nullptr) {
    C bias[pack];
    detail::load_channels<pack>(what.bias + channel, steps, bias);
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] += bias[j];
  }
  if (what.addend != nullptr) {
    int64_t added_place;
    what.addends.divide(place, added_place);
    const Values added = reinterpret_cast<const Values*>(what.addend)[added_place];
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] += cuda::load_as_compute(added.values[j]);
  }
  if (what.activation == fused::Activation::kRelu) {
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] = Relu<C>()(values[j]);
  } else if (what.activation == fused::Activation::kPRelu) {
    C slope[pack];
    detail::load_channels<pack>(what.slope + channel, steps, slope);
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] = prelu_value(values[j], slope[j]);
  }
  Values rounded;
#pragma unroll
  for (int j = 0; j < pack; ++j) rounded.values[j] = cuda::round_to<T>(values[j]);
  reinterpret_cast<Values*>(y)[place] = rounded;
}

}  // namespace sinter::ops
