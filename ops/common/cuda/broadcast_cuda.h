// The one launch template for elementwise kernels whose inputs are broadcast; tensors of one shape go to
// elementwise_kernel. A thread handles packs of neighbouring outputs that begin where the output is aligned,
// and reads inputs in the widest accesses that their addresses allow. Broadcasts of two axes have a kernel of
// 32-bit indices; of the others, those that shapes and pointers allow take 16-byte accesses on all sides. For
// .cu files.
#pragma once

#include <array>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/cuda/flat_walk.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>

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
#pragma unroll 1
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

/// A FlatWalk beside its cut into packs; `aligned` tells of inputs that are flat whether the cut suits them.
template <int inputs>
struct FlatBroadcast {
  FlatWalk<inputs> walk;
  FlatCut cut;
  bool aligned[inputs] = {};
};

/// The elements of input k for the pack of outputs from `first` on, whose row has `left` elements from there.
template <int k, int pack, int inputs, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_flat(const FlatBroadcast<inputs>& flat, int64_t first,
                                                         int64_t left, int64_t offset, const T* input) {
  if (flat.aligned[k]) return *reinterpret_cast<const cuda::Pack<T, pack>*>(input + first);
  if (left >= pack || flat.walk.flat[k]) {
    return flat.walk.steps(k) ? load_unaligned<pack>(input + offset) : load_pack<pack>(input + offset, false);
  }
  cuda::Pack<T, pack> loaded;
#pragma unroll
  for (int j = 0; j < pack; ++j) loaded.values[j] = input[flat.walk.offset(k, first + j)];
  return loaded;
}

template <int pack, class Out, class F, size_t... k, class... In>
__device__ __forceinline__ cuda::Pack<Out, pack> flat_pack(const F& function,
                                                           const FlatBroadcast<sizeof...(In)>& flat,
                                                           int64_t first, std::index_sequence<k...>,
                                                           const In*... inputs) {
  int64_t offsets[sizeof...(In)];
  const int64_t left = flat.walk.locate(first, offsets);
  return apply_to_packs<pack, Out>(
      function, load_flat<static_cast<int>(k), pack>(flat, first, left, offsets[k], inputs)...);
}

template <class Out, class F, size_t... k, class... In>
__device__ __forceinline__ Out flat_element(const F& function, const FlatBroadcast<sizeof...(In)>& flat,
                                            int64_t index, std::index_sequence<k...>, const In*... inputs) {
  return cuda::round_to<Out>(
      function(cuda::load_as_compute(inputs[flat.walk.offset(static_cast<int>(k), index)])...));
}

template <int pack, class Out, class F, class... In>
__global__ void __launch_bounds__(kBroadcastThreads)
    flat_broadcast_kernel(F function, const __grid_constant__ FlatBroadcast<sizeof...(In)> flat, Out* out,
                          const In*... inputs) {
  constexpr auto all = std::index_sequence_for<In...>{};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = thread; i < flat.cut.packs; i += stride) {
    const int64_t first = flat.cut.head + i * pack;
    *reinterpret_cast<cuda::Pack<Out, pack>*>(out + first) =
        flat_pack<pack, Out>(function, flat, first, all, inputs...);
  }
  const int64_t edge = flat.cut.edge(thread);
  if (edge >= 0) out[edge] = flat_element<Out>(function, flat, edge, all, inputs...);
}

template <int pack, class Out, class F, class... In>
void launch_flat_broadcast(const Stream& stream, const BroadcastPlan<sizeof...(In)>& plan, int64_t count,
                           F function, Out* out, const In*... inputs) {
  static_assert(2 * pack <= static_cast<int>(kBroadcastThreads));
  constexpr auto bytes = static_cast<int64_t>(sizeof(Out)) * pack;
  FlatBroadcast<sizeof...(In)> flat;
  flat.walk = FlatWalk<sizeof...(In)>(plan);
  flat.cut = FlatCut(count, elements_before_aligned(out, bytes, sizeof(Out), count), pack);
  int k = 0;
  const auto check = [&](const void* pack_place, size_t pack_bytes) {
    flat.aligned[k] = flat.walk.flat[k] && cuda::is_aligned(pack_place, pack_bytes);
    ++k;
  };
  (check(inputs + flat.cut.head, sizeof(In) * pack), ...);
  const auto grid = cuda::grid_stride_shape(flat.cut.packs, kBroadcastThreads, kBroadcastThreads);
  cuda::launch(stream, grid, flat_broadcast_kernel<pack, Out, F, In...>, function, flat, out, inputs...);
}

/// The elements of input k for the pack of outputs from `first` on, which lies in `row` from `column` on.
template <int k, int pack, int inputs, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_of_rows(const RowWalk<inputs>& walk, uint32_t first,
                                                            uint32_t row, uint32_t column, const T* input) {
  if (walk.inner.divisor() - column >= pack) {
    const T* from = input + walk.offset(k, row, column);
    return walk.steps[k] ? load_unaligned<pack>(from) : load_pack<pack>(from, false);
  }
  cuda::Pack<T, pack> loaded;
#pragma unroll
  for (int j = 0; j < pack; ++j) loaded.values[j] = input[walk.offset_of(k, first + j)];
  return loaded;
}

template <int pack, size_t... k, class... In>
__device__ __forceinline__ void load_packs_of_rows(InputPacks<pack, std::index_sequence<k...>, In...>& to,
                                                   const RowWalk<sizeof...(In)>& walk, uint32_t first,
                                                   const In*... inputs) {
  uint32_t column = 0;
  const uint32_t row = walk.row_of(first, column);
  (to.InputPack<k, In, pack>::keep(load_of_rows<static_cast<int>(k), pack>(walk, first, row, column, inputs)),
   ...);
}

template <class Out, class F, size_t... k, class... In>
__device__ __forceinline__ Out element_of_rows(const F& function, const RowWalk<sizeof...(In)>& walk,
                                               uint32_t index, std::index_sequence<k...>,
                                               const In*... inputs) {
  return cuda::round_to<Out>(
      function(cuda::load_as_compute(inputs[walk.offset_of(static_cast<int>(k), index)])...));
}

/// As elementwise_kernel, with `packs` packs to a thread.
template <int pack, int packs, class Out, class F, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    row_broadcast_kernel(FlatCut cut, F function, const __grid_constant__ RowWalk<sizeof...(In)> walk,
                         Out* out, const In*... inputs) {
  constexpr auto all = std::index_sequence_for<In...>{};
  const auto whole = static_cast<uint32_t>(cut.packs), head = static_cast<uint32_t>(cut.head);
  const uint32_t mine = blockIdx.x * (kElementwiseThreads * packs) + threadIdx.x;
  InputPacks<pack, std::index_sequence_for<In...>, In...> loaded[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const uint32_t number = mine + k * kElementwiseThreads;
    if (number < whole) load_packs_of_rows(loaded[k], walk, head + number * pack, inputs...);
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const uint32_t number = mine + k * kElementwiseThreads;
    if (number >= whole) continue;
    *reinterpret_cast<cuda::Pack<Out, pack>*>(out + head + number * pack) =
        loaded[k].template apply<Out>(function);
  }
  if (blockIdx.x > 0) return;
  cut.pack = pack;
  const int64_t edge = cut.edge(threadIdx.x);
  if (edge >= 0) {
    out[edge] = element_of_rows<Out>(function, walk, static_cast<uint32_t>(edge), all, inputs...);
  }
}

template <int pack, class Out, class F, class... In>
void launch_row_broadcast(const Stream& stream, const BroadcastPlan<sizeof...(In)>& plan, int64_t count,
                          F function, Out* out, const In*... inputs) {
  constexpr int packs = 2;
  constexpr auto element = static_cast<int64_t>(sizeof(Out));
  const FlatCut cut(count, elements_before_aligned(out, element * pack, element, count), pack);
  const auto shape =
      cuda::grid_stride_shape(cut.packs, int64_t{kElementwiseThreads} * packs, kElementwiseThreads);
  cuda::launch(stream, shape, row_broadcast_kernel<pack, packs, Out, F, In...>, cut, function,
               RowWalk<sizeof...(In)>(plan), out, inputs...);
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
  if (plan.is_plain()) return launch_elementwise(stream, count, function, out, inputs...);
  if (RowWalk<sizeof...(In)>::takes(plan, count)) {
    return detail::launch_row_broadcast<pack>(stream, plan, count, function, out, inputs...);
  }
  if (!detail::packs_are_aligned<pack>(plan, out, inputs...)) {
    return detail::launch_flat_broadcast<pack>(stream, plan, count, function, out, inputs...);
  }
  const auto grid =
      cuda::grid_stride_shape(count / pack, detail::kBroadcastThreads, detail::kBroadcastThreads);
  cuda::launch(stream, grid, detail::broadcast_kernel<pack, Out, F, In...>, count / pack, function,
               detail::walk_of(plan, pack), out, inputs...);
}

}  // namespace sinter::ops
