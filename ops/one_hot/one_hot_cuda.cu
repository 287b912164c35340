// Memory is cleared, then a thread marks a row. Labels cannot raise errors here: one out of range gives NaN
// (0 for integers).
#include <limits>
#include <type_traits>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Marks rows of zeros.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mark_rows_kernel(int64_t rows, int64_t classes, T one, T missing, const int64_t* __restrict__ labels,
                     T* __restrict__ y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; row < rows; row += step) {
    const int64_t label = labels[row];
    if (label >= 0 && label < classes) {
      y[row * classes + label] = one;
    } else {
      for (int64_t i = 0; i < classes; ++i) y[row * classes + i] = missing;
    }
  }
}

void run_one_hot(const KernelContext& context) {
  const TensorView &labels = context.input(0), &y = context.output(0);
  const int64_t count = y.numel(), classes = y.shape[-1];
  if (count == 0) return;
  const Stream stream = context.stream();
  SINTER_CUDA_CHECK(cudaMemsetAsync(y.data, 0, static_cast<size_t>(count) * size_of(y.dtype),
                                    static_cast<cudaStream_t>(stream.native)));
  dispatch_all(y.dtype, "one_hot", [&]<class T> {
    const T zero = static_cast<T>(0.0F), one = static_cast<T>(1.0F);
    T missing = zero;
    if constexpr (!std::is_integral_v<T>) missing = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    cuda::launch(stream, cuda::grid_stride_shape(labels.numel(), kThreads), mark_rows_kernel<T>,
                 labels.numel(), classes, one, missing, labels.as<const int64_t>(), y.as<T>());
  });
}

}  // namespace

void register_one_hot_cuda(OpRegistry& registry);
void register_one_hot_cuda(OpRegistry& registry) {
  registry.add_kernel("one_hot", {.device = DeviceType::kCuda, .run = run_one_hot});
}

}  // namespace sinter::ops
