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

/// y_i = exp(x_i - shift) * scale.
template <class T>
void row_exp(const T* x, int64_t count, compute_type<T> shift, compute_type<T> scale, T* y);

/// values_i = exp(values_i).
template <class C>
void exp_in_place(C* values, int64_t count);

}  // namespace sinter::ops
