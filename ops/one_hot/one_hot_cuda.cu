// A thread per element. Labels cannot raise errors here: one out of range gives NaN (0 for integers).
#include <limits>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(Index count, IndexDivide<Index> by_classes, int64_t classes, T zero, T one, T missing,
                   const int64_t* labels, T* y) {
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    Index column = 0;
    const int64_t label = labels[by_classes.divide(i, column)];
    const bool known = label >= 0 && label < classes;
    y[i] = !known ? missing : label == static_cast<int64_t>(column) ? one : zero;
  }
}

void run_one_hot(const KernelContext& context) {
  const TensorView &labels = context.input(0), &y = context.output(0);
  const int64_t count = y.numel(), classes = y.shape[-1];
  if (count == 0) return;
  dispatch_all(y.dtype, "one_hot", [&]<class T> {
    const T zero = static_cast<T>(0.0F), one = static_cast<T>(1.0F);
    T missing = zero;
    if constexpr (!std::is_integral_v<T>) missing = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    dispatch_index(count, [&]<class Index> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                   one_hot_kernel<Index, T>, static_cast<Index>(count), IndexDivide<Index>(classes), classes,
                   zero, one, missing, labels.as<const int64_t>(), y.as<T>());
    });
  });
}

}  // namespace

void register_one_hot_cuda(OpRegistry& registry);
void register_one_hot_cuda(OpRegistry& registry) {
  registry.add_kernel("one_hot", {.device = DeviceType::kCuda, .run = run_one_hot});
}

}  // namespace sinter::ops
