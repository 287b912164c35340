// The kernels of matvec and outer: products with a vector, and a product that is broadcast.
#include <algorithm>
#include <memory>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/common/cuda/broadcast_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/gemv/gemv_cuda.h>

namespace sinter::ops {
namespace {

// ---- matvec

constexpr int64_t kMostOuts = int64_t{1} << 30;

std::shared_ptr<const Prepared> prepare_matvec(const KernelQuery& query) {
  auto prepared = std::make_shared<PreparedGemv>();
  const Shape &a = query.input(0).shape, &y = query.output(0).shape;
  if (y.numel() == 0) return prepared;
  const bool transpose = query.attributes<MatvecOptions>().transpose_a;
  const int64_t rows = a[-2], columns = a[-1], in = transpose ? rows : columns,
                out = transpose ? columns : rows;
  const auto add = [&](const BatchRun& run) {
    const GemvProblem problem{.dtype = query.input(0).dtype,
                              .transpose = transpose,
                              .batch = run.count,
                              .rows = rows,
                              .columns = columns,
                              .a_stride = run.a_step * rows * columns,
                              .x_stride = run.b_step * in,
                              .processors = cuda::device_traits(query.output(0).device.index).processors};
    prepared->products.push_back(
        {.problem = problem, .first = run.a * rows * columns, .second = run.b * in, .out = run.first * out});
  };
  for_each_batch_run(batch_shape(y, 1), batch_shape(a, 2), batch_shape(query.input(1).shape, 1), add,
                     std::max<int64_t>(kMostOuts / std::max<int64_t>(out, 1), 1));
  return prepared;
}

void run_matvec(const KernelContext& context) {
  context.prepared<PreparedGemv>().run(context);
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
  registry.add_kernel("matvec", {.device = DeviceType::kCuda,
                                 .name = "gemv",
                                 .microseconds = gemv_microseconds,
                                 .prepare = prepare_matvec,
                                 .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCuda, .run = run_outer});
}

}  // namespace sinter::ops
