// Softmax on the CPU: row by row along the last axis; along another axis, blocks of neighbouring columns
// together, and so are short rows, transposed.
#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/row_math_cpu.h>
#include <sinter/ops/common/cpu/transpose_cpu.h>
#include <sinter/ops/common/lanes.h>
#include <sinter/ops/softmax/softmax.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 4096;
constexpr int64_t kColumns = kRowsAtOnce;
constexpr int64_t kKeptRow = 4096;  // of a 16-bit type, whose exponentials wait for their sum in float

bool is_of_short_rows(const AxisSplit& split) {
  return split.inner == 1 && split.extent <= kShortRow;
}

/// Calls body(first element, columns) for every piece of at most kColumns neighbouring columns, in parallel;
/// with inner = 1 a piece is one row, or as many if rows are short.
template <class F>
void for_each_piece(const AxisSplit& split, F body) {
  if (is_of_short_rows(split)) {
    const int64_t pieces = (split.outer + kColumns - 1) / kColumns;
    const int64_t grain = std::max<int64_t>(1, kGrainElements / (split.extent * kColumns));
    return parallel_for(pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * kColumns; row < std::min(end * kColumns, split.outer); row += kColumns) {
        body(row * split.extent, std::min(kColumns, split.outer - row));
      }
    });
  }
  const int64_t pieces = (split.inner + kColumns - 1) / kColumns;
  const int64_t work = split.extent * std::min(split.inner, kColumns);
  parallel_for(
      split.outer * pieces, std::max<int64_t>(1, kGrainElements / work), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % pieces * kColumns;
          body(i / pieces * split.extent * split.inner + column, std::min(kColumns, split.inner - column));
        }
      });
}

struct Softmax {
  template <class T>
  static void row(const T* x, T* y, int64_t extent) {
    using C = compute_type<T>;
    const C largest = row_max(x, extent);
    if constexpr (std::is_same_v<T, C>) {
      const C scale = C{1} / row_exp_sum(x, extent, largest, y);
      for (int64_t i = 0; i < extent; ++i) y[i] *= scale;
    } else if (extent <= kKeptRow) {  // rounded exponentials would be rounded again
      alignas(64) C exponentials[kKeptRow];
      const C scale = C{1} / row_exp_sum(x, extent, largest, exponentials);
      for (int64_t i = 0; i < extent; ++i) exponentials[i] *= scale;
      convert_block(exponentials, y, extent);
    } else {
      row_exp(x, extent, largest, C{1} / row_sum_exp(x, extent, largest), y);
    }
  }
  /// `sum` in the form that finish() takes.
  template <class C>
  static void prepare(C*, int64_t) {}
  /// `values` are exponentials.
  static constexpr bool kOfExponentials = true;
  template <class C>
  static C finish(C exponential, C sum) {
    return exponential / sum;
  }
};

struct LogSoftmax {
  template <class T>
  static void row(const T* x, T* y, int64_t extent) {
    using C = compute_type<T>;
    const C largest = row_max(x, extent);
    const C log_sum = std::log(row_sum_exp(x, extent, largest));
    BlockBuffer<T> buffers[2];
    for (int64_t first = 0; first < extent; first += kBlock) {
      const int64_t count = std::min(kBlock, extent - first);
      const C* values = load_block(x + first, count, buffers[0].values);
      C* results = result_block(y + first, buffers[1].values);
      for (int64_t i = 0; i < count; ++i) results[i] = values[i] - largest - log_sum;
      finish_block(results, y + first, count);
    }
  }
  template <class C>
  static void prepare(C* sum, int64_t width) {
    for (int64_t j = 0; j < width; ++j) sum[j] = std::log(sum[j]);
  }
  static constexpr bool kOfExponentials = false;
  template <class C>
  static C finish(C distance, C log_sum) {
    return distance - log_sum;
  }
};

/// y may be x.
template <class Kind, class T>
void run_columns(const T* x, T* y, int64_t extent, int64_t stride, int64_t width) {
  using C = compute_type<T>;
  constexpr bool kKeeps = Kind::kOfExponentials && std::is_same_v<T, C>;  // the exponentials, in y
  alignas(64) C largest[kColumns], sum[kColumns], values[kColumns];
  T* kept = nullptr;
  if constexpr (kKeeps) kept = y;
  column_sum_exp(x, extent, stride, width, largest, sum, kept);
  Kind::prepare(sum, width);
  for (int64_t i = 0; i < extent; ++i) {
    const T* from = (kKeeps ? y : x) + i * stride;
    for (int64_t j = 0; j < width; ++j) values[j] = static_cast<C>(from[j]) - (kKeeps ? C{0} : largest[j]);
    if constexpr (Kind::kOfExponentials && !kKeeps) exp_in_place(values, width);
    for (int64_t j = 0; j < width; ++j) y[i * stride + j] = static_cast<T>(Kind::finish(values[j], sum[j]));
  }
}

/// Rows that are shorter than a few vectors, as the columns of their transpose.
template <class Kind, class T>
void run_short_rows(const T* x, T* y, int64_t extent, int64_t rows) {
  alignas(64) T turned[kShortRow * kColumns];
  transpose_block(x, extent, turned, rows, rows, extent);
  run_columns<Kind>(turned, turned, extent, rows, rows);
  transpose_block(turned, rows, y, extent, extent, rows);
}

AxisSplit split_of(const KernelContext& context, const char* tag) {
  const Shape& shape = context.input(0).shape;
  return split_at(shape, normalize_axis(context.attributes<SoftmaxAttributes>().axis, shape.rank(), tag));
}

template <class Kind>
void run_softmax(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const AxisSplit split = split_of(context, "softmax");
  dispatch_float(context.input(0).dtype, "softmax", [&]<class T> {
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    for_each_piece(split, [=](int64_t at, int64_t width) {
      if (is_of_short_rows(split)) {
        run_short_rows<Kind>(x + at, y + at, split.extent, width);
      } else if (split.inner == 1) {
        Kind::row(x + at, y + at, split.extent);
      } else {
        run_columns<Kind>(x + at, y + at, split.extent, split.inner, width);
      }
    });
  });
}

struct SoftmaxGrad {
  template <class C>
  static C term(C y, C dy) {
    return y * dy;
  }
  /// dx in place of dy. `y` is overwritten.
  template <class C>
  static void finish(C* y, C* dy, const C* sum, int64_t width) {
    for (int64_t j = 0; j < width; ++j) dy[j] = y[j] * (dy[j] - sum[j]);
  }
};

struct LogSoftmaxGrad {
  template <class C>
  static C term(C, C dy) {
    return dy;
  }
  template <class C>
  static void finish(C* y, C* dy, const C* sum, int64_t width) {
    exp_in_place(y, width);
    for (int64_t j = 0; j < width; ++j) dy[j] -= y[j] * sum[j];
  }
};

template <class Kind, class T>
void run_grad_row(const T* y, const T* dy, T* dx, int64_t extent) {
  using C = compute_type<T>;
  alignas(64) C values[kColumns], gradients[kColumns], sum[kColumns];
  const C total = lane_sum<C>(
      extent, [=](int64_t i) { return Kind::template term<C>(static_cast<C>(y[i]), static_cast<C>(dy[i])); });
  std::fill_n(sum, kColumns, total);
  for (int64_t first = 0; first < extent; first += kColumns) {
    const int64_t width = std::min(kColumns, extent - first);
    for (int64_t j = 0; j < width; ++j) values[j] = static_cast<C>(y[first + j]);
    for (int64_t j = 0; j < width; ++j) gradients[j] = static_cast<C>(dy[first + j]);
    Kind::finish(values, gradients, sum, width);
    for (int64_t j = 0; j < width; ++j) dx[first + j] = static_cast<T>(gradients[j]);
  }
}

/// dx may be dy.
template <class Kind, class T>
void run_grad_columns(const T* y, const T* dy, T* dx, int64_t extent, int64_t stride, int64_t width) {
  using C = compute_type<T>;
  alignas(64) C values[kColumns], gradients[kColumns], sum[kColumns] = {};
  for (int64_t i = 0; i < extent; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = i * stride + j;
      sum[j] += Kind::template term<C>(static_cast<C>(y[at]), static_cast<C>(dy[at]));
    }
  }
  for (int64_t i = 0; i < extent; ++i) {
    for (int64_t j = 0; j < width; ++j) values[j] = static_cast<C>(y[i * stride + j]);
    for (int64_t j = 0; j < width; ++j) gradients[j] = static_cast<C>(dy[i * stride + j]);
    Kind::finish(values, gradients, sum, width);
    for (int64_t j = 0; j < width; ++j) dx[i * stride + j] = static_cast<T>(gradients[j]);
  }
}

template <class Kind, class T>
void run_short_grad_rows(const T* y, const T* dy, T* dx, int64_t extent, int64_t rows) {
  alignas(64) T turned_y[kShortRow * kColumns], turned_dy[kShortRow * kColumns];
  transpose_block(y, extent, turned_y, rows, rows, extent);
  transpose_block(dy, extent, turned_dy, rows, rows, extent);
  run_grad_columns<Kind>(turned_y, turned_dy, turned_dy, extent, rows, rows);
  transpose_block(turned_dy, rows, dx, extent, extent, rows);
}

template <class Kind>
void run_softmax_grad(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const AxisSplit split = split_of(context, "softmax_grad");
  dispatch_float(context.input(0).dtype, "softmax_grad", [&]<class T> {
    const T* y = context.input(0).as<const T>();
    const T* dy = context.input(1).as<const T>();
    T* dx = context.output(0).as<T>();
    for_each_piece(split, [=](int64_t at, int64_t width) {
      if (is_of_short_rows(split)) {
        run_short_grad_rows<Kind>(y + at, dy + at, dx + at, split.extent, width);
      } else if (split.inner == 1) {
        run_grad_row<Kind>(y + at, dy + at, dx + at, split.extent);
      } else {
        run_grad_columns<Kind>(y + at, dy + at, dx + at, split.extent, split.inner, width);
      }
    });
  });
}

}  // namespace

void register_softmax_cpu(OpRegistry& registry);
void register_softmax_cpu(OpRegistry& registry) {
  registry.add_kernel("softmax", {.device = DeviceType::kCpu, .run = run_softmax<Softmax>});
  registry.add_kernel("log_softmax", {.device = DeviceType::kCpu, .run = run_softmax<LogSoftmax>});
  registry.add_kernel("softmax_grad", {.device = DeviceType::kCpu, .run = run_softmax_grad<SoftmaxGrad>});
  registry.add_kernel("log_softmax_grad",
                      {.device = DeviceType::kCpu, .run = run_softmax_grad<LogSoftmaxGrad>});
}

}  // namespace sinter::ops
