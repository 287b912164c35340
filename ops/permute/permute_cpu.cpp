// Permutation on the CPU: a copy, copies of rows where the last axis stays, else blocked 2-d transposes
// between the input's last axis and the output's.
#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>
#include <sinter/ops/common/cpu/transpose_cpu.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;
// One task of a transpose: what it reads and writes stays in the second-level cache, and it reads few, long
// streams.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kBlockColumns = 256;

/// The output's axes but those that the innermost loops take: where item `index` of them starts.
struct OuterAxes {
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{}, input_strides{}, output_strides{};

  void add(int64_t extent, int64_t input_stride, int64_t output_stride) {
    const auto i = static_cast<size_t>(rank++);
    extents[i] = extent;
    input_strides[i] = input_stride;
    output_strides[i] = output_stride;
  }
  int64_t count() const {
    int64_t product = 1;
    for (size_t i = 0; i < static_cast<size_t>(rank); ++i) product *= extents[i];
    return product;
  }
  void locate(int64_t index, int64_t& input, int64_t& output) const {
    input = output = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const auto axis = static_cast<size_t>(i);
      const int64_t at = index % extents[axis];
      index /= extents[axis];
      input += at * input_strides[axis];
      output += at * output_strides[axis];
    }
  }
};

/// The last axis stays: rows are copied whole.
template <class T>
void permute_rows(const PermutePlan& plan, const T* in, T* out) {
  OuterAxes outer;
  for (int i = 0; i + 2 < plan.rank; ++i) {
    const int axis = plan.input_axis(i);
    outer.add(plan.extent(axis), plan.input_stride(axis), plan.output_stride(i));
  }
  const int row_axis = plan.input_axis(plan.rank - 2);
  const int64_t rows = plan.extent(row_axis);
  const int64_t row_stride = plan.input_stride(row_axis);
  const int64_t length = plan.extent(plan.rank - 1);
  const auto size = static_cast<int64_t>(sizeof(T));
  const int64_t work = rows * length;
  parallel_for(outer.count(), std::max<int64_t>(1, kGrainElements / work), [=](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      int64_t from = 0, to = 0;
      outer.locate(index, from, to);
      copy_rows(out + to, length * size, in + from, row_stride * size, length * size, rows);
    }
  });
}

/// The input's last axis (columns) and the output's last axis (rows) span matrices, which are transposed in
/// blocks.
template <class T>
void permute_transposing(const PermutePlan& plan, const T* in, T* out) {
  OuterAxes outer;
  int64_t out_stride = 0;
  for (int i = 0; i + 1 < plan.rank; ++i) {
    const int axis = plan.input_axis(i);
    if (axis == plan.rank - 1) {
      out_stride = plan.output_stride(i);
    } else {
      outer.add(plan.extent(axis), plan.input_stride(axis), plan.output_stride(i));
    }
  }
  const int row_axis = plan.input_axis(plan.rank - 1);
  const int64_t rows = plan.extent(row_axis);
  const int64_t in_stride = plan.input_stride(row_axis);
  const int64_t columns = plan.extent(plan.rank - 1);
  const int64_t row_blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t column_blocks = (columns + kBlockColumns - 1) / kBlockColumns;
  const int64_t work = std::min(rows, kBlockRows) * std::min(columns, kBlockColumns);
  const int64_t tasks = outer.count() * row_blocks * column_blocks;
  parallel_for(tasks, std::max<int64_t>(1, kGrainElements / work), [=](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t from = 0, to = 0;
      outer.locate(task / (row_blocks * column_blocks), from, to);
      const int64_t row = task % row_blocks * kBlockRows;
      const int64_t column = task / row_blocks % column_blocks * kBlockColumns;
      transpose_block(in + from + row * in_stride + column, in_stride, out + to + column * out_stride + row,
                      out_stride, std::min(kBlockRows, rows - row),
                      std::min(kBlockColumns, columns - column));
    }
  });
}

void run_permute(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  const auto axes = check_permutation(context.attributes<PermuteAttributes>().axes, x.shape.rank());
  const PermutePlan plan = plan_permute(x.shape, std::span(axes.data(), static_cast<size_t>(x.shape.rank())));
  if (plan.is_copy()) {
    const auto bytes = x.numel() * static_cast<int64_t>(size_of(x.dtype));
    copy_rows(y.data, bytes, x.data, bytes, bytes, 1);
    return;
  }
  dispatch_bits(x.dtype, [&]<class T> {
    if (plan.keeps_last()) {
      permute_rows(plan, x.as<const T>(), y.as<T>());
    } else {
      permute_transposing(plan, x.as<const T>(), y.as<T>());
    }
  });
}

}  // namespace

void register_permute_cpu(OpRegistry& registry);
void register_permute_cpu(OpRegistry& registry) {
  registry.add_kernel("permute", {.device = DeviceType::kCpu, .run = run_permute});
}

}  // namespace sinter::ops
