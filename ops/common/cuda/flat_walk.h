// How a kernel walks over the output of a broadcast in packs that begin where its memory is aligned, whatever
// the extents: packs may straddle rows, and what is left at both ends is walked one by one. Host code without
// devices too, so that a unit test can use it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cuda/elementwise_plan.h>

namespace sinter::ops {

/// Where the elements of `inputs` broadcast inputs lie, of an output below 2^31 elements: in 32 bits. Of
/// input k, `flat` tells that its elements lie as the output's do.
template <int inputs>
struct BroadcastWalk {
  static constexpr auto kInputs = static_cast<size_t>(inputs);

  BroadcastWalk() = default;
  explicit BroadcastWalk(const BroadcastPlan<kInputs>& plan)
      : rank(plan.rank), inner(static_cast<uint32_t>(plan.inner())) {
    for (int k = 0; k < inputs; ++k) {
      flat[k] = true;
      steps[k] = plan.steps(static_cast<size_t>(k));
    }
    int64_t dense = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      extents[axis] = cuda::FastDivide(static_cast<uint32_t>(plan.extents[a]));
      for (int k = 0; k < inputs; ++k) {
        const int64_t stride = plan.strides[static_cast<size_t>(k)][a];
        strides[k][axis] = static_cast<uint32_t>(stride);
        flat[k] = flat[k] && stride == dense;
      }
      dense *= plan.extents[a];
    }
  }

  /// The row of the output's element `index`, a place of all axes but the last.
  SINTER_HOST_DEVICE uint32_t row_of(uint32_t index, uint32_t& column) const {
    return inner.divide(index, column);
  }
  /// Where that row begins in each input. One of two axes takes no further division.
  SINTER_HOST_DEVICE void find_row(uint32_t row, uint32_t (&begins)[kInputs]) const {
    for (int k = 0; k < inputs; ++k) begins[k] = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int axis = rank - 2; axis > 0; --axis) {
      uint32_t place = 0;
      row = extents[axis].divide(row, place);
      for (int k = 0; k < inputs; ++k) begins[k] += place * strides[k][axis];
    }
    for (int k = 0; k < inputs; ++k) begins[k] += row * strides[k][0];
  }
  /// The same in input k.
  SINTER_HOST_DEVICE uint32_t row_begin(int k, uint32_t row) const {
    uint32_t begin = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int axis = rank - 2; axis > 0; --axis) {
      uint32_t place = 0;
      row = extents[axis].divide(row, place);
      begin += place * strides[k][axis];
    }
    return begin + row * strides[k][0];
  }
  /// Where input k has its element of a column of a row that begins there.
  SINTER_HOST_DEVICE uint32_t offset(int k, uint32_t begin, uint32_t column) const {
    return begin + (steps[k] ? column : 0u);
  }

  int rank = 1;
  cuda::FastDivide inner;
  cuda::FastDivide extents[kMaxRank];
  uint32_t strides[kInputs][kMaxRank] = {};
  bool flat[kInputs] = {}, steps[kInputs] = {};
};

/// Cuts a broadcast into parts of up to `most` elements, which are broadcasts too: calls
/// `body(part, first, offsets)`, where the part's output begins at element `first` and input k at offsets[k].
template <size_t kInputs, class Body>
void for_each_part(const BroadcastPlan<kInputs>& plan, int64_t most, Body&& body, int64_t first = 0,
                   const std::array<int64_t, kInputs>& offsets = {}) {
  int64_t behind = 1;  // elements of one place of the first axis
  for (int axis = 1; axis < plan.rank; ++axis) behind *= plan.extents[static_cast<size_t>(axis)];
  const int64_t step = std::max<int64_t>(1, most / behind);
  for (int64_t place = 0; place < plan.extents[0]; place += step) {
    BroadcastPlan<kInputs> part = plan;
    part.extents[0] = std::min(step, plan.extents[0] - place);
    std::array<int64_t, kInputs> begins = offsets;
    for (size_t k = 0; k < kInputs; ++k) begins[k] += place * plan.strides[k][0];
    if (behind <= most) {
      body(part, first + place * behind, begins);
      continue;
    }
    const auto drop_first = [&](auto& axes) { std::copy(axes.begin() + 1, axes.end(), axes.begin()); };
    drop_first(part.extents);
    for (auto& strides : part.strides) drop_first(strides);
    --part.rank;
    for_each_part(part, most, body, first + place * behind, begins);
  }
}

}  // namespace sinter::ops
