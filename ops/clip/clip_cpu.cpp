#include <sinter/ops/clip/clip_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void run_clip(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, "clip", [&]<class T> {
    map_elements<T, T>(context.input(0), context.output(0),
                       ClipFunctor<compute_type<T>>(context.attributes<ClipAttributes>()));
  });
}

void run_clip_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "clip_grad", [&]<class T> {
    using C = compute_type<T>;
    const ClipFunctor<C> functor(context.attributes<ClipAttributes>());
    map_elements<T, T>(context.input(0), context.input(1), context.output(0),
                       [=](C x, C dy) { return functor.derivative(x, dy); });
  });
}

}  // namespace

void register_clip_cpu(OpRegistry& registry);
void register_clip_cpu(OpRegistry& registry) {
  registry.add_kernel("clip", {.device = DeviceType::kCpu, .run = run_clip});
  registry.add_kernel("clip_grad", {.device = DeviceType::kCpu, .run = run_clip_grad});
}

}  // namespace sinter::ops
