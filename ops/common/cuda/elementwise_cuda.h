// The one launch template for elementwise kernels on a GPU: 16-byte accesses where the pointers allow it, a
// scalar tail, float arithmetic for the 16-bit types. Functors come from the op's <op>_math.h, shared with
// the CPU. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>

namespace sinter::ops {

namespace detail {

constexpr unsigned kElementwiseThreads = 256;

/// out[i] = function(inputs[i]...), `pack` elements an access; the last count % pack elements one by one.
template <int pack, class Out, class F, class... In>
__global__ void elementwise_kernel(int64_t count, F function, Out* out, const In*... inputs) {
  using cuda::load_as_compute;
  const int64_t packs = count / pack;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < packs; i += stride) {
    const auto apply = [&](const cuda::Pack<In, pack>... loaded) {
      cuda::Pack<Out, pack> result;
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        result.values[j] = cuda::round_to<Out>(function(load_as_compute(loaded.values[j])...));
      }
      reinterpret_cast<cuda::Pack<Out, pack>*>(out)[i] = result;
    };
    apply(reinterpret_cast<const cuda::Pack<In, pack>*>(inputs)[i]...);
  }
  const int64_t i = packs * pack + first;
  if (i < count) out[i] = cuda::round_to<Out>(function(load_as_compute(inputs[i])...));
}

}  // namespace detail

/// out[i] = function(inputs[i]...) for `count` elements; `function` takes and gives compute types and is
/// callable on the device. Inputs may alias the output exactly.
template <class Out, class F, class... In>
void launch_elementwise(const Stream& stream, int64_t count, F function, Out* out, const In*... inputs) {
  constexpr int pack = std::min({cuda::kPackSize<Out>, cuda::kPackSize<In>...});
  const bool aligned =
      cuda::is_aligned(out, sizeof(Out) * pack) && (cuda::is_aligned(inputs, sizeof(In) * pack) && ...);
  if (count == 0) return;
  if (aligned) {
    // The tail needs at least `pack` threads, which every grid has.
    const auto shape = cuda::grid_stride_shape(count, int64_t{pack} * detail::kElementwiseThreads,
                                               detail::kElementwiseThreads);
    cuda::launch(stream, shape, detail::elementwise_kernel<pack, Out, F, In...>, count, function, out,
                 inputs...);
  } else {
    const auto shape =
        cuda::grid_stride_shape(count, detail::kElementwiseThreads, detail::kElementwiseThreads);
    cuda::launch(stream, shape, detail::elementwise_kernel<1, Out, F, In...>, count, function, out,
                 inputs...);
  }
}

}  // namespace sinter::ops
