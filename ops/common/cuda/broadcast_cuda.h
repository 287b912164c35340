// The one launch template for elementwise kernels whose inputs are broadcast; tensors of one shape go to
// elementwise_kernel. A thread handles packs of neighbouring outputs that begin where the output is aligned,
// and reads inputs in the widest accesses that their addresses allow. For .cu files.
#pragma once

#include <array>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/cuda/flat_walk.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>

namespace sinter::ops {

namespace detail {

template <int pack, class T>
__device__ __forceinline__ cuda::Pack<T, pack> repeat(T value) {
  cuda::Pack<T, pack> repeated;
#pragma unroll
  for (int j = 0; j < pack; ++j) repeated.values[j] = value;
  return repeated;
}

/// The elements of input k for the pack of outputs that begins in `row`, which itself does at `begin` in the
/// input, at `column`.
template <int k, int pack, int inputs, class T>
__device__ __forceinline__ cuda::Pack<T, pack> load_of_row(const BroadcastWalk<inputs>& walk, uint32_t row,
                                                           uint32_t begin, uint32_t column, const T* input) {
  if (walk.flat[k] || walk.inner.divisor() - column >= pack) {
    const T* from = input + walk.offset(k, begin, column);
    return walk.steps[k] ? load_unaligned<pack>(from) : repeat<pack>(*from);
  }
  cuda::Pack<T, pack> loaded;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    loaded.values[j] = input[walk.offset(k, begin, column)];
    if (++column < walk.inner.divisor()) continue;
    column = 0;
    begin = walk.row_begin(k, ++row);
  }
  return loaded;
}

template <int pack, size_t... k, class... In>
__device__ __forceinline__ void load_broadcast(InputPacks<pack, std::index_sequence<k...>, In...>& to,
                                               const BroadcastWalk<sizeof...(In)>& walk, uint32_t first,
                                               const In*... inputs) {
  uint32_t column = 0, begins[sizeof...(In)];
  const uint32_t row = walk.row_of(first, column);
  walk.find_row(row, begins);
  (to.InputPack<k, In, pack>::keep(
       load_of_row<static_cast<int>(k), pack>(walk, row, begins[k], column, inputs)),
   ...);
}

template <class Out, class F, size_t... k, class... In>
__device__ __forceinline__ Out broadcast_element(const F& function, const BroadcastWalk<sizeof...(In)>& walk,
                                                 uint32_t index, std::index_sequence<k...>,
                                                 const In*... inputs) {
  uint32_t column = 0, begins[sizeof...(In)];
  walk.find_row(walk.row_of(index, column), begins);
  return cuda::round_to<Out>(
      function(cuda::load_as_compute(inputs[walk.offset(static_cast<int>(k), begins[k], column)])...));
}

constexpr int kBroadcastPacks = 2;  // of a thread

/// As elementwise_kernel.
template <int pack, class Out, class F, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    broadcast_kernel(FlatCut cut, F function, const __grid_constant__ BroadcastWalk<sizeof...(In)> walk,
                     Out* out, const In*... inputs) {
  static_assert(2 * pack <= kElementwiseThreads);
  constexpr auto all = std::index_sequence_for<In...>{};
  const auto whole = static_cast<uint32_t>(cut.packs), head = static_cast<uint32_t>(cut.head);
  const uint32_t mine = blockIdx.x * (kElementwiseThreads * kBroadcastPacks) + threadIdx.x;
  InputPacks<pack, std::index_sequence_for<In...>, In...> loaded[kBroadcastPacks];
#pragma unroll
  for (int k = 0; k < kBroadcastPacks; ++k) {
    const uint32_t number = mine + k * kElementwiseThreads;
    if (number < whole) load_broadcast(loaded[k], walk, head + number * pack, inputs...);
  }
#pragma unroll
  for (int k = 0; k < kBroadcastPacks; ++k) {
    const uint32_t number = mine + k * kElementwiseThreads;
    if (number >= whole) continue;
    *reinterpret_cast<cuda::Pack<Out, pack>*>(out + head + number * pack) =
        loaded[k].template apply<Out>(function);
  }
  if (blockIdx.x > 0) return;
  cut.pack = pack;
  const int64_t edge = cut.edge(threadIdx.x);
  if (edge >= 0) {
    out[edge] = broadcast_element<Out>(function, walk, static_cast<uint32_t>(edge), all, inputs...);
  }
}

/// `plan` has fewer than 2^31 elements.
template <class Out, class F, class... In>
void launch_walk(const Stream& stream, const BroadcastPlan<sizeof...(In)>& plan, F function, Out* out,
                 const In*... inputs) {
  constexpr int pack = std::min({cuda::kPackSize<Out>, cuda::kPackSize<In>...});
  constexpr auto element = static_cast<int64_t>(sizeof(Out));
  int64_t count = 1;
  for (int axis = 0; axis < plan.rank; ++axis) count *= plan.extents[static_cast<size_t>(axis)];
  const FlatCut cut(count, elements_before_aligned(out, element * pack, element, count), pack);
  cuda::launch(stream, elementwise_shape(cut.packs, kBroadcastPacks), broadcast_kernel<pack, Out, F, In...>,
               cut, function, BroadcastWalk<sizeof...(In)>(plan), out, inputs...);
}

/// The types of the inputs are given, never deduced: where nvcc deduces them from a pack inside a lambda, the
/// kernel that it compiles is not the one that is launched.
template <class Out, class F, class... In, size_t... k>
void launch_part(const Stream& stream, const BroadcastPlan<sizeof...(In)>& part, F function, Out* out,
                 const std::array<int64_t, sizeof...(In)>& offsets, std::index_sequence<k...>,
                 const In*... inputs) {
  launch_walk<Out, F, In...>(stream, part, function, out, (inputs + offsets[k])...);
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
  const auto plan = plan_broadcast<sizeof...(In)>(shape, shapes);
  if (plan.is_plain()) return launch_elementwise(stream, count, function, out, inputs...);
  for_each_part(plan, INT32_MAX, [&](const auto& part, int64_t first, const auto& offsets) {
    detail::launch_part<Out, F, In...>(stream, part, function, out + first, offsets,
                                       std::index_sequence_for<In...>{}, inputs...);
  });
}

}  // namespace sinter::ops
