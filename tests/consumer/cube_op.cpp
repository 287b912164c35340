// An op outside Sinter's tree: y = x^3 with its gradient, registered when the library is loaded.
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/affine/affine.h>
#include <sinter/ops/binary/binary.h>

namespace {

using namespace sinter;

std::vector<TensorSpec> infer(const InferContext& context) {
  context.expect_float(0);
  return {context.input(0)};
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor x = context.input(0);
  return {ops::mul(context.grad(), ops::affine(ops::mul(x, x), 3.0, 0.0))};
}

void run(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "cube", [&]<class T> {
    const T* x = context.input(0).as<T>();
    T* y = context.output(0).as<T>();
    parallel_for(context.output(0).numel(), 4096, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<compute_type<T>>(x[i]);
        y[i] = static_cast<T>(value * value * value);
      }
    });
  });
}

}  // namespace

extern "C" void sinter_register_ops(sinter::OpRegistry& registry) {
  registry.add({.name = "cube",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer,
                .gradient = gradient,
                .gradient_reads = {.inputs = reads_of({0})}});
  registry.add_kernel("cube", {.device = DeviceType::kCpu, .run = run});
}
