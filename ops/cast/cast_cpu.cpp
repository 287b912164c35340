#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void run_cast(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_all(x.dtype, "cast", [&]<class From> {
    dispatch_all(y.dtype, "cast", [&]<class To> {
      map_elements<From, To>(x, y, [](compute_type<From> value) { return convert_element<To>(value); });
    });
  });
}

}  // namespace

void register_cast_cpu(OpRegistry& registry);
void register_cast_cpu(OpRegistry& registry) {
  registry.add_kernel("cast", {.device = DeviceType::kCpu, .run = run_cast});
}

}  // namespace sinter::ops
