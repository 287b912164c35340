// The kernels of matvec and outer: thin products, and a kernel that writes the outer product a warp per row.
#include <algorithm>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/matvec/batch.h>
#include <sinter/ops/matvec/batch_runs.h>
#include <sinter/ops/matvec/matvec.h>
#include <sinter/ops/matvec/thin_product_cuda.h>

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
    body(run, ThinProblem{.dtype = call.input(0).dtype,
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
  for_each_product(query, [&](const BatchRun&, const ThinProblem& problem) {
    most = std::max(most, thin_workspace(problem));
  });
  return most;
}

void run_matvec(const KernelContext& context) {
  const TensorView &a = context.input(0), &x = context.input(1), &y = context.output(0);
  if (y.numel() == 0) return;
  const auto element = static_cast<int64_t>(size_of(a.dtype));
  for_each_product(context, [&](const BatchRun& run, const ThinProblem& problem) {
    multiply_thin(context.stream(), problem,
                  a.as<const std::byte>() + run.a * problem.rows * problem.columns * element,
                  x.as<const std::byte>() + run.b * problem.in() * element,
                  y.as<std::byte>() + run.first * problem.out() * element, context.workspace());
  });
}

// ---- outer

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = 8;  // warps of a block, each with a row of its own

/// A run of (rows, columns) matrices with their vectors; strides in elements, 0 for one that all share.
struct Batch {
  int64_t count, rows, columns, u_stride, v_stride;
};

/// y[b, i, j] = u[b, i] v[b, j].
template <class T>
__global__ void outer_kernel(Batch batch, const T* u, const T* v, T* y) {
  const int64_t all_rows = batch.count * batch.rows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y; row < all_rows;
       row += static_cast<int64_t>(gridDim.x) * kRowsPerBlock) {
    const int64_t item = row / batch.rows;
    const auto factor = cuda::load_as_compute(u[item * batch.u_stride + row - item * batch.rows]);
    const T* with = v + item * batch.v_stride;
    T* to = y + row * batch.columns;
    for (int64_t j = threadIdx.x; j < batch.columns; j += kWarp) {
      to[j] = cuda::round_to<T>(factor * cuda::load_as_compute(with[j]));
    }
  }
}

cuda::LaunchShape one_warp_per_row(int64_t rows) {
  auto shape = cuda::grid_stride_shape(rows, kRowsPerBlock);
  shape.block = dim3(kWarp, kRowsPerBlock);
  return shape;
}

void run_outer(const KernelContext& context) {
  const Shape& y_shape = context.output(0).shape;
  if (y_shape.numel() == 0) return;
  const int64_t rows = y_shape[-2], columns = y_shape[-1];
  dispatch_float(context.input(0).dtype, "outer", [&]<class T> {
    for_each_batch_run(batch_shape(y_shape, 2), batch_shape(context.input(0).shape, 1),
                       batch_shape(context.input(1).shape, 1), [&](const BatchRun& run) {
                         const Batch batch{run.count, rows, columns, run.a_step * rows, run.b_step * columns};
                         cuda::launch(context.stream(), one_warp_per_row(run.count * rows), outer_kernel<T>,
                                      batch, context.input(0).as<const T>() + run.a * rows,
                                      context.input(1).as<const T>() + run.b * columns,
                                      context.output(0).as<T>() + run.first * rows * columns);
                       });
  });
}

}  // namespace

void register_matvec_cuda(OpRegistry& registry);
void register_matvec_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "matvec",
      {.device = DeviceType::kCuda, .name = "thin", .workspace_bytes = matvec_workspace, .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCuda, .run = run_outer});
}

}  // namespace sinter::ops
