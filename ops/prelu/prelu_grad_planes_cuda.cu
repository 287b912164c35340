// Both gradients of PReLU where channels have planes of some length, at any alignment: blocks take parts of
// one channel's planes, so that each has one slope and one sum.
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/ops/prelu/prelu_grad_kernels_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = PReluPlanesPlan::kMostThreads;

/// Packs of x and of dy that a thread has in flight.
template <int pack>
constexpr int kInFlight = pack > 1 ? 4 : 8;

/// The plan with what its divisions need.
struct PReluPlanesWalk {
  PReluPlanesPlan plan;
  int64_t elements;  // of the tensor
  cuda::FastDivide by_span, by_channels;

  explicit PReluPlanesWalk(const PReluPlanesPlan& p)
      : plan(p),
        elements(p.outer * p.channels * p.inner),
        by_span(static_cast<uint32_t>(p.span)),
        by_channels(static_cast<uint32_t>(p.channels)) {}

  /// Pack number `item` of a channel.
  __device__ __forceinline__ PReluPlanePack pack_at(uint32_t item, uint32_t channel) const {
    uint32_t place;
    const uint32_t outer = by_span.divide(item, place);
    return plan.pack_at(outer, channel, place);
  }
};

/// The pack, of which the elements that are not the plane's are of no use.
template <int pack, class T>
__device__ __forceinline__ PReluWords<T, pack> load_plane_pack(const T* from, const PReluPlanePack& at,
                                                               int64_t elements) {
  using Words = PReluWords<T, pack>;
  if (at.first + pack > elements) {  // the tensor ends within it
    return Words::of([&](int i) { return i >= at.begin && i < at.end ? from[at.first + i] : T{}; });
  }
  return Words::load(from, static_cast<uint64_t>(at.first) / pack);
}

/// Block (channel, part) of the plan: leaves the channel's sum in the table, or in dalpha if there is one
/// part.
template <int pack, class T, class S>
__global__ void __launch_bounds__(kThreads, 2)
    prelu_grad_planes_kernel(const __grid_constant__ PReluPlanesWalk walk, PReluGradData<T, S> data,
                             compute_type<T>* table) {
  using C = compute_type<T>;
  using Words = PReluWords<T, pack>;
  constexpr int unroll = kInFlight<pack>;
  __shared__ C shared[kPReluWarp];
  cuda::let_next_begin();
  const PReluPlanesPlan& plan = walk.plan;
  uint32_t channel;
  const uint32_t part = walk.by_channels.divide(blockIdx.x, channel);
  const auto part_items = static_cast<uint32_t>(plan.part_items), items = static_cast<uint32_t>(plan.items);
  const uint32_t begin = part * part_items, step = blockDim.x;
  const uint32_t end = part_items < items - begin ? begin + part_items : items;
  C total = 0;
#pragma unroll 1
  for (uint32_t i = begin + threadIdx.x; i < end; i += unroll * step) {
    Words values[unroll], gradients[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      const PReluPlanePack at = walk.pack_at(i + u * step, channel);
      if (at.begin == at.end) continue;
      values[u] = load_plane_pack<pack>(data.x, at, walk.elements);
      gradients[u] = load_plane_pack<pack>(data.dy, at, walk.elements);
    }
    const auto slopes = PReluWords<S, pack>::all(data.alpha[from_here(channel)]);
    C sums[1] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      // Its place is computed anew: registers are short while packs are awaited.
      const PReluPlanePack at = walk.pack_at(from_here(i + u * step), channel);
      if (at.begin == at.end) continue;
      const Words result = prelu_pack(values[u], gradients[u], slopes);
      if (at.end - at.begin == pack) {
        result.store(data.dx, static_cast<uint64_t>(at.first) / pack);
      } else {
        result.store_some(data.dx + at.first, at.begin, at.end);
      }
      add_prelu_terms(values[u].kept(at.begin, at.end), gradients[u].kept(at.begin, at.end), sums);
    }
    total += sums[0];
  }
  const C sum = sum_of_block(total, shared);
  if (threadIdx.x != 0) return;
  if (table == nullptr) {
    data.dalpha[channel] = cuda::round_to<S>(sum);
  } else {
    table[blockIdx.x] = sum;
  }
}

}  // namespace

template <int pack, class T, class S>
void launch_prelu_grad_planes(const Stream& stream, const PReluPlanesPlan& plan,
                              const PReluGradData<T, S>& data, compute_type<T>* table) {
  const cuda::LaunchShape shape{.grid = dim3(static_cast<unsigned>(plan.channels * plan.parts)),
                                .block = dim3(static_cast<unsigned>(plan.threads))};
  const auto kernel = prelu_grad_planes_kernel<pack, T, S>;
  if (plan.parts == 1) table = nullptr;
  cuda::launch(stream, shape, kernel, PReluPlanesWalk(plan), data, table);
  if (plan.parts > 1) launch_prelu_fold<T>(stream, plan.channels, plan.parts, table, data.dalpha);
}

#define SINTER_PRELU_PLANES(T, S)                                                                   \
  template void launch_prelu_grad_planes<1>(const Stream&, const PReluPlanesPlan&,                  \
                                            const PReluGradData<T, S>&, compute_type<T>*);          \
  template void launch_prelu_grad_planes<cuda::kPackSize<T>>(const Stream&, const PReluPlanesPlan&, \
                                                             const PReluGradData<T, S>&, compute_type<T>*);
SINTER_PRELU_PLANES(float, float)
SINTER_PRELU_PLANES(double, double)
SINTER_PRELU_PLANES(float16, float16)
SINTER_PRELU_PLANES(bfloat16, bfloat16)
SINTER_PRELU_PLANES(float16, float)
SINTER_PRELU_PLANES(bfloat16, float)
#undef SINTER_PRELU_PLANES

}  // namespace sinter::ops
