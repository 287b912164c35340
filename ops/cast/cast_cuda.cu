#include <sinter/ops/cast/cast_math.h>
#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

template <class To>
struct Convert {
  template <class From>
  __device__ compute_type<To> operator()(From value) const {
    return convert_element<To>(value);
  }
};

void run_cast(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_number(number_dtype(x.dtype), "cast", [&]<class From> {
    dispatch_all(y.dtype, "cast", [&]<class To> {
      launch_elementwise(context.stream(), y.numel(), Convert<To>(), y.as<To>(), x.as<const From>());
    });
  });
}

}  // namespace

void register_cast_cuda(OpRegistry& registry);
void register_cast_cuda(OpRegistry& registry) {
  registry.add_kernel("cast", {.device = DeviceType::kCuda, .run = run_cast});
}

}  // namespace sinter::ops
