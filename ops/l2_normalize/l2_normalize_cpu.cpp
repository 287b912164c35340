#include <algorithm>
#include <cmath>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cpu/transpose_cpu.h>
#include <sinter/ops/common/lanes.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 8192;
constexpr int64_t kColumns = 64;

/// Calls body(first element, first line, lines) for pieces of at most kColumns neighbouring lines along the
/// axis, in parallel; with inner = 1 a piece is one row.
template <class F>
void for_each_piece(const AxisSplit& split, F body) {
  const int64_t pieces = (split.inner + kColumns - 1) / kColumns;
  const int64_t work = std::max<int64_t>(1, split.extent * std::min(split.inner, kColumns));
  parallel_for(split.outer * pieces, std::max<int64_t>(1, kGrainElements / work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t outer = i / pieces, column = i % pieces * kColumns;
                   body(outer * split.extent * split.inner + column, outer * split.inner + column,
                        std::min(kColumns, split.inner - column));
                 }
               });
}

/// Rows of fewer elements are worked on side by side, as the columns of their transpose.
constexpr int64_t kShortRow = 64;

/// Calls body(first row, rows) for groups of at most kColumns rows, in parallel.
template <class F>
void for_each_group(const AxisSplit& split, F body) {
  parallel_for(
      (split.outer + kColumns - 1) / kColumns,
      std::max<int64_t>(1, kGrainElements / (split.extent * kColumns)), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin * kColumns; row < std::min(end * kColumns, split.outer); row += kColumns) {
          body(row, std::min(kColumns, split.outer - row));
        }
      });
}

/// sums[j] = sum over i of term(i * stride + j); a row (`is_row`) is summed in lanes. A single column is not,
/// so that a short row's sum does not depend on whether it has neighbours.
template <class C, class F>
void sum_lines(bool is_row, int64_t extent, int64_t stride, int64_t width, C* sums, F term) {
  if (is_row) {
    sums[0] = lane_sum<C>(extent, term);
    return;
  }
  std::fill_n(sums, width, C{0});
  for (int64_t i = 0; i < extent; ++i) {
    for (int64_t j = 0; j < width; ++j) sums[j] += term(i * stride + j);
  }
}

/// Calls body(element, line) for all elements of a piece, along memory.
template <class F>
void for_each_element(int64_t extent, int64_t stride, int64_t width, F body) {
  if (stride == 1) {
    for (int64_t i = 0; i < extent; ++i) body(i, 0);
    return;
  }
  for (int64_t i = 0; i < extent; ++i) {
    for (int64_t j = 0; j < width; ++j) body(i * stride + j, j);
  }
}

AxisSplit split_of(const KernelContext& context) {
  const Shape& shape = context.input(0).shape;
  return split_at(
      shape, normalize_axis(context.attributes<L2NormalizeAttributes>().axis, shape.rank(), "l2_normalize"));
}

void run_l2_normalize(const KernelContext& context) {
  const AxisSplit split = split_of(context);
  dispatch_float(context.input(0).dtype, "l2_normalize", [&]<class T> {
    using C = compute_type<T>;
    const C epsilon = static_cast<C>(context.attributes<L2NormalizeAttributes>().epsilon);
    const T* x_all = context.input(0).as<const T>();
    T* y_all = context.output(0).as<T>();
    C* norms = context.output(1).as<C>();
    const auto normalize = [=](bool is_row, const T* x, T* y, int64_t line, int64_t stride, int64_t width) {
      C norm[kColumns], scale[kColumns];
      sum_lines(is_row, split.extent, stride, width, norm, [=](int64_t i) {
        const C value = static_cast<C>(x[i]);
        return value * value;
      });
      for (int64_t j = 0; j < width; ++j) {
        norm[j] = std::sqrt(norm[j]);
        norms[line + j] = norm[j];
        scale[j] = norm[j] < epsilon ? epsilon : norm[j];  // a NaN stays
      }
      for_each_element(split.extent, stride, width,
                       [&](int64_t i, int64_t j) { y[i] = static_cast<T>(static_cast<C>(x[i]) / scale[j]); });
    };
    constexpr int64_t kShort = sizeof(T) == 8 ? 15 : kShortRow;  // 16 doubles fill vectors by themselves
    if (split.inner == 1 && split.extent > 0 && split.extent <= kShort) {
      return for_each_group(split, [=](int64_t row, int64_t rows) {
        alignas(64) T turned[kShortRow * kColumns];
        const int64_t at = row * split.extent;
        transpose_block(x_all + at, split.extent, turned, rows, rows, split.extent);
        normalize(false, turned, turned, row, rows, rows);
        transpose_block(turned, rows, y_all + at, split.extent, split.extent, rows);
      });
    }
    for_each_piece(split, [=](int64_t at, int64_t line, int64_t width) {
      normalize(split.inner == 1, x_all + at, y_all + at, line, split.inner, width);
    });
  });
}

void run_l2_normalize_grad(const KernelContext& context) {
  const AxisSplit split = split_of(context);
  dispatch_float(context.input(0).dtype, "l2_normalize_grad", [&]<class T> {
    using C = compute_type<T>;
    const C epsilon = static_cast<C>(context.attributes<L2NormalizeAttributes>().epsilon);
    const T* y_all = context.input(0).as<const T>();
    const C* norms = context.input(1).as<const C>();
    const T* dy_all = context.input(2).as<const T>();
    T* dx_all = context.output(0).as<T>();
    for_each_piece(split, [=](int64_t at, int64_t line, int64_t width) {
      const T* y = y_all + at;
      const T* dy = dy_all + at;
      T* dx = dx_all + at;
      C along[kColumns], scale[kColumns];
      sum_lines(split.inner == 1, split.extent, split.inner, width, along,
                [=](int64_t i) { return static_cast<C>(y[i]) * static_cast<C>(dy[i]); });
      for (int64_t j = 0; j < width; ++j) {
        const bool clamped = norms[line + j] < epsilon;
        along[j] = clamped ? C{0} : along[j];
        scale[j] = C{1} / (clamped ? epsilon : norms[line + j]);
      }
      for_each_element(split.extent, split.inner, width, [&](int64_t i, int64_t j) {
        dx[i] = static_cast<T>((static_cast<C>(dy[i]) - static_cast<C>(y[i]) * along[j]) * scale[j]);
      });
    });
  });
}

}  // namespace

void register_l2_normalize_cpu(OpRegistry& registry);
void register_l2_normalize_cpu(OpRegistry& registry) {
  registry.add_kernel("l2_normalize", {.device = DeviceType::kCpu, .run = run_l2_normalize});
  registry.add_kernel("l2_normalize_grad", {.device = DeviceType::kCpu, .run = run_l2_normalize_grad});
}

}  // namespace sinter::ops
