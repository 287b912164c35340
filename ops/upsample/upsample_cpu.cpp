#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/upsample/upsample_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 4096;

void fill_axis(const UpsampleAxis& axis, UpsampleTap* taps, int64_t* begins) {
  for (int64_t o = 0; o < axis.output; ++o) taps[o] = axis.tap(o);
  for (int64_t i = 0; i <= axis.input; ++i) begins[i] = axis.begin_of(i);
}

UpsampleTables make_tables(const KernelContext& context, const UpsampleProblem& problem) {
  const UpsampleTables tables(problem, context.workspace());
  fill_axis(problem.rows, tables.row_taps, tables.row_begins);
  fill_axis(problem.columns, tables.column_taps, tables.column_begins);
  return tables;
}

size_t upsample_workspace(const KernelQuery& query) {
  return UpsampleProblem(query.input(0).shape, query.output(0).shape, query.attributes<UpsampleAttributes>())
      .table_bytes();
}
size_t upsample_grad_workspace(const KernelQuery& query) {
  return UpsampleProblem(query.output(0).shape, query.input(0).shape, query.attributes<UpsampleAttributes>())
      .table_bytes();
}

template <class T>
auto loader_of(const T* image) {
  return [image](int64_t i) { return static_cast<compute_type<T>>(image[i]); };
}

/// Calls `fill(image, row)` for every row of every image, in parallel.
template <class Fill>
void for_each_row(int64_t images, int64_t rows, int64_t row_elements, const Fill& fill) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(row_elements, 1));
  parallel_for(images * rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) fill(at / rows, at % rows);
  });
}

void run_upsample(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const UpsampleProblem problem(x.shape, y.shape, context.attributes<UpsampleAttributes>());
  const UpsampleTables tables = make_tables(context, problem);
  const int64_t inner = problem.inner, width = problem.columns.output;
  dispatch_float(x.dtype, "upsample", [&]<class T> {
    for_each_row(problem.outer, problem.rows.output, width * inner, [&](int64_t n, int64_t row) {
      const auto image = loader_of(x.as<const T>() + n * problem.rows.input * problem.columns.input * inner);
      T* out = y.as<T>() + (n * problem.rows.output + row) * width * inner;
      for (int64_t column = 0; column < width; ++column) {
        for (int64_t k = 0; k < inner; ++k) {
          *out++ = static_cast<T>(upsample_value<compute_type<T>>(image, problem, tables.row_taps[row],
                                                                  tables.column_taps[column], k));
        }
      }
    });
  });
}

void run_upsample_grad(const KernelContext& context) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const UpsampleProblem problem(dx.shape, dy.shape, context.attributes<UpsampleAttributes>());
  const UpsampleTables tables = make_tables(context, problem);
  const int64_t inner = problem.inner, width = problem.columns.input;
  dispatch_float(dy.dtype, "upsample_grad", [&]<class T> {
    for_each_row(problem.outer, problem.rows.input, width * inner, [&](int64_t n, int64_t row) {
      const auto image =
          loader_of(dy.as<const T>() + n * problem.rows.output * problem.columns.output * inner);
      T* out = dx.as<T>() + (n * problem.rows.input + row) * width * inner;
      for (int64_t column = 0; column < width; ++column) {
        for (int64_t k = 0; k < inner; ++k) {
          *out++ = static_cast<T>(upsample_gradient<compute_type<T>>(image, problem, tables, row, column, k));
        }
      }
    });
  });
}

}  // namespace

void register_upsample_cpu(OpRegistry& registry);
void register_upsample_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "upsample", {.device = DeviceType::kCpu, .workspace_bytes = upsample_workspace, .run = run_upsample});
  registry.add_kernel(
      "upsample_grad",
      {.device = DeviceType::kCpu, .workspace_bytes = upsample_grad_workspace, .run = run_upsample_grad});
}

}  // namespace sinter::ops
