#include <limits>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/add_bias_cuda.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// The channel of an element, for counts that fit 32 bits and for all others.
struct NarrowChannel {
  cuda::FastDivide inner, channels;

  __device__ uint32_t operator()(uint32_t i) const {
    uint32_t channel;
    channels.divide(inner.divide(i), channel);
    return channel;
  }
};
struct WideChannel {
  int64_t inner, channels;

  __device__ int64_t operator()(int64_t i) const { return i / inner % channels; }
};

/// `pack` neighbours at once: of one channel, or with `steps` of as many channels in a row.
template <class T, int pack, class Channel, class Index>
__global__ void add_bias_kernel(int64_t packs, Channel channel_of, bool steps, const T* bias, T* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    auto values = reinterpret_cast<cuda::Pack<T, pack>*>(y)[i];
    const T* channel_bias = bias + channel_of(static_cast<Index>(i * pack));
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      values.values[j] = cuda::round_to<T>(cuda::load_as_compute(values.values[j]) +
                                           cuda::load_as_compute(channel_bias[steps ? j : 0]));
    }
    reinterpret_cast<cuda::Pack<T, pack>*>(y)[i] = values;
  }
}

template <class T, int pack>
void launch_add_bias(const Stream& stream, T* y, const T* bias, int64_t count, int64_t channels,
                     int64_t inner) {
  const int64_t packs = count / pack;
  const bool steps = inner == 1;
  const auto shape = cuda::grid_stride_shape(packs, kThreads, kThreads);
  if (count <= std::numeric_limits<int32_t>::max()) {
    const NarrowChannel channel{cuda::FastDivide(static_cast<uint32_t>(inner)),
                                cuda::FastDivide(static_cast<uint32_t>(channels))};
    cuda::launch(stream, shape, add_bias_kernel<T, pack, NarrowChannel, uint32_t>, packs, channel, steps,
                 bias, y);
  } else {
    const WideChannel channel{inner, channels};
    cuda::launch(stream, shape, add_bias_kernel<T, pack, WideChannel, int64_t>, packs, channel, steps, bias,
                 y);
  }
}

}  // namespace

void add_bias_cuda(const Stream& stream, DType dtype, void* y, const void* bias, int64_t outer,
                   int64_t channels, int64_t inner) {
  const int64_t count = outer * channels * inner;
  if (count == 0) return;
  dispatch_float(dtype, "add_bias", [&]<class T> {
    constexpr int pack = cuda::kPackSize<T>;
    // A pack must not straddle channels, or, with one element a channel, wrap around.
    const bool divides = (inner == 1 ? channels : inner) % pack == 0;
    if (divides && cuda::is_aligned(y, 16)) {
      launch_add_bias<T, pack>(stream, static_cast<T*>(y), static_cast<const T*>(bias), count, channels,
                               inner);
    } else {
      launch_add_bias<T, 1>(stream, static_cast<T*>(y), static_cast<const T*>(bias), count, channels, inner);
    }
  });
}

}  // namespace sinter::ops
