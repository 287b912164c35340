// Batches of matrices or vectors that broadcast against each other, and the runs of them that a strided-batch
// kernel takes. Host code without devices.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include <sinter/core/base/shape.h>
#include <sinter/ops/common/broadcast_plan.h>

namespace sinter::ops {

/// The shape without its last `item_axes` axes (2 for matrices, 1 for vectors): how many items there are.
inline Shape batch_shape(const Shape& shape, int item_axes) {
  return Shape(shape.extents().first(static_cast<size_t>(shape.rank() - item_axes)));
}

/// For item `i` of a batch of shape `to`, the item of a batch of shape `from` that broadcasting reads.
inline int64_t batch_item(const Shape& from, const Shape& to, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int axis = 1; axis <= from.rank(); ++axis) {
    if (from[-axis] != 1) index += i % to[-axis] * stride;
    stride *= from[-axis];
    i /= to[-axis];
  }
  return index;
}

/// `count` items of the output from `first` on. They read the first operand's items a, a + a_step, ..., and
/// the second's b, b + b_step, ...; a step is 0 or 1.
struct BatchRun {
  int64_t first = 0, count = 0;
  int64_t a = 0, b = 0;
  int64_t a_step = 0, b_step = 0;

  bool operator==(const BatchRun&) const = default;
};

/// Calls `body(run)` for runs of at most `most` items that together are the whole batch, in order. `a` and
/// `b` can be broadcast to `batch`. An empty batch has no runs.
template <class Body>
void for_each_batch_run(const Shape& batch, const Shape& a, const Shape& b, Body&& body,
                        int64_t most = std::numeric_limits<int32_t>::max()) {
  if (batch.numel() == 0) return;
  const auto plan = plan_broadcast<2>(batch, {a, b});
  const int64_t a_step = plan.steps(0) ? 1 : 0, b_step = plan.steps(1) ? 1 : 0;
  for_each_run(plan, 0, batch.numel(),
               [&](int64_t first, int64_t count, const std::array<int64_t, 2>& offsets) {
                 for (int64_t done = 0; done < count; done += most) {
                   body(BatchRun{.first = first + done,
                                 .count = std::min(most, count - done),
                                 .a = offsets[0] + done * a_step,
                                 .b = offsets[1] + done * b_step,
                                 .a_step = a_step,
                                 .b_step = b_step});
                 }
               });
}

}  // namespace sinter::ops
