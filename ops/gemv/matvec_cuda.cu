// The kernels of matvec and outer: products with a vector, and a product that is broadcast.
#include <algorithm>

#include <sinter/ops/common/cuda/broadcast_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/gemv/gemv_cuda.h>

namespace sinter::ops {
namespace {

// ---- matvec

constexpr int64_t kMostOuts = int64_t{1} << 30;

/// Calls `body(run, problem)` for the runs of a matvec call; Call is KernelQuery or KernelContext.
template <class Call, class Body>
void for_each_product(const Call& call, Body&& body) {
  const Shape& a = call.input(0).shape;
  const bool transpose = call.template attributes<MatvecAttributes>().transpose_a;
  const int64_t rows = a[-2], columns = a[-1], out = transpose ? columns : rows;
  const auto run_product = [&](const BatchRun& run) {
    const int64_t in = transpose ? rows : columns;
    body(run, GemvProblem{.dtype = call.input(0).dtype,
                          .transpose = transpose,
                          .batch = run.count,
                          .rows = rows,
                          .columns = columns,
                          .a_stride = run.a_step * rows * columns,
                          .x_stride = run.b_step * in});
  };
  for_each_batch_run(batch_shape(call.output(0).shape, 1), batch_shape(a, 2),
                     batch_shape(call.input(1).shape, 1), run_product,
                     std::max<int64_t>(kMostOuts / std::max<int64_t>(out, 1), 1));
}

size_t matvec_workspace(const KernelQuery& query) {
  size_t most = 0;
  if (query.output(0).shape.numel() == 0) return most;
  for_each_product(query, [&](const BatchRun&, const GemvProblem& problem) {
    most = std::max(most, gemv_workspace(problem));
  });
  return most;
}

void run_matvec(const KernelContext& context) {
  const TensorView &a = context.input(0), &x = context.input(1), &y = context.output(0);
  if (y.numel() == 0) return;
  const auto element = static_cast<int64_t>(size_of(a.dtype));
  for_each_product(context, [&](const BatchRun& run, const GemvProblem& problem) {
    run_gemv(context.stream(), problem,
             a.as<const std::byte>() + run.a * problem.rows * problem.columns * element,
             x.as<const std::byte>() + run.b * problem.in() * element,
             y.as<std::byte>() + run.first * problem.out() * element, context.workspace());
  });
}

// ---- outer

struct Product {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};

/// y[b, i, j] = u[b, i] v[b, j]: a product of columns and rows.
void run_outer(const KernelContext& context) {
  const TensorView &u = context.input(0), &v = context.input(1), &y = context.output(0);
  const Shape columns = u.shape.inserted(u.shape.rank(), 1), rows = v.shape.inserted(v.shape.rank() - 1, 1);
  dispatch_float(y.dtype, "outer", [&]<class T> {
    launch_broadcast(context.stream(), y.shape, {columns, rows}, Product(), y.as<T>(), u.as<const T>(),
                     v.as<const T>());
  });
}

}  // namespace

void register_gemv_cuda(OpRegistry& registry);
void register_gemv_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "matvec",
      {.device = DeviceType::kCuda, .name = "gemv", .workspace_bytes = matvec_workspace, .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCuda, .run = run_outer});
}

}  // namespace sinter::ops
