// What cuDNN did not do behind a convolution: addend, bias and activation, in one pass over the result.
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/conv2d/conv2d_act_cuda.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>
#include <sinter/ops/prelu/prelu_dispatch.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

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
