// Cumulative sums on the CPU: neighbouring columns together, one element of the axis after the other.
#include <algorithm>
#include <type_traits>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/cumsum/cumsum.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;
constexpr int64_t kColumns = 64;  // sums at a time

/// The columns [0, columns) of one (extent, inner) matrix.
template <class T, class To>
void sum_columns(const T* x, To* y, const AxisSplit& split, int64_t columns, bool reverse) {
  using Sum = std::conditional_t<std::is_same_v<To, int64_t>, int64_t, double>;
  Sum sums[kColumns] = {};
  for (int64_t i = 0; i < split.extent; ++i) {
    const int64_t row = (reverse ? split.extent - 1 - i : i) * split.inner;
    for (int64_t c = 0; c < columns; ++c) {
      sums[c] += static_cast<Sum>(static_cast<compute_type<T>>(x[row + c]));
      y[row + c] = static_cast<To>(static_cast<compute_type<To>>(sums[c]));
    }
  }
}

template <class T, class To>
void run_typed(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const auto& [axis, reverse] = context.attributes<CumsumAttributes>();
  const AxisSplit split = split_at(x.shape, normalize_axis(axis, x.shape.rank(), "cumsum"));
  const int64_t pieces = (split.inner + kColumns - 1) / kColumns;
  const int64_t work = split.extent * std::min(split.inner, kColumns);
  parallel_for(split.outer * pieces, std::max<int64_t>(1, kGrainElements / work),
               [&, reverse = reverse](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t column = i % pieces * kColumns;
                   const int64_t first = i / pieces * split.extent * split.inner + column;
                   sum_columns(x.as<const T>() + first, y.as<To>() + first, split,
                               std::min(kColumns, split.inner - column), reverse);
                 }
               });
}

void run_cumsum(const KernelContext& context) {
  const DType dtype = context.input(0).dtype;
  if (context.output(0).numel() == 0) return;
  if (is_float(dtype)) {
    dispatch_float(dtype, "cumsum", [&]<class T> { run_typed<T, T>(context); });
  } else {
    dispatch_all(dtype, "cumsum", [&]<class T> { run_typed<T, int64_t>(context); });
  }
}

}  // namespace

void register_cumsum_cpu(OpRegistry& registry);
void register_cumsum_cpu(OpRegistry& registry) {
  registry.add_kernel("cumsum", {.device = DeviceType::kCpu, .run = run_cumsum});
}

}  // namespace sinter::ops
