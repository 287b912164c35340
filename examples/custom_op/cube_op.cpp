// The op's definition with its gradient, and its kernel for the CPU.
#include "cube_op.h"

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/unary/unary.h>

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

void add_cube(sinter::OpRegistry& registry, const std::string& name) {
  registry.add({.name = name,
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer,
                .gradient = gradient,
                .gradient_reads = {.inputs = reads_of({0})},
                // What lets it take part in the rewrites of jobs: it maps element to element, in any order of
                // axes, in place too, and in 16 bit where what it is given is.
                .traits = {.elementwise = true,
                           .precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder}}});
  registry.add_kernel(name, {.device = DeviceType::kCpu, .run = run});
#if defined(CUBE_WITH_CUDA)
  add_cube_cuda(registry, name);
#endif
}

/// Called by sinter::load_library.
extern "C" void sinter_register_ops(sinter::OpRegistry& registry) {
  add_cube(registry, "cube");
}
