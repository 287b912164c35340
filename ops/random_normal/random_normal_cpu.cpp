#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_normal/random_normal_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrain = 512;

void run_random_normal(const KernelContext& context) {
  const TensorView& draws = context.output(0);
  const auto* const key = context.input(0).as<const int64_t>();
  const auto seed = static_cast<uint64_t>(key[0]), offset = static_cast<uint64_t>(key[1]);
  dispatch_float(draws.dtype, "random_normal", [&]<class T> {
    T* const values = draws.as<T>();
    parallel_for(draws.numel(), kGrain, [=](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const double draw = normal_draw(philox(seed, offset + static_cast<uint64_t>(i)));
        values[i] = static_cast<T>(static_cast<compute_type<T>>(draw));
      }
    });
  });
}

}  // namespace

void register_random_normal_cpu(OpRegistry& registry);
void register_random_normal_cpu(OpRegistry& registry) {
  registry.add_kernel("random_normal", {.device = DeviceType::kCpu, .run = run_random_normal});
}

}  // namespace sinter::ops
