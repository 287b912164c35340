#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

void run_fill(const KernelContext& context) {
  const TensorView& target = context.input(0);
  dispatch_all(target.dtype, "fill_", [&]<class T> {
    const T value = static_cast<T>(context.attributes<FillAttributes>().value);
    parallel_for(target.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
      std::fill(target.as<T>() + begin, target.as<T>() + end, value);
    });
  });
}

}  // namespace

void register_fill_cpu(OpRegistry& registry);
void register_fill_cpu(OpRegistry& registry) {
  registry.add_kernel("fill_", {.device = DeviceType::kCpu, .run = run_fill});
}

}  // namespace sinter::ops
