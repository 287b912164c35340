// Gather on the CPU runs over lines: all elements that differ in the index of the axis only. Lines never
// meet, so that they run in parallel in both directions.
#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cpu/index_check_cpu.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/gather/gather.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

/// The lines of `indices` and where they lie in the tensor that they pick from.
struct Lines {
  Lines(const Shape& indices, const Shape& from, int axis)
      : picked(indices),
        source(from),
        skipped(axis),
        split(split_at(indices, axis)),
        source_stride(from.stride(axis)),
        alike(indices.with(axis, 1) == from.with(axis, 1)) {}

  int64_t count() const { return split.outer * split.inner; }
  int64_t grain() const { return std::max<int64_t>(1, kGrainElements / split.extent); }
  /// Where the line `line` begins in the source.
  int64_t locate(int64_t line) const {
    if (alike) return line / split.inner * source[skipped] * split.inner + line % split.inner;
    int64_t at = 0;
    for (int i = picked.rank() - 1; i >= 0; --i) {
      if (i == skipped) continue;
      at += line % picked[i] * source.stride(i);
      line /= picked[i];
    }
    return at;
  }
  /// Calls body(element among the indices, where its line begins in the source) for the lines [begin, end),
  /// by runs of lines that lie side by side in both tensors.
  template <class F>
  [[gnu::always_inline]] void for_each(int64_t begin, int64_t end, F body) const {
    const int64_t neighbours = skipped == picked.rank() - 1 ? 1 : alike ? split.inner : picked[-1];
    const int64_t extent = split.extent, inner = split.inner;
    while (begin < end) {
      const int64_t length = std::min(neighbours - begin % neighbours, end - begin);
      const int64_t first = begin / inner * extent * inner + begin % inner, from = locate(begin);
      if (length == 1) {  // nothing but one loop
        for (int64_t i = 0; i < extent; ++i) body(first + i * inner, from);
      } else {
        for (int64_t i = 0; i < extent; ++i) {
          for (int64_t j = 0; j < length; ++j) body(first + i * inner + j, from + j);
        }
      }
      begin += length;
    }
  }

  Shape picked, source;
  int skipped;
  AxisSplit split;
  int64_t source_stride;
  bool alike;  // but for the axis
};

void run_gather(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& indices = context.input(1);
  const int axis = normalize_axis(context.attributes<GatherAttributes>().axis, x.shape.rank(), "gather");
  check_indices(indices, x.shape[axis], "gather");
  if (indices.numel() == 0) return;
  const Lines lines(indices.shape, x.shape, axis);
  dispatch_bits(x.dtype, [&]<class T> {
    parallel_for(lines.count(), lines.grain(), [&](int64_t begin, int64_t end) {
      const T* from = x.as<const T>();
      T* to = context.output(0).as<T>();
      const auto* index = indices.as<const int64_t>();
      const int64_t stride = lines.source_stride;
      lines.for_each(begin, end, [=](int64_t at, int64_t line) { to[at] = from[line + index[at] * stride]; });
    });
  });
}

template <class T>
void scatter_add(const Lines& lines, const T* dy, const int64_t* index, compute_type<T>* sums,
                 int64_t count) {
  std::fill_n(sums, count, compute_type<T>{0});
  if (lines.picked.numel() == 0) return;
  parallel_for(lines.count(), lines.grain(), [&](int64_t begin, int64_t end) {
    const int64_t stride = lines.source_stride;
    lines.for_each(begin, end, [=](int64_t at, int64_t line) {
      sums[line + index[at] * stride] += static_cast<compute_type<T>>(dy[at]);
    });
  });
}

size_t gather_grad_workspace(const KernelQuery& query) {
  const TensorSpec& dx = query.output(0);
  return is_half(dx.dtype) ? static_cast<size_t>(dx.shape.numel()) * sizeof(float) : 0;
}

void run_gather_grad(const KernelContext& context) {
  const TensorView& dy = context.input(0);
  const TensorView& indices = context.input(1);
  const TensorView& dx = context.output(0);
  const int axis =
      normalize_axis(context.attributes<GatherGradAttributes>().axis, dx.shape.rank(), "gather_grad");
  check_indices(indices, dx.shape[axis], "gather_grad");
  const Lines lines(indices.shape, dx.shape, axis);
  const auto* index = indices.as<const int64_t>();
  dispatch_float(dx.dtype, "gather_grad", [&]<class T> {
    if constexpr (std::is_same_v<T, compute_type<T>>) {
      scatter_add(lines, dy.as<const T>(), index, dx.as<T>(), dx.numel());
    } else {
      auto* sums = context.workspace<float>();
      scatter_add(lines, dy.as<const T>(), index, sums, dx.numel());
      parallel_for(dx.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dx.as<T>()[i] = static_cast<T>(sums[i]);
      });
    }
  });
}

}  // namespace

void register_gather_cpu(OpRegistry& registry);
void register_gather_cpu(OpRegistry& registry) {
  registry.add_kernel("gather", {.device = DeviceType::kCpu, .run = run_gather});
  registry.add_kernel(
      "gather_grad",
      {.device = DeviceType::kCpu, .workspace_bytes = gather_grad_workspace, .run = run_gather_grad});
}

}  // namespace sinter::ops
