#include <sinter/ops/common/cuda/broadcast_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/where/where_math.h>

namespace sinter::ops {
namespace {

void run_where(const KernelContext& context) {
  const TensorView &condition = context.input(0), &a = context.input(1), &b = context.input(2),
                   &y = context.output(0);
  dispatch_bits(y.dtype, [&]<class T> {
    launch_broadcast(context.stream(), y.shape, {condition.shape, a.shape, b.shape}, Choose(),
                     static_cast<T*>(y.data), static_cast<const bool*>(condition.data),
                     static_cast<const T*>(a.data), static_cast<const T*>(b.data));
  });
}

}  // namespace

void register_where_cuda(OpRegistry& registry);
void register_where_cuda(OpRegistry& registry) {
  registry.add_kernel("where", {.device = DeviceType::kCuda, .run = run_where});
}

}  // namespace sinter::ops
