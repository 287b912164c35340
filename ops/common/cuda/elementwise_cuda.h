// The one launch template for elementwise kernels on a GPU: 16-byte accesses wherever the output lies and
// however many elements there are, float arithmetic for the 16-bit types. Functors come from the op's
// <op>_math.h, shared with the CPU. For .cu files.
#pragma once

#include <cstring>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/cuda/elementwise_plan.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>

namespace sinter::ops {

namespace detail {

template <int bytes>
using AccessWord = std::conditional_t<
    bytes == 16, uint4,
    std::conditional_t<
        bytes == 8, uint2,
        std::conditional_t<bytes == 4, uint32_t, std::conditional_t<bytes == 2, uint16_t, uint8_t>>>>;

/// function(...) of the elements of packs, one by one.
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

/// The elements of one input for one pack. They are kept as they are moved: the compiler takes a struct of
/// elements apart as soon as it arrives, and so waits for one input before it asks for the next.
template <size_t index, class T, int pack>
struct InputPack {
  AccessWord<static_cast<int>(sizeof(T)) * pack> word;

  template <bool aligned>
  __device__ __forceinline__ void load(const T* from) {
    if constexpr (aligned) {
      word = *reinterpret_cast<const decltype(word)*>(from);
    } else {
      keep(load_unaligned<pack>(from));
    }
  }
  __device__ __forceinline__ void keep(const cuda::Pack<T, pack>& elements) {
    memcpy(&word, &elements, sizeof(word));
  }
  __device__ __forceinline__ cuda::Pack<T, pack> elements() const {
    cuda::Pack<T, pack> elements;
    memcpy(&elements, &word, sizeof(word));
    return elements;
  }
};

/// The same of all inputs.
template <int pack, class Indices, class... In>
struct InputPacks;
template <int pack, size_t... k, class... In>
struct InputPacks<pack, std::index_sequence<k...>, In...> : InputPack<k, In, pack>... {
  template <bool aligned>
  __device__ __forceinline__ void load(int64_t first, const In*... inputs) {
    (InputPack<k, In, pack>::template load<aligned>(inputs + first), ...);
  }
  template <class Out, class F>
  __device__ __forceinline__ cuda::Pack<Out, pack> apply(const F& function) const {
    return apply_to_packs<pack, Out>(function, InputPack<k, In, pack>::elements()...);
  }
};

/// out[i] = function(inputs[i]...). A thread takes `packs` packs that lie a block apart and asks for all of
/// them before it uses any; the first block also takes the elements outside all packs, one a thread.
/// `aligned`: the output begins at a pack, and so do all inputs.
template <int pack, int packs, bool aligned, class Out, class F, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(FlatCut cut, F function, Out* out, const In*... inputs) {
  static_assert(2 * pack <= kElementwiseThreads);
  if constexpr (aligned) cut.head = 0;
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * (kElementwiseThreads * packs) + threadIdx.x;
  InputPacks<pack, std::index_sequence_for<In...>, In...> loaded[packs];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const int64_t number = mine + k * kElementwiseThreads;
    if (number < cut.packs) loaded[k].template load<aligned>(cut.head + number * pack, inputs...);
  }
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const int64_t number = mine + k * kElementwiseThreads;
    if (number >= cut.packs) continue;
    *reinterpret_cast<cuda::Pack<Out, pack>*>(out + cut.head + number * pack) =
        loaded[k].template apply<Out>(function);
  }
  if (blockIdx.x > 0) return;
  cut.pack = pack;
  const int64_t edge = cut.edge(threadIdx.x);
  if (edge >= 0) out[edge] = cuda::round_to<Out>(function(cuda::load_as_compute(inputs[edge])...));
}

template <int pack, int packs, bool aligned, class Out, class F, class... In>
void launch_packs(const Stream& stream, const FlatCut& cut, F function, Out* out, const In*... inputs) {
  // No memory holds more than the most blocks take, so that no thread need loop.
  const auto shape =
      cuda::grid_stride_shape(cut.packs, int64_t{kElementwiseThreads} * packs, kElementwiseThreads);
  cuda::launch(stream, shape, elementwise_kernel<pack, packs, aligned, Out, F, In...>, cut, function, out,
               inputs...);
}

}  // namespace detail

/// out[i] = function(inputs[i]...) for `count` elements; `function` takes and gives compute types and is
/// callable on the device. Inputs may alias the output exactly.
template <class Out, class F, class... In>
void launch_elementwise(const Stream& stream, int64_t count, F function, Out* out, const In*... inputs) {
  if (count == 0) return;
  constexpr int pack = std::min({cuda::kPackSize<Out>, cuda::kPackSize<In>...});
  constexpr int pack_bytes = pack * (static_cast<int>(sizeof(Out)) + ... + static_cast<int>(sizeof(In)));
  constexpr auto out_bytes = static_cast<int64_t>(sizeof(Out));
  const int64_t head = elements_before_aligned(out, out_bytes * pack, out_bytes, count);
  const FlatCut cut(count, head, pack);
  if (head != 0 || !(cuda::is_aligned(inputs, sizeof(In) * pack) && ...)) {
    return detail::launch_packs<pack, 1, false>(stream, cut, function, out, inputs...);
  }
  if constexpr (pack_bytes >= 32) {
    if (elementwise_packs(pack_bytes, cut.packs, count * out_bytes) == 1) {
      return detail::launch_packs<pack, 1, true>(stream, cut, function, out, inputs...);
    }
  }
  detail::launch_packs<pack, 2, true>(stream, cut, function, out, inputs...);
}

}  // namespace sinter::ops
