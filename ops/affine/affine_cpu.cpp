#include <sinter/ops/affine/affine_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void run_affine(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, "affine", [&]<class T> {
    map_elements<T, T>(context.input(0), context.output(0),
                       AffineFunctor<compute_type<T>>(context.attributes<AffineAttributes>()));
  });
}

}  // namespace

void register_affine_cpu(OpRegistry& registry);
void register_affine_cpu(OpRegistry& registry) {
  registry.add_kernel("affine", {.device = DeviceType::kCpu, .run = run_affine});
}

}  // namespace sinter::ops
