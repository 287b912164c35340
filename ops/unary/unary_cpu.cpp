#include <cmath>
#include <limits>

#include <Eigen/Core>

#include <sinter/ops/common/cpu/elementwise_op_cpu.h>
#include <sinter/ops/unary/unary_math.h>

// GCC 12 takes the deliberately undefined operands inside its own AVX-512 intrinsics for a mistake (GCC bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace sinter::ops {
namespace {

/// Eigen's logarithm of floats is vectorised and as accurate as std::log (both within 0.9 units in the last
/// place), but takes subnormal numbers for the smallest normal one.
struct LogBlock {
  void operator()(const float* x, float* y, int64_t count) const {
    Eigen::Map<Eigen::ArrayXf>(y, count) = Eigen::Map<const Eigen::ArrayXf>(x, count).log();
    constexpr float kSmallestNormal = std::numeric_limits<float>::min();
    const auto is_subnormal = [](float value) { return (value > 0.0f) & (value < kSmallestNormal); };
    int any = 0;
    for (int64_t i = 0; i < count; ++i) any |= is_subnormal(x[i]);
    if (any == 0) return;
    for (int64_t i = 0; i < count; ++i) {
      if (is_subnormal(x[i])) y[i] = std::log(x[i]);
    }
  }
};

bool computes_in_float(const KernelQuery& query) {
  return query.input(0).dtype != DType::kFloat64;
}

void run_log(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  dispatch_float(x.dtype, "log", [&]<class T> {
    if constexpr (std::is_same_v<compute_type<T>, float>) map_blocks<T, T>(x, y, LogBlock());
  });
}

/// Kernels for some calls of an op, before its general one.
void add_special_kernel(OpRegistry& registry, const char* op, const char* name,
                        bool (*can_run)(const KernelQuery&), void (*run)(const KernelContext&)) {
  registry.add_kernel(
      op, {.device = DeviceType::kCpu, .name = name, .priority = 1, .can_run = can_run, .run = run});
}

}  // namespace

void register_unary_cpu(OpRegistry& registry);
void register_unary_cpu(OpRegistry& registry) {
  add_elementwise_cpu_kernels(registry, UnaryOps());
  add_special_kernel(registry, "log", "vectorised", computes_in_float, run_log);
  add_special_kernel(registry, "pow", "square", is_pow<2>, run_elementwise_cpu<Square>);
  add_special_kernel(registry, "pow", "reciprocal", is_pow<-1>, run_elementwise_cpu<Reciprocal>);
  add_special_kernel(registry, "pow_grad", "square", is_pow<2>, run_elementwise_grad_cpu<Square>);
}

}  // namespace sinter::ops
