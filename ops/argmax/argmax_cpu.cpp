#include <sinter/ops/argmax/argmax_attributes.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/reduce_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kColumns = 512;  // neighbouring results that are looked for at once

/// The places of the largest elements of `width` <= kColumns neighbouring columns, `stride` elements from row
/// to row.
template <class T>
void argmax_columns(const T* x, int64_t rows, int64_t stride, int64_t width, int64_t* places) {
  compute_type<T> best[kColumns];
  for (int64_t c = 0; c < width; ++c) {
    best[c] = static_cast<compute_type<T>>(x[c]);
    places[c] = 0;
  }
  for (int64_t row = 1; row < rows; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      const auto value = static_cast<compute_type<T>>(x[row * stride + c]);
      const bool replaces = MaxReducer::replaces(value, best[c]);
      best[c] = replaces ? value : best[c];
      places[c] = replaces ? row : places[c];
    }
  }
}

void run_argmax(const KernelContext& context) {
  const TensorView &x = context.input(0), &indices = context.output(0);
  if (indices.numel() == 0) return;
  const int axis = normalize_axis(context.attributes<ArgmaxAttributes>().axis, x.shape.rank(), "argmax");
  const int64_t rows = x.shape[axis], columns = x.shape.stride(axis);
  const int64_t blocks = (columns + kColumns - 1) / kColumns;
  const int64_t task_size = rows * std::min(columns, kColumns);
  dispatch_all(x.dtype, "argmax", [&]<class T> {
    parallel_for(x.shape.count(0, axis) * blocks, std::max<int64_t>(kElementwiseGrain / task_size, 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t outer = task / blocks, first = task % blocks * kColumns;
                     argmax_columns(x.as<const T>() + outer * rows * columns + first, rows, columns,
                                    std::min(kColumns, columns - first),
                                    indices.as<int64_t>() + outer * columns + first);
                   }
                 });
  });
}

}  // namespace

void register_argmax_cpu(OpRegistry& registry);
void register_argmax_cpu(OpRegistry& registry) {
  registry.add_kernel("argmax", {.device = DeviceType::kCpu, .run = run_argmax});
}

}  // namespace sinter::ops
