// CPU kernels of matvec and outer. Both are bound by memory: each thread reads or writes its part of the
// matrix once.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/vector_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrain = 16384;   // matrix elements below which a thread does not pay
constexpr int64_t kRowsAtOnce = 4;  // whose sums stay in registers

/// As many elements as a vector has lanes, in their compute type.
template <class T, class C = compute_type<T>>
Vector<C> load_elements(const T* from) {
  if constexpr (std::is_same_v<T, C>) {
    return load_vector(from);
  } else {
    alignas(kVectorBytes) C lanes[static_cast<size_t>(kLanes<C>)];
    convert_block(from, lanes, kLanes<C>);
    return load_vector(lanes);
  }
}

/// The first `count` of them, with zeros behind; no element from `end` on is read.
template <class T, class C = compute_type<T>>
Vector<C> load_elements(const T* from, int64_t count, const T* end) {
  if (end - from >= kLanes<C>) return keep_lanes<C>(load_elements(from), count);
  T lanes[static_cast<size_t>(kLanes<C>)] = {};
  std::copy_n(from, count, lanes);
  return load_elements(lanes);
}

/// y[0, kRows) = a x for as many rows of a, `columns` elements each, which lie before `end`. They read x
/// together, whose elements that fill no vector are x_end; a row's sum does not depend on those beside it.
template <size_t kRows, class T, class C = compute_type<T>>
void multiply_rows(const T* a, const T* x, Vector<C> x_end, T* y, int64_t columns, const T* end) {
  constexpr int64_t kStep = kLanes<C>;
  Vector<C> sums[kRows][2] = {};
  const auto row_at = [&](size_t row, int64_t i) { return a + static_cast<int64_t>(row) * columns + i; };
  int64_t i = 0;
  for (; i + 2 * kStep <= columns; i += 2 * kStep) {
    const Vector<C> first = load_elements(x + i), second = load_elements(x + i + kStep);
    for (size_t row = 0; row < kRows; ++row) {
      sums[row][0] = multiply_add_lanes<C>(load_elements(row_at(row, i)), first, sums[row][0]);
      sums[row][1] = multiply_add_lanes<C>(load_elements(row_at(row, i + kStep)), second, sums[row][1]);
    }
  }
  if (i + kStep <= columns) {
    const Vector<C> next = load_elements(x + i);
    for (size_t row = 0; row < kRows; ++row)
      sums[row][0] = multiply_add_lanes<C>(load_elements(row_at(row, i)), next, sums[row][0]);
    i += kStep;
  }
  if (i < columns) {
    for (size_t row = 0; row < kRows; ++row) {
      const Vector<C> last = load_elements(row_at(row, i), columns - i, end);
      sums[row][1] = multiply_add_lanes<C>(last, x_end, sums[row][1]);
    }
  }
  Vector<C> totals[kRows];
  for (size_t row = 0; row < kRows; ++row) totals[row] = sums[row][0] + sums[row][1];
  C results[kRows];
  sum_lanes<C>(totals, results);
  for (size_t row = 0; row < kRows; ++row) y[row] = static_cast<T>(results[row]);
}

/// y[begin, end) = (a x)[begin, end) for a (rows, columns).
template <class T>
void multiply_matrix(const T* a, const T* x, T* y, int64_t rows, int64_t columns, int64_t begin,
                     int64_t end) {
  const T* const last = a + rows * columns;
  const int64_t rest = columns % kLanes<compute_type<T>>;
  const auto x_end = load_elements(x + columns - rest, rest, x + columns);
  int64_t row = begin;
  for (; row + kRowsAtOnce <= end; row += kRowsAtOnce)
    multiply_rows<kRowsAtOnce>(a + row * columns, x, x_end, y + row, columns, last);
  for (; row < end; ++row) multiply_rows<1>(a + row * columns, x, x_end, y + row, columns, last);
}

/// y[begin, end) = (a^T x)[begin, end) for a (rows, columns), in strips whose sums stay in registers or the
/// first cache.
template <class T, class C = compute_type<T>>
void add_rows(const T* a, const T* x, T* y, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  constexpr int64_t strip = 256;
  for (int64_t first = begin; first < end; first += strip) {
    const int64_t width = std::min(strip, end - first);
    C sums[strip] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const T* from = a + row * columns + first;
      const C factor = static_cast<C>(x[row]);
      for (int64_t i = 0; i < width; ++i) sums[i] += factor * static_cast<C>(from[i]);
    }
    for (int64_t i = 0; i < width; ++i) y[first + i] = static_cast<T>(sums[i]);
  }
}

void run_matvec(const KernelContext& context) {
  const bool transpose = context.attributes<MatvecOptions>().transpose_a;
  const Shape& a_shape = context.input(0).shape;
  const Shape& x_shape = context.input(1).shape;
  const Shape batch = batch_shape(context.output(0).shape, 1);
  const Shape a_batch = batch_shape(a_shape, 2), x_batch = batch_shape(x_shape, 1);
  const int64_t rows = a_shape[-2], columns = a_shape[-1];
  const int64_t out = transpose ? columns : rows, in = transpose ? rows : columns;
  dispatch_float(context.input(0).dtype, "matvec", [&]<class T> {
    const T* a = context.input(0).as<const T>();
    const T* x = context.input(1).as<const T>();
    T* y = context.output(0).as<T>();
    // The items are the outputs, each of which costs `in` products.
    parallel_for(batch.numel() * out, std::max<int64_t>(1, kGrain / std::max<int64_t>(in, 1)),
                 [&](int64_t begin, int64_t end) {
                   while (begin < end) {
                     const int64_t item = begin / out, first = begin % out;
                     const int64_t last = std::min(out, first + end - begin);
                     const T* matrix = a + batch_item(a_batch, batch, item) * rows * columns;
                     const T* vector = x + batch_item(x_batch, batch, item) * in;
                     if (transpose) {
                       add_rows(matrix, vector, y + item * out, rows, columns, first, last);
                     } else {
                       multiply_matrix(matrix, vector, y + item * out, rows, columns, first, last);
                     }
                     begin += last - first;
                   }
                 });
  });
}

void run_outer(const KernelContext& context) {
  const Shape& u_shape = context.input(0).shape;
  const Shape& v_shape = context.input(1).shape;
  const Shape batch = batch_shape(context.output(0).shape, 2);
  const Shape u_batch = batch_shape(u_shape, 1), v_batch = batch_shape(v_shape, 1);
  const int64_t m = u_shape[-1], n = v_shape[-1];
  dispatch_float(context.input(0).dtype, "outer", [&]<class T> {
    using C = compute_type<T>;
    const T* u = context.input(0).as<const T>();
    const T* v = context.input(1).as<const T>();
    T* y = context.output(0).as<T>();
    parallel_for(batch.numel() * m, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t item = row / m;
                     const C factor = static_cast<C>(u[batch_item(u_batch, batch, item) * m + row % m]);
                     const T* vector = v + batch_item(v_batch, batch, item) * n;
                     for (int64_t i = 0; i < n; ++i)
                       y[row * n + i] = static_cast<T>(factor * static_cast<C>(vector[i]));
                   }
                 });
  });
}

}  // namespace

void register_gemv_cpu(OpRegistry& registry);
void register_gemv_cpu(OpRegistry& registry) {
  registry.add_kernel("matvec", {.device = DeviceType::kCpu, .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCpu, .run = run_outer});
}

}  // namespace sinter::ops
