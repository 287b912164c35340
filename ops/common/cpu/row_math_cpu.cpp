#include <algorithm>
#include <limits>

#include <Eigen/Core>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/row_math_cpu.h>
#include <sinter/ops/common/cpu/transpose_cpu.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/lanes.h>

namespace sinter::ops {
namespace {

// Rows are worked on in aligned pieces: a register-friendly place for converted elements, and sums that do
// not depend on how the row itself is aligned.
constexpr int64_t kPiece = 256;
static_assert(kPiece <= kBlock);

/// Calls body(values, first, count) for the pieces of exp(x - shift).
template <class T, class F>
void for_each_piece(const T* x, int64_t count, compute_type<T> shift, F body) {
  using C = compute_type<T>;
  BlockBuffer<T> buffer;
  alignas(64) C piece[kPiece];
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t width = std::min(kPiece, count - first);
    const C* loaded = load_block(x + first, width, buffer.values);
    for (int64_t i = 0; i < width; ++i) piece[i] = loaded[i] - shift;
    exp_in_place(piece, width);
    body(piece, first, width);
  }
}

}  // namespace

// Not Eigen's: its vectors never give 0, and its scalars, for what is left beside them, round otherwise.
template <class C>
void exp_in_place(C* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = math::exp(values[i]);
}

template <class T>
compute_type<T> row_max(const T* x, int64_t count) {
  using C = compute_type<T>;
  BlockBuffer<T> buffer;
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t width = std::min(kPiece, count - first);
    const C* piece = load_block(x + first, width, buffer.values);
    const C found = Eigen::Map<const Eigen::Array<C, Eigen::Dynamic, 1>>(piece, width).maxCoeff();
    largest = found > largest ? found : largest;
  }
  return largest;
}

template <class T>
compute_type<T> row_sum_exp(const T* x, int64_t count, compute_type<T> shift) {
  using C = compute_type<T>;
  C sum = 0;
  for_each_piece(x, count, shift, [&](const C* piece, int64_t, int64_t width) {
    sum += lane_sum<C>(width, [=](int64_t i) { return piece[i]; });
  });
  return sum;
}

template <class T>
compute_type<T> row_exp_sum(const T* x, int64_t count, compute_type<T> shift, compute_type<T>* y) {
  using C = compute_type<T>;
  C sum = 0;
  for_each_piece(x, count, shift, [&](const C* piece, int64_t first, int64_t width) {
    sum += lane_sum<C>(width, [=](int64_t i) { return piece[i]; });
    std::copy_n(piece, width, y + first);
  });
  return sum;
}

template <class T>
void column_sum_exp(const T* x, int64_t extent, int64_t stride, int64_t width, compute_type<T>* largest,
                    compute_type<T>* sum, T* exponentials) {
  using C = compute_type<T>;
  alignas(64) C values[kRowsAtOnce];
  BlockBuffer<T> buffer;
  std::fill_n(largest, width, -std::numeric_limits<C>::infinity());
  std::fill_n(sum, width, C{0});
  for (int64_t i = 0; i < extent; ++i) {
    const C* loaded = load_block(x + i * stride, width, buffer.values);
    for (int64_t j = 0; j < width; ++j) largest[j] = loaded[j] > largest[j] ? loaded[j] : largest[j];
  }
  for (int64_t i = 0; i < extent; ++i) {
    const C* loaded = load_block(x + i * stride, width, buffer.values);
    for (int64_t j = 0; j < width; ++j) values[j] = loaded[j] - largest[j];
    exp_in_place(values, width);
    for (int64_t j = 0; j < width; ++j) sum[j] += values[j];
    if (exponentials == nullptr) continue;
    for (int64_t j = 0; j < width; ++j) exponentials[i * stride + j] = static_cast<T>(values[j]);
  }
}

template <class T>
void rows_sum_exp(const T* x, int64_t rows, int64_t extent, compute_type<T>* largest, compute_type<T>* sum) {
  if (extent <= kShortRow) {
    alignas(64) T turned[kShortRow * kRowsAtOnce];
    transpose_block(x, extent, turned, rows, rows, extent);
    return column_sum_exp<T>(turned, extent, rows, rows, largest, sum, nullptr);
  }
  for (int64_t row = 0; row < rows; ++row) {
    largest[row] = row_max(x + row * extent, extent);
    sum[row] = row_sum_exp(x + row * extent, extent, largest[row]);
  }
}

template <class T>
void row_exp(const T* x, int64_t count, compute_type<T> shift, compute_type<T> scale, T* y) {
  BlockBuffer<T> buffer;
  for_each_piece(x, count, shift, [&](const compute_type<T>* piece, int64_t first, int64_t width) {
    compute_type<T>* results = result_block(y + first, buffer.values);
    for (int64_t i = 0; i < width; ++i) results[i] = piece[i] * scale;
    finish_block(results, y + first, width);
  });
}

#define SINTER_INSTANTIATE(T)                                                                                \
  template compute_type<T> row_max(const T*, int64_t);                                                       \
  template compute_type<T> row_sum_exp(const T*, int64_t, compute_type<T>);                                  \
  template compute_type<T> row_exp_sum(const T*, int64_t, compute_type<T>, compute_type<T>*);                \
  template void row_exp(const T*, int64_t, compute_type<T>, compute_type<T>, T*);                            \
  template void column_sum_exp(const T*, int64_t, int64_t, int64_t, compute_type<T>*, compute_type<T>*, T*); \
  template void rows_sum_exp(const T*, int64_t, int64_t, compute_type<T>*, compute_type<T>*);

SINTER_INSTANTIATE(float)
SINTER_INSTANTIATE(double)
SINTER_INSTANTIATE(float16)
SINTER_INSTANTIATE(bfloat16)
#undef SINTER_INSTANTIATE

template void exp_in_place(float*, int64_t);
template void exp_in_place(double*, int64_t);

}  // namespace sinter::ops
