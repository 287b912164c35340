#include <algorithm>
#include <cstring>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/index_check_cpu.h>
#include <sinter/ops/embedding/embedding.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

void copy_rows(const TensorView& weight, const TensorView& indices, const TensorView& y, const char* tag) {
  check_indices(indices, weight.shape[0], tag);
  const int64_t columns = weight.shape[1];
  const size_t bytes = static_cast<size_t>(columns) * size_of(weight.dtype);
  if (bytes == 0) return;
  const auto* from = weight.as<const std::byte>();
  auto* to = y.as<std::byte>();
  const auto* index = indices.as<const int64_t>();
  parallel_for(indices.numel(), std::max<int64_t>(1, kGrainElements / columns),
               [=](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   std::memcpy(to + static_cast<size_t>(i) * bytes,
                               from + static_cast<size_t>(index[i]) * bytes, bytes);
                 }
               });
}

void run_embedding(const KernelContext& context) {
  copy_rows(context.input(0), context.input(1), context.output(0), "embedding");
}

void run_take_rows(const KernelContext& context) {
  copy_rows(context.input(1), context.input(2), context.input(0), "take_rows_");
}

/// Row r of the table is read by the positions order[starts[r]], ..., order[starts[r + 1] - 1], in rising
/// order.
void sort_by_row(const int64_t* indices, int64_t count, int64_t rows, int64_t* starts, int64_t* order) {
  std::fill_n(starts, rows + 1, int64_t{0});
  for (int64_t i = 0; i < count; ++i) ++starts[indices[i] + 1];
  for (int64_t row = 0; row < rows; ++row) starts[row + 1] += starts[row];
  // Each start moves on while its row fills, and so ends as the start of the next row.
  for (int64_t i = 0; i < count; ++i) order[starts[indices[i]]++] = i;
  for (int64_t row = rows; row > 0; --row) starts[row] = starts[row - 1];
  starts[0] = 0;
}

/// One row of the gradient: the rows of dy at `positions`, added in this order.
template <class T>
void sum_rows(const T* dy, const int64_t* positions, int64_t count, int64_t columns, T* to) {
  using C = compute_type<T>;
  constexpr int64_t kBlock = 64;
  for (int64_t column = 0; column < columns; column += kBlock) {
    const int64_t width = std::min(kBlock, columns - column);
    C sums[kBlock] = {};
    for (int64_t i = 0; i < count; ++i) {
      const T* from = dy + positions[i] * columns + column;
      for (int64_t j = 0; j < width; ++j) sums[j] += static_cast<C>(from[j]);
    }
    for (int64_t j = 0; j < width; ++j) to[column + j] = static_cast<T>(sums[j]);
  }
}

size_t embedding_grad_workspace(const KernelQuery& query) {
  const int64_t rows = query.output(0).shape[0];
  return static_cast<size_t>(rows + 1 + query.input(1).shape.numel()) * sizeof(int64_t);
}

void run_embedding_grad(const KernelContext& context) {
  const TensorView& dy = context.input(0);
  const TensorView& indices = context.input(1);
  const TensorView& dweight = context.output(0);
  const int64_t rows = dweight.shape[0], columns = dweight.shape[1];
  check_indices(indices, rows, "embedding_grad");
  if (dweight.numel() == 0) return;
  auto* starts = context.workspace<int64_t>();
  int64_t* order = starts + rows + 1;
  sort_by_row(indices.as<const int64_t>(), indices.numel(), rows, starts, order);
  dispatch_float(dy.dtype, "embedding_grad", [&]<class T> {
    parallel_for(rows, std::max<int64_t>(1, kGrainElements / columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        sum_rows(dy.as<const T>(), order + starts[row], starts[row + 1] - starts[row], columns,
                 dweight.as<T>() + row * columns);
      }
    });
  });
}

}  // namespace

void register_embedding_cpu(OpRegistry& registry);
void register_embedding_cpu(OpRegistry& registry) {
  registry.add_kernel("embedding", {.device = DeviceType::kCpu, .run = run_embedding});
  registry.add_kernel("take_rows_", {.device = DeviceType::kCpu, .run = run_take_rows});
  registry.add_kernel(
      "embedding_grad",
      {.device = DeviceType::kCpu, .workspace_bytes = embedding_grad_workspace, .run = run_embedding_grad});
}

}  // namespace sinter::ops
