#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

template <class F>
void run_unary(const KernelContext& context) {
  const auto run = [&]<class T> { map_elements<T, T>(context.input(0), context.output(0), F()); };
  if constexpr (F::kIntegers) {
    dispatch_number(context.input(0).dtype, F::kName, run);
  } else {
    dispatch_float(context.input(0).dtype, F::kName, run);
  }
}

template <class F>
void run_unary_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, F::kName, [&]<class T> {
    map_elements<T, T>(context.input(0), context.input(1), context.output(0),
                       [](auto saved, auto dy) { return F::derivative(saved, dy); });
  });
}

}  // namespace

void register_unary_cpu(OpRegistry& registry);
void register_unary_cpu(OpRegistry& registry) {
  for_each_unary([&]<class F>(F) {
    registry.add_kernel(F::kName, {.device = DeviceType::kCpu, .run = run_unary<F>});
    if constexpr (F::kReads != UnaryReads::kNothing) {
      registry.add_kernel(std::string(F::kName) + "_grad", {.device = DeviceType::kCpu, .run = run_unary_grad<F>});
    }
  });
}

}  // namespace sinter::ops
