// One parallel loop over the elements of many tensors: what ops over all parameters of a model need.
#pragma once

#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/block_cpu.h>

namespace sinter::ops {

/// Calls body(first, begin, end) for element ranges that together cover the slots: groups of `width` inputs,
/// of which input `first` is the group's first, with equal counts in the inputs that the body reads by range.
template <class F>
void for_each_slot_range(const KernelContext& context, size_t width, int64_t grain, F body) {
  int64_t total = 0;
  for (size_t i = 0; i < context.input_count(); i += width) total += context.input(i).numel();
  parallel_for(total, grain, [&](int64_t begin, int64_t end) {
    int64_t start = 0;
    for (size_t i = 0; i < context.input_count() && start < end; i += width) {
      const int64_t count = context.input(i).numel();
      const int64_t from = std::max(begin - start, int64_t{0});
      const int64_t to = std::min(end - start, count);
      if (from < to) body(i, from, to);
      start += count;
    }
  });
}

/// body(i) for the elements [begin, end) of a slot, vectorised: its tensors do not overlap, and more pairs of
/// them than a compiler would compare at run time are read and written.
template <class F>
void for_each_element(int64_t begin, int64_t end, F body) {
  SINTER_IVDEP
  for (int64_t i = begin; i < end; ++i) body(i);
}

}  // namespace sinter::ops
