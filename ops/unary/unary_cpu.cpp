#include <cmath>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/elementwise_op_cpu.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

/// store(i, f(x[i])) for each i, where f is `bounded` for |x| up to kMostBoundedAngle, and `exact` beyond: a
/// block without such elements runs without a branch.
template <float (*bounded)(float), float (*exact)(float), class Store>
void map_angles(const float* x, int64_t count, Store store) {
  const auto holds = [](float angle) { return !(std::abs(angle) > math::kMostBoundedAngle); };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    int all = 1;
    for (int64_t i = begin; i < end; ++i) all &= holds(x[i]);
    if (all != 0) {
      SINTER_IVDEP
      for (int64_t i = begin; i < end; ++i) store(i, bounded(x[i]));
    } else {
      for (int64_t i = begin; i < end; ++i) store(i, holds(x[i]) ? bounded(x[i]) : exact(x[i]));
    }
  }
}

struct SinBlock {
  void operator()(const float* x, float* y, int64_t count) const {
    map_angles<math::bounded_sin, std::sin>(x, count, [=](int64_t i, float sine) { y[i] = sine; });
  }
  /// dx = -dy * sin(x), of the cosine.
  void operator()(const float* x, const float* dy, float* dx, int64_t count) const {
    map_angles<math::bounded_sin, std::sin>(x, count, [=](int64_t i, float sine) { dx[i] = -dy[i] * sine; });
  }
};

struct CosBlock {
  void operator()(const float* x, float* y, int64_t count) const {
    map_angles<math::bounded_cos, std::cos>(x, count, [=](int64_t i, float cosine) { y[i] = cosine; });
  }
  /// dx = dy * cos(x), of the sine.
  void operator()(const float* x, const float* dy, float* dx, int64_t count) const {
    map_angles<math::bounded_cos, std::cos>(x, count,
                                            [=](int64_t i, float cosine) { dx[i] = dy[i] * cosine; });
  }
};

bool computes_in_float(const KernelQuery& query) {
  return query.input(0).dtype != DType::kFloat64;
}

/// Of one input, or of two: the angle and dy.
template <class Block>
void run_angles(const KernelContext& context) {
  const TensorView &x = context.input(0), &out = context.output(0);
  dispatch_float(x.dtype, "sin", [&]<class T> {
    if constexpr (std::is_same_v<compute_type<T>, float>) {
      if (context.input_count() == 1) {
        map_blocks<T, T>(x, out, Block());
      } else {
        map_blocks<T, T>(x, context.input(1), out, Block());
      }
    }
  });
}

/// Kernels for some calls of an op, before its general one.
void add_special_kernel(OpRegistry& registry, const char* op, const char* name,
                        bool (*can_run)(const KernelQuery&), void (*run)(const KernelContext&)) {
  registry.add_kernel(op, {.device = DeviceType::kCpu, .name = name, .can_run = can_run, .run = run});
}

}  // namespace

void register_unary_cpu(OpRegistry& registry);
void register_unary_cpu(OpRegistry& registry) {
  add_elementwise_cpu_kernels(registry, UnaryOps());
  add_special_kernel(registry, "sin", "vectorised", computes_in_float, run_angles<SinBlock>);
  add_special_kernel(registry, "cos", "vectorised", computes_in_float, run_angles<CosBlock>);
  add_special_kernel(registry, "sin_grad", "vectorised", computes_in_float, run_angles<CosBlock>);
  add_special_kernel(registry, "cos_grad", "vectorised", computes_in_float, run_angles<SinBlock>);
  add_special_kernel(registry, "pow", "square", is_pow<2>, run_elementwise_cpu<Square>);
  add_special_kernel(registry, "pow", "reciprocal", is_pow<-1>, run_elementwise_cpu<Reciprocal>);
  add_special_kernel(registry, "pow_grad", "square", is_pow<2>, run_elementwise_grad_cpu<Square>);
}

}  // namespace sinter::ops
