// The one launch template for elementwise kernels whose inputs are broadcast. A thread handles one pack of
// neighbouring outputs: 16-byte accesses where shapes and pointers allow it, else single elements. For .cu
// files.
#pragma once

#include <array>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/broadcast_plan.h>

namespace sinter::ops {

namespace detail {

constexpr unsigned kBroadcastThreads = 256;

/// A BroadcastPlan as a kernel reads it, counting packs along the last axis.
template <int inputs>
struct BroadcastWalk {
  int rank = 1;
  cuda::WideDivide extents[kMaxRank];
  int64_t strides[inputs][kMaxRank] = {};
  bool steps[inputs] = {};

  /// Where pack `index` of the output finds its elements in each input.
  __device__ void locate(int64_t index, int64_t (&offsets)[inputs]) const {
#pragma unroll
    for (int k = 0; k < inputs; ++k) offsets[k] = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
#pragma unroll
      for (int k = 0; k < inputs; ++k) offsets[k] += place * strides[k][axis];
    }
#pragma unroll
    for (int k = 0; k < inputs; ++k) offsets[k] += index * strides[k][0];
  }
};

template <size_t inputs>
BroadcastWalk<static_cast<int>(inputs)> walk_of(const BroadcastPlan<inputs>& plan, int pack) {
  BroadcastWalk<static_cast<int>(inputs)> walk;
  walk.rank = plan.rank;
  for (int axis = 0; axis < plan.rank; ++axis) {
    const bool last = axis == plan.rank - 1;
    const auto a = static_cast<size_t>(axis);
    walk.extents[axis] = cuda::WideDivide(last ? plan.extents[a] / pack : plan.extents[a]);
    for (size_t k = 0; k < inputs; ++k) walk.strides[k][axis] = plan.strides[k][a] * (last ? pack : 1);
  }
  for (size_t k = 0; k < inputs; ++k) walk.steps[k] = plan.steps(k);
  return walk;
}

template <int pack, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_pack(const T* from, bool steps) {
  if (steps) return *reinterpret_cast<const cuda::Pack<T, pack>*>(from);
  cuda::Pack<T, pack> repeated;
  const T value = *from;
#pragma unroll
  for (int j = 0; j < pack; ++j) repeated.values[j] = value;
  return repeated;
}

template <int pack, class Out, class F, class... In>
__device__ __forceinline__ cuda::Pack<Out, pack> apply_to_packs(const F& function,
                                                                const cuda::Pack<In, pack>&... packs) {
  cuda::Pack<Out, pack> result;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    result.values[j] = cuda::round_to<Out>(function(cuda::load_as_compute(packs.values[j])...));
  }
  return result;
}

template <int pack, class Out, class F, size_t... k, class... In>
__device__ __forceinline__ cuda::Pack<Out, pack> broadcast_pack(const F& function,
                                                                const BroadcastWalk<sizeof...(In)>& walk,
                                                                int64_t index, std::index_sequence<k...>,
                                                                const In*... inputs) {
  int64_t offsets[sizeof...(In)];
  walk.locate(index, offsets);
  return apply_to_packs<pack, Out>(function, load_pack<pack>(inputs + offsets[k], walk.steps[k])...);
}

template <int pack, class Out, class F, class... In>
__global__ void __launch_bounds__(kBroadcastThreads)
    broadcast_kernel(int64_t packs, F function, const __grid_constant__ BroadcastWalk<sizeof...(In)> walk,
                     Out* out, const In*... inputs) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
    reinterpret_cast<cuda::Pack<Out, pack>*>(out)[i] =
        broadcast_pack<pack, Out>(function, walk, i, std::index_sequence_for<In...>{}, inputs...);
  }
}

/// Whether every access of `pack` elements is aligned: the rows of the output and of the inputs that step
/// begin at multiples of the pack.
template <int pack, class Out, class... In, size_t inputs>
bool packs_are_aligned(const BroadcastPlan<inputs>& plan, const Out* out, const In*... pointers) {
  bool aligned = plan.inner() % pack == 0 && cuda::is_aligned(out, sizeof(Out) * pack);
  const auto check = [&](size_t k, const void* pointer, size_t element) {
    if (!plan.steps(k)) return;
    aligned = aligned && cuda::is_aligned(pointer, element * pack);
    for (int axis = 0; axis + 1 < plan.rank; ++axis) {
      aligned = aligned && plan.strides[k][static_cast<size_t>(axis)] % pack == 0;
    }
  };
  size_t k = 0;
  (check(k++, pointers, sizeof(In)), ...);
  return aligned;
}

}  // namespace detail

/// out[i] = function(inputs...) where input k, of shape shapes[k], is broadcast to `shape`. `function` takes
/// and gives compute types and is callable on the device. Inputs of the output's shape may alias it exactly.
template <class Out, class F, class... In>
void launch_broadcast(const Stream& stream, const Shape& shape,
                      const std::array<Shape, sizeof...(In)>& shapes, F function, Out* out,
                      const In*... inputs) {
  const int64_t count = shape.numel();
  if (count == 0) return;
  constexpr int pack = std::min({cuda::kPackSize<Out>, cuda::kPackSize<In>...});
  const auto plan = plan_broadcast<sizeof...(In)>(shape, shapes);
  const auto run = [&]<int size> {
    const auto grid =
        cuda::grid_stride_shape(count / size, detail::kBroadcastThreads, detail::kBroadcastThreads);
    cuda::launch(stream, grid, detail::broadcast_kernel<size, Out, F, In...>, count / size, function,
                 detail::walk_of(plan, size), out, inputs...);
  };
  if (detail::packs_are_aligned<pack>(plan, out, inputs...)) {
    run.template operator()<pack>();
  } else {
    run.template operator()<1>();
  }
}

}  // namespace sinter::ops
