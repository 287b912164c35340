#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_normal/random_normal_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__global__ void random_normal_kernel(int64_t count, const int64_t* key, T* draws) {
  const auto seed = static_cast<uint64_t>(key[0]), offset = static_cast<uint64_t>(key[1]);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const double draw = normal_draw(philox(seed, offset + static_cast<uint64_t>(i)));
    draws[i] = cuda::round_to<T>(static_cast<compute_type<T>>(draw));
  }
}

void run_random_normal(const KernelContext& context) {
  const TensorView& draws = context.output(0);
  const int64_t count = draws.numel();
  if (count == 0) return;
  dispatch_float(draws.dtype, "random_normal", [&]<class T> {
    cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                 random_normal_kernel<T>, count, context.input(0).as<const int64_t>(), draws.as<T>());
  });
}

}  // namespace

void register_random_normal_cuda(OpRegistry& registry);
void register_random_normal_cuda(OpRegistry& registry) {
  registry.add_kernel("random_normal", {.device = DeviceType::kCuda, .run = run_random_normal});
}

}  // namespace sinter::ops
