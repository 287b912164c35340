// What the kernels for both gradients of PReLU share. For .cu files.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/prelu/prelu_pack_cuda.h>
#include <sinter/ops/prelu/prelu_plan.h>

namespace sinter::ops {

/// S: alpha's type, T or its compute type.
template <class T, class S>
struct PReluGradData {
  const S* alpha;
  const T *x, *dy;
  T* dx;
  S* dalpha;
};

constexpr unsigned kPReluWarp = 32;
constexpr unsigned kPReluAllLanes = 0xFFFFFFFFu;

/// The sum of the values of each group of `lanes` threads (a power of two), at all of them.
template <class C>
__device__ __forceinline__ C sum_of_lanes(C sum, unsigned lanes = kPReluWarp) {
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kPReluAllLanes, sum, distance);
  }
  return sum;
}

/// The sum of the values of all threads of the block, whole warps, at thread 0. `shared`: one place for every
/// warp.
template <class C>
__device__ __forceinline__ C sum_of_block(C sum, C* shared) {
  sum = sum_of_lanes(sum);
  if (threadIdx.x % kPReluWarp == 0) shared[threadIdx.x / kPReluWarp] = sum;
  __syncthreads();
  if (threadIdx.x >= kPReluWarp) return sum;
  return sum_of_lanes(threadIdx.x < blockDim.x / kPReluWarp ? shared[threadIdx.x] : C{0});
}

/// Takes in a thread's packs number begin, begin + step, ... below end, at(i) being the place of number i:
/// writes dx by the slopes that slopes_of() has, and calls join(sums) with the terms of dalpha of every
/// `unroll` packs, which are in flight together: `n` sums, one for each element of a pack or one for all.
/// Registers are what limits `unroll`: neither slopes nor these sums are alive while packs are awaited.
template <int unroll, int pack, int n, class T, class S, class Index, class At, class Slopes, class Join>
__device__ __forceinline__ void take_prelu_packs(const PReluGradData<T, S>& data, Index begin, Index end,
                                                 Index step, At at, Slopes slopes_of, Join join) {
  using Words = PReluWords<T, pack>;
  for (Index i = begin; i < end; i += unroll * step) {
    Words values[unroll], gradients[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      values[u] = Words::load(data.x, at(i + u * step));
      gradients[u] = Words::load(data.dy, at(i + u * step));
    }
    const PReluWords<S, pack> slopes = slopes_of();
    compute_type<T> sums[n] = {};
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (i + u * step >= end) continue;
      prelu_pack(values[u], gradients[u], slopes).store(data.dx, at(i + u * step));
      add_prelu_terms(values[u], gradients[u], sums);
    }
    join(sums);
  }
}

/// Whole channels to a cluster of blocks; the plan has groups. Packs are the widest: all addresses allow
/// that.
template <class T, class S>
void launch_prelu_grad_channels(const Stream& stream, const PReluClusterPlan& plan,
                                const PReluGradData<T, S>& data);

/// Parts of a channel's planes to a block; the plan has parts. `table` has the plan's places.
template <int pack, class T, class S>
void launch_prelu_grad_planes(const Stream& stream, const PReluPlanesPlan& plan,
                              const PReluGradData<T, S>& data, compute_type<T>* table);

/// Adds up a table in which every part has one sum for each channel.
template <class T, class S>
void launch_prelu_fold(const Stream& stream, int64_t channels, int64_t parts, const compute_type<T>* table,
                       S* dalpha);

/// Parts of all channels to a block; `wide`: addresses allow the widest packs. `table` has the plan's places.
template <class T, class S>
void launch_prelu_grad_parts(const Stream& stream, const ChannelView& view, bool wide,
                             const PReluGradData<T, S>& data, compute_type<T>* table);

}  // namespace sinter::ops
