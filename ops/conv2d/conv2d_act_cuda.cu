// What cuDNN did not do behind a convolution: addend, bias and activation, in one pass over the result.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/activation/activation_math.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// BiasAct (conv2d_kernels_cuda.h) with types: of T and of the slopes.
template <class T, class S>
struct TypedBiasAct {
  const T *bias, *addend;
  cuda::WideDivide addends;  ///< packs of the addend
  const S* slope;
  fused::Activation activation;
};

/// `pack` values of channels in a row, or of one channel, in the compute type.
template <int pack, class V>
__device__ __forceinline__ void load_channels(const V* values, bool steps, compute_type<V> (&into)[pack]) {
#pragma unroll
  for (int j = 0; j < pack; ++j) into[j] = cuda::load_as_compute(values[steps ? j : 0]);
}

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
    load_channels<pack>(what.bias + channel, steps, bias);
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
    load_channels<pack>(what.slope + channel, steps, slope);
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] = prelu_value(values[j], slope[j]);
  }
  Values rounded;
#pragma unroll
  for (int j = 0; j < pack; ++j) rounded.values[j] = cuda::round_to<T>(values[j]);
  reinterpret_cast<Values*>(y)[place] = rounded;
}

/// The channel of element i of an array (outer, channels, inner).
struct ChannelOf {
  cuda::WideDivide inner, channels;

  __device__ int64_t operator()(int64_t i) const {
    int64_t within, channel;
    channels.divide(inner.divide(i, within), channel);
    return channel;
  }
};

/// `pack` neighbours at once: of one channel, or with `steps` of as many channels in a row.
template <class T, class S, int pack>
__global__ void bias_act_kernel(int64_t packs, ChannelOf channel_of, bool steps, TypedBiasAct<T, S> what,
                                T* y) {
  using Values = cuda::Pack<T, pack>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    const Values values = reinterpret_cast<const Values*>(y)[i];
    compute_type<T> results[pack];
#pragma unroll
    for (int j = 0; j < pack; ++j) results[j] = cuda::load_as_compute(values.values[j]);
    write_bias_act<pack>(what, results, i, channel_of(i * pack), steps, y);
  }
}

template <class T, class S, int pack>
void launch_bias_act(const Stream& stream, TypedBiasAct<T, S> what, int64_t addends, int64_t count,
                     int64_t channels, int64_t inner, T* y) {
  const int64_t packs = count / pack;
  what.addends = cuda::WideDivide(addends / pack);
  const ChannelOf channel_of{cuda::WideDivide(inner), cuda::WideDivide(channels)};
  cuda::launch(stream, cuda::grid_stride_shape(packs, kThreads, kThreads), bias_act_kernel<T, S, pack>, packs,
               channel_of, inner == 1, what, y);
}

}  // namespace

void run_bias_act_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, void* y,
                       const BiasAct& what) {
  const int64_t channels = geometry.out_channels;
  const int64_t inner = geometry.layout == Layout::kNHWC ? 1 : geometry.out_pixels();
  const int64_t count = geometry.batch * channels * geometry.out_pixels();
  if (count == 0) return;
  const int64_t addends = what.one_addend ? count / geometry.batch : count;
  const bool has_slope = what.activation == fused::Activation::kPRelu;
  dispatch_prelu(dtype, has_slope ? what.slope_dtype : dtype, "conv2d_bias_act", [&]<class T, class S> {
    constexpr int pack = cuda::kPackSize<T>;
    const TypedBiasAct<T, S> typed{static_cast<const T*>(what.bias),
                                   static_cast<const T*>(what.addend),
                                   {},
                                   static_cast<const S*>(what.slope),
                                   what.activation};
    // A pack must not straddle channels, or, with one element a channel, wrap around.
    const bool divides = (inner == 1 ? channels : inner) % pack == 0;
    if (divides && cuda::is_aligned(y, 16) && cuda::is_aligned(what.addend, 16)) {
      launch_bias_act<T, S, pack>(stream, typed, addends, count, channels, inner, static_cast<T*>(y));
    } else {
      launch_bias_act<T, S, 1>(stream, typed, addends, count, channels, inner, static_cast<T*>(y));
    }
  });
}

}  // namespace sinter::ops
