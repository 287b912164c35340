// For ops that change their first input: others that lie in the same memory are read from a copy in scratch.
#pragma once

#include <vector>

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

inline size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.numel()) * size_of(view.dtype);
}

inline bool overlap(const TensorView& a, const TensorView& b) {
  const auto *const first = a.as<const std::byte>(), *const second = b.as<const std::byte>();
  return first < second + bytes_of(b) && second < first + bytes_of(a);
}

/// Bytes of scratch for a copy of `view` and those behind it, which stay aligned.
inline size_t scratch_bytes(const TensorView& view) {
  return (bytes_of(view) + 255) / 256 * 256;
}

/// Kernel::workspace_bytes for inputs_apart.
inline size_t overlapping_bytes(const KernelQuery& query) {
  size_t bytes = 0;
  for (size_t i = 1; i < query.inputs().size(); ++i) {
    if (overlap(query.inputs()[0], query.inputs()[i])) bytes += scratch_bytes(query.inputs()[i]);
  }
  return bytes;
}

/// The inputs of a call; where it has scratch, those that overlap with input 0 are copies that
/// `copy(to, from, bytes)` has made there.
template <class Copy>
std::vector<TensorView> inputs_apart(const KernelContext& context, Copy copy) {
  std::vector<TensorView> views;
  size_t used = 0;
  for (size_t i = 0; i < context.input_count(); ++i) {
    const TensorView& input = context.input(i);
    views.push_back(input);
    const size_t bytes = scratch_bytes(input);
    if (i == 0 || used + bytes > context.workspace_bytes() || !overlap(context.input(0), input)) continue;
    views[i].data = context.workspace<std::byte>() + used;
    copy(views[i].data, input.data, bytes_of(input));
    used += bytes;
  }
  return views;
}

}  // namespace sinter::ops
