// Loops over elements on the CPU, in parallel and open to the compiler's vectoriser. Values are loaded in the
// dtype's compute type (float for the 16-bit types), and results are rounded back once. The walk over blocks
// is compiled once, the loop over a block once per compute type: functors that are types of their own, rather
// than lambdas inside a dispatch, share it between float32 and the 16-bit types.
//
// An input may be the output's memory, exactly (OpTraits::elementwise): element i of it is read before
// element i of the output is written, and not again. So these loops have ivdep rather than __restrict, which
// promises more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/block_cpu.h>

namespace sinter::ops {

/// Elements below which a second thread costs more than it saves.
inline constexpr int64_t kElementwiseGrain = 16384;

/// How the elements of one dtype become blocks in its compute type, and back.
struct BlockFormat {
  size_t bytes;  ///< of an element
  /// The block itself, or `buffer` filled from at most kBlock elements.
  const void* (*load)(const void* from, int64_t count, float* buffer);
  /// Null for the types that compute in themselves; else rounds at most kBlock results.
  void (*store)(const float* from, void* to, int64_t count);

  bool converts() const { return store != nullptr; }
};

template <class T>
constexpr BlockFormat block_format() {
  if constexpr (std::is_same_v<T, compute_type<T>>) {
    return {sizeof(T), [](const void* from, int64_t, float*) { return from; }, nullptr};
  } else {
    return {
        sizeof(T),
        [](const void* from, int64_t count, float* buffer) -> const void* {
          return load_block(static_cast<const T*>(from), count, buffer);
        },
        [](const float* from, void* to, int64_t count) { convert_block(from, static_cast<T*>(to), count); }};
  }
}

/// A loop over blocks of several inputs and one output, without its types. `run` gets `function`, the inputs
/// and the output in their compute types.
struct BlockLoop {
  const void* function;
  void (*run)(const void* function, const void* const* inputs, void* output, int64_t count);
};

/// Runs the loop over all elements of one or two inputs of format `in`, whose counts equal that of `out`.
void run_blocks(const BlockFormat& in, const BlockFormat& out, std::initializer_list<const void*> inputs,
                void* output, int64_t count, const BlockLoop& loop);

namespace detail {

template <class C, class R, class F>
void call_block(const void* function, const void* const* inputs, void* output, int64_t count) {
  (*static_cast<const F*>(function))(static_cast<const C*>(inputs[0]), static_cast<R*>(output), count);
}

template <class C, class R, class F>
void call_block_pair(const void* function, const void* const* inputs, void* output, int64_t count) {
  (*static_cast<const F*>(function))(static_cast<const C*>(inputs[0]), static_cast<const C*>(inputs[1]),
                                     static_cast<R*>(output), count);
}

template <class C, class R, class F>
void map_block(const void* f, const void* const* inputs, void* output, int64_t count) {
  const F function = *static_cast<const F*>(f);
  const C* x = static_cast<const C*>(inputs[0]);
  R* y = static_cast<R*>(output);
  SINTER_IVDEP
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<R>(function(x[i]));
}

template <class C, class R, class F>
void map_block_pair(const void* f, const void* const* inputs, void* output, int64_t count) {
  const F function = *static_cast<const F*>(f);
  const C* x = static_cast<const C*>(inputs[0]);
  const C* y = static_cast<const C*>(inputs[1]);
  R* z = static_cast<R*>(output);
  SINTER_IVDEP
  for (int64_t i = 0; i < count; ++i) z[i] = static_cast<R>(function(x[i], y[i]));
}

}  // namespace detail

/// function(x, y, count) on blocks, x and y being in the compute types of In and Out; the views have equal
/// counts.
template <class In, class Out, class F>
void map_blocks(const TensorView& in, const TensorView& out, const F& function) {
  run_blocks(block_format<In>(), block_format<Out>(), {in.data}, out.data, out.numel(),
             {&function, detail::call_block<compute_type<In>, compute_type<Out>, F>});
}

/// function(x, y, z, count) on blocks, x and y being in In's compute type, z in that of Out; the views have
/// equal counts.
template <class In, class Out, class F>
void map_blocks(const TensorView& a, const TensorView& b, const TensorView& out, const F& function) {
  run_blocks(block_format<In>(), block_format<Out>(), {a.data, b.data}, out.data, out.numel(),
             {&function, detail::call_block_pair<compute_type<In>, compute_type<Out>, F>});
}

/// out[i] = function(in[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& in, const TensorView& out, const F& function) {
  run_blocks(block_format<In>(), block_format<Out>(), {in.data}, out.data, out.numel(),
             {&function, detail::map_block<compute_type<In>, compute_type<Out>, F>});
}

/// out[i] = function(a[i], b[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& a, const TensorView& b, const TensorView& out, const F& function) {
  run_blocks(block_format<In>(), block_format<Out>(), {a.data, b.data}, out.data, out.numel(),
             {&function, detail::map_block_pair<compute_type<In>, compute_type<Out>, F>});
}

/// out[i] = function(a[i], b[i], c[i]); the views have equal counts.
template <class In, class Out, class F>
void map_elements(const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& out,
                  F function) {
  using C = compute_type<In>;
  using R = compute_type<Out>;
  parallel_for(out.numel(), kElementwiseGrain, [=](int64_t begin, int64_t end) {
    BlockBuffer<In> buffers[3];
    BlockBuffer<Out> out_buffer;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      const C* x = load_block(a.as<const In>() + i, count, buffers[0].values);
      const C* y = load_block(b.as<const In>() + i, count, buffers[1].values);
      const C* z = load_block(c.as<const In>() + i, count, buffers[2].values);
      R* results = result_block(out.as<Out>() + i, out_buffer.values);
      SINTER_IVDEP
      for (int64_t j = 0; j < count; ++j) results[j] = static_cast<R>(function(x[j], y[j], z[j]));
      finish_block(results, out.as<Out>() + i, count);
    }
  });
}

}  // namespace sinter::ops
