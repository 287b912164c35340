#include <sinter/ops/clip/clip_math.h>
#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cuda.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

template <class C>
struct ClipDerivative {
  ClipFunctor<C> functor;
  __device__ C operator()(C x, C dy) const { return functor.derivative(x, dy); }
};

void run_clip(const KernelContext& context) {
  dispatch_number(context.input(0).dtype, "clip", [&]<class T> {
    launch_elementwise(context.stream(), context.output(0).numel(),
                       ClipFunctor<compute_type<T>>(context.attributes<ClipAttributes>()),
                       context.output(0).as<T>(), context.input(0).as<const T>());
  });
}

void run_clip_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "clip_grad", [&]<class T> {
    using C = compute_type<T>;
    launch_elementwise(context.stream(), context.output(0).numel(),
                       ClipDerivative<C>{ClipFunctor<C>(context.attributes<ClipAttributes>())},
                       context.output(0).as<T>(), context.input(0).as<const T>(),
                       context.input(1).as<const T>());
  });
}

}  // namespace

void register_clip_cuda(OpRegistry& registry);
void register_clip_cuda(OpRegistry& registry) {
  registry.add_kernel("clip", {.device = DeviceType::kCuda, .run = run_clip});
  registry.add_kernel("clip_grad", {.device = DeviceType::kCuda, .run = run_clip_grad});
}

}  // namespace sinter::ops
