#include <sinter/ops/affine/affine_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cuda.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void run_affine(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, "affine", [&]<class T> {
    launch_elementwise(context.stream(), context.output(0).numel(),
                       AffineFunctor<compute_type<T>>(context.attributes<AffineAttributes>()),
                       context.output(0).as<T>(), context.input(0).as<const T>());
  });
}

}  // namespace

void register_affine_cuda(OpRegistry& registry);
void register_affine_cuda(OpRegistry& registry) {
  registry.add_kernel("affine", {.device = DeviceType::kCuda, .run = run_affine});
}

}  // namespace sinter::ops
