// How a kernel walks over the output of a broadcast in packs that begin where its memory is aligned, whatever
// the extents: packs may straddle rows, and what is left at both ends is walked one by one. Host code without
// devices too, so that a unit test can use it.
#pragma once

#include <cstdint>

#include <sinter/core/base/host_device.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cuda/elementwise_plan.h>

namespace sinter::ops {

/// Broadcasts of at most two axes, below 2^31 elements: what nearly all come down to. The place of an element
/// takes one division of 32 bits, which is that of its whole pack if the row goes on so far.
template <int inputs>
struct RowWalk {
  static constexpr auto kInputs = static_cast<size_t>(inputs);

  static bool takes(const BroadcastPlan<kInputs>& plan, int64_t count) {
    return plan.rank <= 2 && count <= INT32_MAX;
  }

  RowWalk() = default;
  explicit RowWalk(const BroadcastPlan<kInputs>& plan) : inner(static_cast<uint32_t>(plan.inner())) {
    for (size_t k = 0; k < kInputs; ++k) {
      strides[k] = plan.rank == 2 ? static_cast<uint32_t>(plan.strides[k][0]) : 0u;
      steps[k] = plan.steps(k);
    }
  }

  /// Of the output's element `index`.
  SINTER_HOST_DEVICE uint32_t row_of(uint32_t index, uint32_t& column) const {
    return inner.divide(index, column);
  }
  /// Where input k has its element for a place of the output.
  SINTER_HOST_DEVICE uint32_t offset(int k, uint32_t row, uint32_t column) const {
    return row * strides[k] + (steps[k] ? column : 0u);
  }
  SINTER_HOST_DEVICE uint32_t offset_of(int k, uint32_t index) const {
    uint32_t column = 0;
    const uint32_t row = row_of(index, column);
    return offset(k, row, column);
  }

  cuda::FastDivide inner;
  uint32_t strides[kInputs] = {};
  bool steps[kInputs] = {};
};

/// Where the elements of `inputs` broadcast inputs lie. Of input k, `flat` tells that its elements lie as the
/// output's do.
template <int inputs>
struct FlatWalk {
  static constexpr auto kInputs = static_cast<size_t>(inputs);

  FlatWalk() = default;
  explicit FlatWalk(const BroadcastPlan<kInputs>& plan) : rank(plan.rank), inner(plan.inner()) {
    for (int k = 0; k < inputs; ++k) flat[k] = true;
    int64_t dense = 1;
    for (int axis = plan.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      extents[axis] = cuda::WideDivide(plan.extents[a]);
      for (int k = 0; k < inputs; ++k) {
        strides[k][axis] = plan.strides[static_cast<size_t>(k)][a];
        flat[k] = flat[k] && strides[k][axis] == dense;
      }
      dense *= plan.extents[a];
    }
  }

  /// Where element `index` of the output has that of each input; returns how many elements its row has from
  /// there on.
  SINTER_HOST_DEVICE int64_t locate(int64_t index, int64_t (&offsets)[kInputs]) const {
    for (int k = 0; k < inputs; ++k) offsets[k] = 0;
    int64_t left = inner - index;  // of the only axis
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
      if (axis == rank - 1) left = inner - place;
      for (int k = 0; k < inputs; ++k) offsets[k] += place * strides[k][axis];
    }
    for (int k = 0; k < inputs; ++k) offsets[k] += index * strides[k][0];
    return left;
  }
  /// The same for one input.
  SINTER_HOST_DEVICE int64_t offset(int k, int64_t index) const {
    int64_t sum = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
      sum += place * strides[k][axis];
    }
    return sum + index * strides[k][0];
  }
  SINTER_HOST_DEVICE bool steps(int k) const {
    return strides[k][rank - 1] != 0;
  }

  int rank = 1;
  int64_t inner = 1;
  cuda::WideDivide extents[kMaxRank];
  int64_t strides[kInputs][kMaxRank] = {};
  bool flat[kInputs] = {};
};

}  // namespace sinter::ops
