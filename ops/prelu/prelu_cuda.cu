// PReLU and its gradient of x: elementwise, one slope per channel. docs/kernels/prelu.md tells why they are
// cut as they are.
#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/prelu/prelu_cuda.h>
#include <sinter/ops/prelu/prelu_math.h>
#include <sinter/ops/prelu/prelu_plan.h>

namespace sinter::ops {
namespace {

using cuda::FastDivide;
using cuda::load_as_compute;

constexpr int kThreads = 128;
constexpr int kPacks = 2;  // of a thread
constexpr int64_t kMostElements = int64_t{1} << 30;

/// Finds the slopes of packs of `pack` elements that follow each other.
template <SlopeOrder order, int pack, class T>
struct Slopes {
  using C = compute_type<T>;

  FastDivide by_inner;     // kVectors: unused
  FastDivide by_channels;  // kVectors: by the packs of all channels
  const T* alpha;

  Slopes(const ChannelView& view, const T* slopes)
      : by_inner(static_cast<uint32_t>(view.inner)),
        by_channels(
            static_cast<uint32_t>(order == SlopeOrder::kVectors ? view.channels / pack : view.channels)),
        alpha(slopes) {}

  __device__ __forceinline__ void read(uint32_t i, C (&slopes)[pack]) const {
    uint32_t place, channel;
    if constexpr (order == SlopeOrder::kVectors) {
      by_channels.divide(i, channel);
      const auto vector = reinterpret_cast<const cuda::Pack<T, pack>*>(alpha)[channel];
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) slopes[lane] = load_as_compute(vector.values[lane]);
      return;
    }
    by_channels.divide(by_inner.divide(i * pack, place), channel);
    const auto next = [&] { return channel + 1 == by_channels.divisor() ? 0 : channel + 1; };
    if constexpr (order == SlopeOrder::kRuns) {
      const uint32_t left = by_inner.divisor() - place;  // elements before the channel changes
      const C first = load_as_compute(alpha[channel]);
      C second = first;
      if (left < pack) second = load_as_compute(alpha[next()]);
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) slopes[lane] = lane < left ? first : second;
    } else {
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        slopes[lane] = load_as_compute(alpha[channel]);
        if (++place == by_inner.divisor()) place = 0, channel = next();
      }
    }
  }
  /// Of one element behind the last whole pack; there is none with kVectors.
  __device__ C at(uint32_t element) const {
    uint32_t channel;
    by_channels.divide(by_inner.divide(element), channel);
    return load_as_compute(alpha[channel]);
  }
};

/// y from x; or, if `dy` is read too, dx.
template <bool backward, class C>
__device__ __forceinline__ C prelu_element(C x, C slope, C dy) {
  return backward ? prelu_slope(x, slope, dy) : prelu_value(x, slope);
}

template <bool backward, int pack, SlopeOrder order, class T>
__global__ void __launch_bounds__(kThreads)
    prelu_kernel(uint32_t count, Slopes<order, pack, T> slopes, const T* x, const T* dy, T* out) {
  using C = compute_type<T>;
  using Elements = cuda::Pack<T, pack>;
  const uint32_t whole = count / pack, first = blockIdx.x * (kThreads * kPacks) + threadIdx.x;
  Elements values[kPacks], gradients[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i >= whole) continue;
    values[k] = reinterpret_cast<const Elements*>(x)[i];
    if constexpr (backward) gradients[k] = reinterpret_cast<const Elements*>(dy)[i];
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i >= whole) continue;
    C slope[pack];
    slopes.read(i, slope);
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      const C gradient = backward ? load_as_compute(gradients[k].values[lane]) : C{0};
      values[k].values[lane] = cuda::round_to<T>(
          prelu_element<backward>(load_as_compute(values[k].values[lane]), slope[lane], gradient));
    }
    reinterpret_cast<Elements*>(out)[i] = values[k];
  }
  const uint32_t behind = whole * pack + threadIdx.x;
  if (blockIdx.x == 0 && behind < count) {
    const C gradient = backward ? load_as_compute(dy[behind]) : C{0};
    out[behind] =
        cuda::round_to<T>(prelu_element<backward>(load_as_compute(x[behind]), slopes.at(behind), gradient));
  }
}

// ---- host

template <bool backward, int pack, SlopeOrder order, class T>
void launch_order(const Stream& stream, const ChannelView& view, const T* alpha, const T* x, const T* dy,
                  T* out) {
  const auto shape = cuda::grid_stride_shape(view.numel() / pack, kThreads * kPacks, kThreads);
  cuda::launch(stream, shape, prelu_kernel<backward, pack, order, T>, static_cast<uint32_t>(view.numel()),
               Slopes<order, pack, T>(view, alpha), x, dy, out);
}

template <bool backward, class T>
void launch_slab(const Stream& stream, const ChannelView& view, const T* alpha, const T* x, const T* dy,
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
  dispatch_float(context.input(0).dtype, "prelu", [&]<class T> {
    const T *x = context.input(0).as<const T>(), *alpha = context.input(1).as<const T>();
    const T* dy = backward ? context.input(2).as<const T>() : nullptr;
    for_each_slab(view, kMostElements, cuda::kPackSize<T>, [&](const ChannelSlab& slab) {
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
  registry.add_kernel(
      "prelu_grad",
      {.device = DeviceType::kCuda, .workspace_bytes = prelu_grad_workspace, .run = run_prelu_grad});
}

}  // namespace sinter::ops
