// CPU kernels of matvec and outer. Both are bound by memory: each thread reads or writes its part of the
// matrix once.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/vector_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/matvec/batch.h>
#include <sinter/ops/matvec/matvec.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrain = 16384;   // matrix elements below which a thread does not pay
constexpr int64_t kRowsAtOnce = 4;  // whose sums stay in registers
constexpr int kSums = 32;  // independent partial sums of a dot product: fills vectors, and is a fixed order

/// The vector of the first `count` elements, with zeros behind them; no element from `end` on is read.
template <class T>
Vector<T> load_lanes(const T* from, int64_t count, const T* end) {
  if (end - from >= kLanes<T>) return keep_lanes<T>(load_vector(from), count);
  T lanes[static_cast<size_t>(kLanes<T>)] = {};
  std::copy_n(from, count, lanes);
  return load_vector(lanes);
}

/// y[0, kRows) = a x for as many rows of a, `columns` elements each, which lie before `end`. They read x
/// together, whose elements that fill no vector are x_end; a row's sum does not depend on those beside it.
template <size_t kRows, class T>
void multiply_rows(const T* a, const T* x, Vector<T> x_end, T* y, int64_t columns, const T* end) {
  constexpr int64_t kStep = kLanes<T>;
  Vector<T> sums[kRows][2] = {};
  int64_t i = 0;
  for (; i + 2 * kStep <= columns; i += 2 * kStep) {
    const Vector<T> first = load_vector(x + i), second = load_vector(x + i + kStep);
    for (size_t row = 0; row < kRows; ++row) {
      const T* const from = a + static_cast<int64_t>(row) * columns + i;
      sums[row][0] = multiply_add_lanes<T>(load_vector(from), first, sums[row][0]);
      sums[row][1] = multiply_add_lanes<T>(load_vector(from + kStep), second, sums[row][1]);
    }
  }
  if (i + kStep <= columns) {
    const Vector<T> next = load_vector(x + i);
    for (size_t row = 0; row < kRows; ++row) {
      const T* const from = a + static_cast<int64_t>(row) * columns + i;
      sums[row][0] = multiply_add_lanes<T>(load_vector(from), next, sums[row][0]);
    }
    i += kStep;
  }
  if (i < columns) {
    for (size_t row = 0; row < kRows; ++row) {
      const T* const from = a + static_cast<int64_t>(row) * columns + i;
      sums[row][1] = multiply_add_lanes<T>(load_lanes(from, columns - i, end), x_end, sums[row][1]);
    }
  }
  Vector<T> totals[kRows];
  for (size_t row = 0; row < kRows; ++row) totals[row] = sums[row][0] + sums[row][1];
  sum_lanes<T>(totals, y);
}

/// For types that compute in another.
template <class T, class C = compute_type<T>>
C dot(const T* a, const T* b, int64_t count) {
  C sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int s = 0; s < kSums; ++s) sums[s] += static_cast<C>(a[i + s]) * static_cast<C>(b[i + s]);
  }
  for (int s = 0; i < count; ++i, ++s) sums[s] += static_cast<C>(a[i]) * static_cast<C>(b[i]);
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int s = 0; s < half; ++s) sums[s] += sums[s + half];
  }
  return sums[0];
}

/// y[begin, end) = (a x)[begin, end) for a (rows, columns).
template <class T>
void multiply_matrix(const T* a, const T* x, T* y, int64_t rows, int64_t columns, int64_t begin,
                     int64_t end) {
  int64_t row = begin;
  if constexpr (std::is_same_v<T, compute_type<T>>) {
    const T* const last = a + rows * columns;
    const int64_t rest = columns % kLanes<T>;
    const Vector<T> x_end = load_lanes(x + columns - rest, rest, x + columns);
    for (; row + kRowsAtOnce <= end; row += kRowsAtOnce)
      multiply_rows<kRowsAtOnce>(a + row * columns, x, x_end, y + row, columns, last);
    for (; row < end; ++row) multiply_rows<1>(a + row * columns, x, x_end, y + row, columns, last);
  } else {
    for (; row < end; ++row) y[row] = static_cast<T>(dot(a + row * columns, x, columns));
  }
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
  const bool transpose = context.attributes<MatvecAttributes>().transpose_a;
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

void register_matvec_cpu(OpRegistry& registry);
void register_matvec_cpu(OpRegistry& registry) {
  registry.add_kernel("matvec", {.device = DeviceType::kCpu, .run = run_matvec});
  registry.add_kernel("outer", {.device = DeviceType::kCpu, .run = run_outer});
}

}  // namespace sinter::ops
