// PReLU and its gradient of x: elementwise, one slope per channel. docs/kernels/prelu.md tells why they are
// cut as they are.
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/channels/channel_slabs.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_dispatch.h>
#include <sinter/ops/prelu/prelu_pack_cuda.h>
#include <sinter/ops/prelu/prelu_plan.h>

namespace sinter::ops {
namespace {

using cuda::FastDivide;
constexpr int kThreads = 128;

/// Finds the slopes of packs of `pack` elements that follow each other.
template <SlopeOrder order, int pack, class S>
struct Slopes {
  using Words = PReluWords<S, pack>;

  FastDivide by_inner;     // kVectors: unused
  FastDivide by_channels;  // kVectors: by the packs of all channels
  const S* alpha;

  Slopes(const ChannelView& view, const S* slopes)
      : by_inner(static_cast<uint32_t>(view.inner)),
        by_channels(
            static_cast<uint32_t>(order == SlopeOrder::kVectors ? view.channels / pack : view.channels)),
        alpha(slopes) {}

  /// Those of pack i, which may lie behind the end.
  __device__ __forceinline__ Words of(uint32_t i) const {
    uint32_t place, channel;
    if constexpr (order == SlopeOrder::kVectors) {
      by_channels.divide(i, channel);
      return Words::load(alpha, channel);
    }
    by_channels.divide(by_inner.divide(i * pack, place), channel);
    const auto next = [&] { return channel + 1 == by_channels.divisor() ? 0 : channel + 1; };
    if constexpr (order == SlopeOrder::kRuns) {
      const uint32_t left = by_inner.divisor() - place;  // elements before the channel changes
      // Both without a condition: a load behind a condition would wait for the other.
      const S first = alpha[channel], second = pack > 1 ? alpha[next()] : first;
      return Words::of([&](int lane) { return lane < left ? first : second; });
    } else {
      return Words::of([&](int) {
        const S slope = alpha[channel];
        if (++place == by_inner.divisor()) place = 0, channel = next();
        return slope;
      });
    }
  }
  /// Of one element behind the last whole pack; there is none with kVectors.
  __device__ S at(uint32_t element) const {
    uint32_t channel;
    by_channels.divide(by_inner.divide(element), channel);
    return alpha[channel];
  }
};

/// Blocks at once, by the registers that slopes take.
template <class T, class S>
constexpr int blocks_of_processor(SlopeOrder order) {
  return order == SlopeOrder::kMixed || sizeof(S) > sizeof(T) ? 8 : 16;
}

/// y from x; or, if `backward`, dx from x and dy. A thread takes `packs` packs. The slopes are asked for
/// before anything waits for what is loaded.
template <bool backward, int pack, int packs, SlopeOrder order, class S, class T>
__global__ void __launch_bounds__(kThreads, blocks_of_processor<T, S>(order))
    prelu_kernel(uint32_t count, Slopes<order, pack, S> slopes, const T* x, const T* dy, T* out) {
  using Words = PReluWords<T, pack>;
  const uint32_t whole = count / pack, first = blockIdx.x * (kThreads * packs) + threadIdx.x;
  Words values[packs], gradients[packs];
  PReluWords<S, pack> with[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i >= whole) continue;
    values[k] = Words::load(x, i);
    if constexpr (backward) gradients[k] = Words::load(dy, i);
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) with[k] = slopes.of(first + k * kThreads);
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i < whole) prelu_pack(values[k], backward ? gradients[k] : values[k], with[k]).store(out, i);
  }
  const uint32_t behind = whole * pack + threadIdx.x;
  if (blockIdx.x == 0 && behind < count) {
    using Element = PReluWords<T, 1>;
    const Element value{{x[behind]}};
    prelu_pack(value, backward ? Element{{dy[behind]}} : value, PReluWords<S, 1>{{slopes.at(behind)}})
        .store(out, behind);
  }
}

// ---- host

template <bool backward, int pack, SlopeOrder order, class S, class T>
void launch_order(const Stream& stream, const ChannelView& view, const S* alpha, const T* x, const T* dy,
                  T* out) {
  const auto launch = [&]<int packs>() {
    const auto shape = cuda::grid_stride_shape(view.numel() / pack, kThreads * packs, kThreads);
    cuda::launch(stream, shape, prelu_kernel<backward, pack, packs, order, S, T>,
                 static_cast<uint32_t>(view.numel()), Slopes<order, pack, S>(view, alpha), x, dy, out);
  };
  if constexpr (!backward && pack > 1) {
    const int64_t bytes = view.numel() * static_cast<int64_t>(sizeof(T));
    if (prelu_packs_of_thread(bytes) == 1) return launch.template operator()<1>();
  }
  launch.template operator()<2>();
}

template <bool backward, class S, class T>
void launch_slab(const Stream& stream, const ChannelView& view, const S* alpha, const T* x, const T* dy,
                 T* out) {
  constexpr int widest = cuda::kPackSize<T>;
  const bool aligned =
      cuda::is_aligned(x, 16) && cuda::is_aligned(out, 16) && (!backward || cuda::is_aligned(dy, 16));
  if (!aligned) return launch_order<backward, 1, SlopeOrder::kRuns>(stream, view, alpha, x, dy, out);
  switch (slope_order(view, widest)) {
    case SlopeOrder::kRuns:
      return launch_order<backward, widest, SlopeOrder::kRuns>(stream, view, alpha, x, dy, out);
    case SlopeOrder::kVectors:
      if (cuda::is_aligned(alpha, 16)) {
        return launch_order<backward, widest, SlopeOrder::kVectors>(stream, view, alpha, x, dy, out);
      }
      [[fallthrough]];
    case SlopeOrder::kMixed:
      return launch_order<backward, widest, SlopeOrder::kMixed>(stream, view, alpha, x, dy, out);
  }
}

/// The output from x (input 0), alpha (1) and, backward, dy (2).
template <bool backward>
void run_map(const KernelContext& context) {
  const ChannelView view = prelu_view(context.input(0).shape, context.input(1).shape,
                                      context.attributes<PReluAttributes>().layout);
  dispatch_prelu(context.input(0).dtype, context.input(1).dtype, "prelu", [&]<class T, class S> {
    const T* x = context.input(0).as<const T>();
    const S* alpha = context.input(1).as<const S>();
    const T* dy = backward ? context.input(2).as<const T>() : nullptr;
    for_each_slab(view, kMostSlabElements, cuda::kPackSize<T>, [&](const ChannelSlab& slab) {
      launch_slab<backward>(context.stream(), slab.view, alpha + slab.channel, x + slab.first,
                            backward ? dy + slab.first : nullptr, context.output(0).as<T>() + slab.first);
    });
  });
}

}  // namespace

void register_prelu_cuda(OpRegistry& registry);
void register_prelu_cuda(OpRegistry& registry) {
  registry.add_kernel("prelu", {.device = DeviceType::kCuda, .run = run_map<false>});
  registry.add_kernel("prelu_grad_x", {.device = DeviceType::kCuda, .run = run_map<true>});
  register_prelu_grad_cuda(registry);
}

}  // namespace sinter::ops
