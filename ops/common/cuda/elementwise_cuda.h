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

/// Where the first pack of this thread is, and its second one, which lies a block apart; at cut.packs or
/// beyond there is none.
struct ThreadPacks {
  int64_t first, second;

  __device__ __forceinline__ ThreadPacks(const FlatCut& cut, int each)
      : first(static_cast<int64_t>(blockIdx.x) * (kElementwiseThreads * each) + threadIdx.x),
        second(each > 1 ? first + kElementwiseThreads : cut.packs) {}
};

/// out[i] = function(inputs[i]...). A thread takes `each` packs, 1 or 2, and asks for both before it uses
/// any; the first block also takes the elements outside all packs, one a thread. `aligned`: the output begins
/// at a pack, and so do all inputs; else a thread takes one.
template <int pack, class Out, class F, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(FlatCut cut, int each, bool aligned, F function, Out* out, const In*... inputs) {
  static_assert(2 * pack <= kElementwiseThreads);
  cut.pack = pack;
  const ThreadPacks mine(cut, each);
  InputPacks<pack, std::index_sequence_for<In...>, In...> first, second;
  if (aligned) {
    if (mine.first < cut.packs) first.template load<true>(mine.first * pack, inputs...);
    if (mine.second < cut.packs) second.template load<true>(mine.second * pack, inputs...);
  } else if (mine.first < cut.packs) {
    first.template load<false>(cut.first_of(mine.first), inputs...);
  }
  const auto store = [&](int64_t number, const auto& loaded) {
    if (number >= cut.packs) return;
    *reinterpret_cast<cuda::Pack<Out, pack>*>(out + cut.first_of(number)) =
        loaded.template apply<Out>(function);
  };
  store(mine.first, first);
  store(mine.second, second);
  if (blockIdx.x > 0) return;
  const int64_t edge = cut.edge(threadIdx.x);
  if (edge >= 0) out[edge] = cuda::round_to<Out>(function(cuda::load_as_compute(inputs[edge])...));
}

/// Blocks of threads that take `each` packs. No memory holds more than the most blocks take, so that no
/// thread need loop.
inline cuda::LaunchShape elementwise_shape(int64_t packs, int each) {
  return cuda::grid_stride_shape(packs, int64_t{kElementwiseThreads} * each, kElementwiseThreads);
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
  const bool aligned = head == 0 && (cuda::is_aligned(inputs, sizeof(In) * pack) && ...);
  const int each = aligned ? elementwise_packs(pack_bytes, cut.packs, count * out_bytes) : 1;
  cuda::launch(stream, detail::elementwise_shape(cut.packs, each),
               detail::elementwise_kernel<pack, Out, F, In...>, cut, each, aligned, function, out, inputs...);
}

}  // namespace sinter::ops
