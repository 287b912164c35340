// Elementwise kernels with parameters per channel on a GPU. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/channel_view.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/pool/channels/channel_plan.h>

namespace sinter::ops {

/// The parameters of a channel, read from an array.
template <class P>
struct ParameterArray {
  const P* values;

  __device__ P operator()(int64_t channel) const { return values[channel]; }
};

namespace detail {

/// Channels are the last axis: a thread keeps the parameters of its `pack` channels and walks down the rows.
template <int pack, class Parameters, class F, class Out, class... In>
__global__ void __launch_bounds__(ChannelPlan::kThreads)
    map_rows_kernel(ChannelPlan plan, int64_t channels, Parameters parameters, F function, Out* out,
                    const In*... in) {
  using P = decltype(parameters(int64_t{0}));
  const int id = static_cast<int>(threadIdx.x), columns = plan.columns,
            lanes = ChannelPlan::kThreads / columns;
  const int64_t channel = (int64_t{blockIdx.x} * columns + id % columns) * pack, part = blockIdx.y;
  if (channel >= channels) return;
  P p[pack];
#pragma unroll
  for (int lane = 0; lane < pack; ++lane) p[lane] = parameters(channel + lane);
  const int64_t last = plan.items * (part + 1) / plan.parts;
#pragma unroll 2
  for (int64_t row = plan.items * part / plan.parts + id / columns; row < last; row += lanes) {
    const int64_t offset = row * channels + channel;
    const auto apply = [&](const cuda::Pack<In, pack>... loaded) {
      cuda::Pack<Out, pack> result;
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        result.values[lane] =
            cuda::round_to<Out>(function(p[lane], cuda::load_as_compute(loaded.values[lane])...));
      }
      *reinterpret_cast<cuda::Pack<Out, pack>*>(out + offset) = result;
    };
    apply(*reinterpret_cast<const cuda::Pack<In, pack>*>(in + offset)...);
  }
}

/// Any view: finds the channel of a pack's first element by division, those of the others by counting on.
template <int pack, class Index, class Parameters, class F, class Out, class... In>
__global__ void map_flat_kernel(int64_t count, IndexDivide<Index> by_inner, IndexDivide<Index> by_channels,
                                Index inner, Index channels, Parameters parameters, F function, Out* out,
                                const In*... in) {
  const int64_t packs = count / pack;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < packs; i += stride) {
    Index place, channel;
    by_channels.divide(by_inner.divide(static_cast<Index>(i * pack), place), channel);
    auto p = parameters(static_cast<int64_t>(channel));
    const auto apply = [&](const cuda::Pack<In, pack>... loaded) {
      cuda::Pack<Out, pack> result;
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        result.values[lane] = cuda::round_to<Out>(function(p, cuda::load_as_compute(loaded.values[lane])...));
        if (lane + 1 < pack && ++place == inner) {
          place = 0;
          if (++channel == channels) channel = 0;
          p = parameters(static_cast<int64_t>(channel));
        }
      }
      reinterpret_cast<cuda::Pack<Out, pack>*>(out)[i] = result;
    };
    apply(reinterpret_cast<const cuda::Pack<In, pack>*>(in)[i]...);
  }
  const int64_t i = packs * pack + first;
  if (i < count) {
    Index channel;
    by_channels.divide(by_inner.divide(static_cast<Index>(i)), channel);
    out[i] = cuda::round_to<Out>(
        function(parameters(static_cast<int64_t>(channel)), cuda::load_as_compute(in[i])...));
  }
}

}  // namespace detail

/// out[i] = function(parameters(channel of i), in[i]...) for every element of `view`. `parameters` maps a
/// channel to its parameters on the device; `function` works in compute types. `in` and `out` have elements
/// of type T.
template <class T, class Parameters, class F, class... In>
void map_channels(const Stream& stream, const ChannelView& view, const Parameters& parameters,
                  const F& function, T* out, const In*... in) {
  constexpr int widest = cuda::kPackSize<T>;
  const int64_t count = view.numel();
  if (count == 0) return;
  const bool aligned = cuda::is_aligned(out, 16) && (cuda::is_aligned(in, 16) && ...);
  if (view.inner == 1 && aligned && view.channels % widest == 0) {
    const ChannelPlan plan = plan_channel_rows(1, view.outer, view.channels, widest);
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.parts)),
                                  dim3(ChannelPlan::kThreads)};
    cuda::launch(stream, shape, detail::map_rows_kernel<widest, Parameters, F, T, In...>, plan, view.channels,
                 parameters, function, out, in...);
    return;
  }
  dispatch_index(count, [&]<class Index> {
    const auto run = [&]<int pack>() {
      const IndexDivide<Index> by_inner(static_cast<Index>(view.inner)),
          by_channels(static_cast<Index>(view.channels));
      const auto shape =
          cuda::grid_stride_shape(count, int64_t{pack} * ChannelPlan::kThreads, ChannelPlan::kThreads);
      cuda::launch(stream, shape, detail::map_flat_kernel<pack, Index, Parameters, F, T, In...>, count,
                   by_inner, by_channels, static_cast<Index>(view.inner), static_cast<Index>(view.channels),
                   parameters, function, out, in...);
    };
    if (aligned) {
      run.template operator()<widest>();
    } else {
      run.template operator()<1>();
    }
  });
}

}  // namespace sinter::ops
