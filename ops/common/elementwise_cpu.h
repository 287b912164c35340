// Loops over elements on the CPU, in parallel and open to the compiler's vectoriser. Values are loaded in the
// dtype's compute type (float for the 16-bit types), and results are rounded back once.
#pragma once

#include <algorithm>

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter::ops {

/// Elements below which a second thread costs more than it saves.
inline constexpr int64_t kElementwiseGrain = 16384;

/// out[i] = function(in[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& in, const TensorView& out, F function) {
  const In* x = in.as<const In>();
  Out* y = out.as<Out>();
  parallel_for(out.numel(), kElementwiseGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      y[i] = static_cast<Out>(function(static_cast<compute_type<In>>(x[i])));
    }
  });
}

/// out[i] = function(a[i], b[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& a, const TensorView& b, const TensorView& out, F function) {
  const In* x = a.as<const In>();
  const In* y = b.as<const In>();
  Out* z = out.as<Out>();
  parallel_for(out.numel(), kElementwiseGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      z[i] = static_cast<Out>(
          function(static_cast<compute_type<In>>(x[i]), static_cast<compute_type<In>>(y[i])));
    }
  });
}

}  // namespace sinter::ops
