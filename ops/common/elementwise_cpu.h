// Loops over elements on the CPU, in parallel and open to the compiler's vectoriser. Values are loaded in the
// dtype's compute type (float for the 16-bit types), and results are rounded back once.
#pragma once

#include <algorithm>

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/block_cpu.h>

namespace sinter::ops {

/// Elements below which a second thread costs more than it saves.
inline constexpr int64_t kElementwiseGrain = 16384;

/// function(x, y, count) on blocks of at most kBlock elements, x and y being in the compute types of In and
/// Out; the views have equal counts.
template <class In, class Out, class F>
void map_blocks(const TensorView& in, const TensorView& out, F function) {
  const In* x = in.as<const In>();
  Out* y = out.as<Out>();
  parallel_for(out.numel(), kElementwiseGrain, [=](int64_t begin, int64_t end) {
    BlockBuffer<In> x_buffer;
    BlockBuffer<Out> y_buffer;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      auto* results = result_block(y + i, y_buffer.values);
      function(load_block(x + i, count, x_buffer.values), results, count);
      finish_block(results, y + i, count);
    }
  });
}

/// function(a, b, z, count), likewise.
template <class In, class Out, class F>
void map_blocks(const TensorView& a, const TensorView& b, const TensorView& out, F function) {
  const In* x = a.as<const In>();
  const In* y = b.as<const In>();
  Out* z = out.as<Out>();
  parallel_for(out.numel(), kElementwiseGrain, [=](int64_t begin, int64_t end) {
    BlockBuffer<In> x_buffer, y_buffer;
    BlockBuffer<Out> z_buffer;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      auto* results = result_block(z + i, z_buffer.values);
      function(load_block(x + i, count, x_buffer.values), load_block(y + i, count, y_buffer.values), results,
               count);
      finish_block(results, z + i, count);
    }
  });
}

/// out[i] = function(in[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& in, const TensorView& out, F function) {
  using R = compute_type<Out>;
  map_blocks<In, Out>(in, out, [=](const compute_type<In>* __restrict x, R* __restrict y, int64_t count) {
    for (int64_t i = 0; i < count; ++i) y[i] = static_cast<R>(function(x[i]));
  });
}

/// out[i] = function(a[i], b[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& a, const TensorView& b, const TensorView& out, F function) {
  using C = compute_type<In>;
  using R = compute_type<Out>;
  map_blocks<In, Out>(a, b, out,
                      [=](const C* __restrict x, const C* __restrict y, R* __restrict z, int64_t count) {
                        for (int64_t i = 0; i < count; ++i) z[i] = static_cast<R>(function(x[i], y[i]));
                      });
}

}  // namespace sinter::ops
