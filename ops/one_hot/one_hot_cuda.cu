// A thread writes 16 bytes. Labels cannot raise errors here: one out of range gives NaN (0 for integers).
#include <limits>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/flat_walk.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// The three values of a row.
template <class T>
struct Marks {
  T zero, one, missing;

  __device__ __forceinline__ T at(int64_t column, int64_t label, int64_t classes) const {
    const bool known = label >= 0 && label < classes;
    return !known ? missing : label == column ? one : zero;
  }
};

template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(FlatCut cut, IndexDivide<Index> by_classes, int64_t classes, Marks<T> marks,
                   const int64_t* __restrict__ labels, T* __restrict__ y) {
  constexpr int pack = cuda::kPackSize<T>;
  const auto mark = [&](int64_t i) {
    Index column = 0;
    const int64_t label = labels[by_classes.divide(static_cast<Index>(i), column)];
    return marks.at(static_cast<int64_t>(column), label, classes);
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = thread; i < cut.packs; i += step) {
    const int64_t first = cut.head + i * pack;
    Index place = 0;
    const int64_t label = labels[by_classes.divide(static_cast<Index>(first), place)];
    const auto column = static_cast<int64_t>(place);
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      result.values[j] = column + j < classes ? marks.at(column + j, label, classes) : mark(first + j);
    }
    *reinterpret_cast<cuda::Pack<T, pack>*>(y + first) = result;
  }
  const int64_t edge = cut.edge(thread);
  if (edge >= 0) y[edge] = mark(edge);
}

void run_one_hot(const KernelContext& context) {
  const TensorView &labels = context.input(0), &y = context.output(0);
  const int64_t count = y.numel(), classes = y.shape[-1];
  if (count == 0) return;
  dispatch_all(y.dtype, "one_hot", [&]<class T> {
    const T zero = static_cast<T>(0.0F), one = static_cast<T>(1.0F);
    T missing = zero;
    if constexpr (!std::is_integral_v<T>) missing = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    const FlatCut cut(count, elements_before_aligned(y.data, 16, sizeof(T), count), cuda::kPackSize<T>);
    dispatch_index(count, [&]<class Index> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(cut.packs, kThreads, kThreads),
                   one_hot_kernel<Index, T>, cut, IndexDivide<Index>(classes), classes,
                   Marks<T>{zero, one, missing}, labels.as<const int64_t>(), y.as<T>());
    });
  });
}

}  // namespace

void register_one_hot_cuda(OpRegistry& registry);
void register_one_hot_cuda(OpRegistry& registry) {
  registry.add_kernel("one_hot", {.device = DeviceType::kCuda, .run = run_one_hot});
}

}  // namespace sinter::ops
