// From the dtypes of a PReLU call to the types of its kernels.
#pragma once

#include <sinter/core/base/dtype.h>

namespace sinter::ops {

/// Calls function.operator()<T, S>(): T is x's type, S alpha's, which is T or compute_type<T>.
template <class F>
void dispatch_prelu(DType x, DType alpha, const char* tag, F function) {
  dispatch_float(x, tag, [&]<class T> {
    if (alpha == x) {
      function.template operator()<T, T>();
    } else {
      function.template operator()<T, compute_type<T>>();
    }
  });
}

}  // namespace sinter::ops
