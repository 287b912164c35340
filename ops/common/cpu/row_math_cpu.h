// The exponentials of softmax and cross-entropy over contiguous rows, in the compute type of the elements and
// in an order that does not depend on addresses or threads. T: float, double, float16 or bfloat16.
#pragma once

#include <cstdint>

#include <sinter/core/base/dtype.h>

namespace sinter::ops {

/// The largest element; -infinity if there is none. A row with a NaN gives any of its elements.
template <class T>
compute_type<T> row_max(const T* x, int64_t count);

/// sum_i exp(x_i - shift).
template <class T>
compute_type<T> row_sum_exp(const T* x, int64_t count, compute_type<T> shift);

/// y_i = exp(x_i - shift); returns their sum.
template <class T>
compute_type<T> row_exp_sum(const T* x, int64_t count, compute_type<T> shift, compute_type<T>* y);

/// y_i = exp(x_i - shift) * scale.
template <class T>
void row_exp(const T* x, int64_t count, compute_type<T> shift, compute_type<T> scale, T* y);

/// Rows of at most so many elements are worked on side by side, so many at once.
inline constexpr int64_t kShortRow = 64;
inline constexpr int64_t kRowsAtOnce = 64;

/// For `width` <= kRowsAtOnce neighbouring columns of `extent` elements `stride` apart: the largest element,
/// and sum_i exp(x_i - largest). `exponentials`, unless null, gets the terms, laid out as x is; it may be x.
template <class T>
void column_sum_exp(const T* x, int64_t extent, int64_t stride, int64_t width, compute_type<T>* largest,
                    compute_type<T>* sum, T* exponentials);

/// The same for `rows` <= kRowsAtOnce rows of `extent` elements.
template <class T>
void rows_sum_exp(const T* x, int64_t rows, int64_t extent, compute_type<T>* largest, compute_type<T>* sum);

/// values_i = exp(values_i): exactly 0 for -infinity, and the same for a value wherever it stands.
template <class C>
void exp_in_place(C* values, int64_t count);

}  // namespace sinter::ops
