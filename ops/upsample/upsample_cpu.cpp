#include <algorithm>
#include <cstring>
#include <type_traits>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/images/resample_cpu.h>
#include <sinter/ops/upsample/upsample_math.h>

namespace sinter::ops {
namespace {

// ---- bilinear, and all gradients

ResampleExtents extents_of(const UpsampleProblem& problem, bool gradient) {
  const UpsampleAxis &rows = problem.rows, &columns = problem.columns;
  return {.images = problem.outer,
          .inner = problem.inner,
          .source_rows = gradient ? rows.output : rows.input,
          .source_columns = gradient ? columns.output : columns.input,
          .rows = gradient ? rows.input : rows.output,
          .columns = gradient ? columns.input : columns.output,
          .most_source_rows = 2};
}

template <class C>
ResampleAxis<C> taps_of(const UpsampleAxis& axis, ResampleTables<C>& tables) {
  return tables.weighted(
      axis.input, axis.output,
      [&](int64_t o) {
        const UpsampleTap tap = axis.tap(o);
        return ResampleRange{tap.first, tap.second + 1};
      },
      [&](int64_t o, int64_t i) { return axis.tap(o).weight(i); });
}

template <class C>
ResampleAxis<C> takers_of(const UpsampleAxis& axis, ResampleTables<C>& tables) {
  const bool is_single = axis.mode == UpsampleMode::kNearest;
  return tables.weighted(
      axis.output, axis.input,
      [&](int64_t i) {
        return ResampleRange{axis.begin_of(is_single ? i : std::max<int64_t>(i - 1, 0)),
                             axis.begin_of(i + 1)};
      },
      [&](int64_t i, int64_t o) { return axis.tap(o).weight(i); });
}

template <class T>
void resample_images(const KernelContext& context, const UpsampleProblem& problem, bool gradient) {
  const ResampleExtents extents = extents_of(problem, gradient);
  const auto axis_of = gradient ? takers_of<compute_type<T>> : taps_of<compute_type<T>>;
  ResampleTables<compute_type<T>> tables(extents, context.workspace());
  const auto rows = axis_of(problem.rows, tables);
  resample(extents, rows, axis_of(problem.columns, tables), context.input(0).as<const T>(),
           context.output(0).as<T>(), context.workspace(), context.threads());
}

// ---- nearest: moves

/// Pixels of fewer bytes are moved element by element.
constexpr int64_t kPixelBytes = 64;

bool moves_pixels(const UpsampleProblem& problem, DType dtype) {
  return problem.inner * static_cast<int64_t>(size_of(dtype)) >= kPixelBytes;
}

/// E: an integer as large as the elements. `places`: where every element of a row, or every pixel, comes
/// from.
template <class E>
void move_images(const UpsampleProblem& problem, bool by_pixels, const E* x, E* y, int64_t* places) {
  constexpr int64_t kGrain = 16384;
  const UpsampleAxis &rows = problem.rows, &columns = problem.columns;
  const int64_t inner = problem.inner, source = columns.input * inner, width = columns.output * inner;
  const int64_t run = by_pixels ? inner : 1, runs = width / std::max<int64_t>(run, 1);
  for (int64_t i = 0; i < runs; ++i) places[i] = columns.tap(i * run / inner).first * inner + i * run % inner;
  parallel_for(problem.outer * rows.output, kGrain / std::max<int64_t>(width, 1) + 1,
               [=](int64_t begin, int64_t end) {
                 const E* previous = nullptr;
                 for (int64_t line = begin; line < end; ++line) {
                   const int64_t row = rows.tap(line % rows.output).first;
                   const E* from = x + (line / rows.output * rows.input + row) * source;
                   E* to = y + line * width;
                   if (from == previous) {
                     std::memcpy(to, to - width, static_cast<size_t>(width) * sizeof(E));
                   } else if (by_pixels) {
                     for (int64_t i = 0; i < runs; ++i) std::copy_n(from + places[i], inner, to + i * inner);
                   } else {
                     for (int64_t i = 0; i < runs; ++i) to[i] = from[places[i]];
                   }
                   previous = from;
                 }
               });
}

// ---- the kernels

size_t upsample_workspace(const KernelQuery& query) {
  const auto& attributes = query.attributes<UpsampleAttributes>();
  const UpsampleProblem problem(query.input(0).shape, query.output(0).shape, attributes);
  const DType dtype = query.input(0).dtype;
  if (attributes.mode == UpsampleMode::kBilinear)
    return resample_workspace(extents_of(problem, false), dtype, query.threads());
  const int64_t run = moves_pixels(problem, dtype) ? 1 : problem.inner;
  return static_cast<size_t>(problem.columns.output * run) * sizeof(int64_t);
}

size_t upsample_grad_workspace(const KernelQuery& query) {
  const UpsampleProblem problem(query.output(0).shape, query.input(0).shape,
                                query.attributes<UpsampleAttributes>());
  return resample_workspace(extents_of(problem, true), query.input(0).dtype, query.threads());
}

void run_upsample(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const auto& attributes = context.attributes<UpsampleAttributes>();
  const UpsampleProblem problem(x.shape, y.shape, attributes);
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, "upsample", [&]<class T> {
    if (attributes.mode == UpsampleMode::kBilinear) {
      resample_images<T>(context, problem, false);
      return;
    }
    using E =
        std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    move_images(problem, moves_pixels(problem, x.dtype), x.as<const E>(), y.as<E>(),
                context.workspace<int64_t>());
  });
}

void run_upsample_grad(const KernelContext& context) {
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const UpsampleProblem problem(dx.shape, dy.shape, context.attributes<UpsampleAttributes>());
  dispatch_float(dy.dtype, "upsample_grad", [&]<class T> { resample_images<T>(context, problem, true); });
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
