#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/index_check_cpu.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

void run_one_hot(const KernelContext& context) {
  const TensorView &labels = context.input(0), &y = context.output(0);
  const int64_t classes = y.shape[-1];
  check_indices(labels, classes, "one_hot");
  const auto* label = labels.as<const int64_t>();
  dispatch_all(y.dtype, "one_hot", [&]<class T> {
    T* to = y.as<T>();
    parallel_for(labels.numel(), kGrainElements / classes + 1, [=](int64_t begin, int64_t end) {
      std::fill_n(to + begin * classes, (end - begin) * classes, static_cast<T>(0.0F));
      for (int64_t i = begin; i < end; ++i) to[i * classes + label[i]] = static_cast<T>(1.0F);
    });
  });
}

}  // namespace

void register_one_hot_cpu(OpRegistry& registry);
void register_one_hot_cpu(OpRegistry& registry) {
  registry.add_kernel("one_hot", {.device = DeviceType::kCpu, .run = run_one_hot});
}

}  // namespace sinter::ops
