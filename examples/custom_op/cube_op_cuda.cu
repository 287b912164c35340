// The kernel for NVIDIA GPUs: Sinter's launch template, and a functor that runs on the device.
#include <sinter/ops/common/cuda/elementwise_cuda.h>

#include "cube_op.h"

namespace {

struct Cube {
  template <class C>
  __device__ C operator()(C x) const {
    return x * x * x;
  }
};

void run(const sinter::KernelContext& context) {
  sinter::dispatch_float(context.input(0).dtype, "cube", [&]<class T> {
    sinter::ops::launch_elementwise(context.stream(), context.output(0).numel(), Cube{},
                                    context.output(0).as<T>(), context.input(0).as<const T>());
  });
}

}  // namespace

void add_cube_cuda(sinter::OpRegistry& registry, const std::string& name) {
  registry.add_kernel(name, {.device = sinter::DeviceType::kCuda, .run = run});
}
