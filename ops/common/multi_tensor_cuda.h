// One launch over the elements of many tensors: what ops over all parameters of a model need. The addresses
// travel in the kernel's parameters, so that nothing is copied to the device and a launch can be captured.
// For .cu files.
#pragma once

#include <algorithm>

#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/launch.h>
#include <sinter/core/op/kernel.h>

namespace sinter::ops {

inline constexpr int kMultiTensorThreads = 256;
/// Elements of one tensor that one block works on.
inline constexpr int64_t kMultiTensorBlock = 8192;
/// Tensors in one launch: with six arrays each their addresses stay below the 4 KiB of a kernel's parameters.
inline constexpr int kMultiTensorSlots = 48;

/// The slots of one launch: groups of `width` inputs, of which the first `ranged` are arrays of equal length.
template <int width>
struct SlotTable {
  int slots = 0;
  int first_blocks[kMultiTensorSlots + 1] = {};  ///< the last one ends the grid
  bool packed[kMultiTensorSlots] = {};           ///< arrays allow accesses of 16 bytes
  int64_t counts[kMultiTensorSlots] = {};
  void* data[kMultiTensorSlots][width] = {};  ///< null for an absent input
};

/// The slot that a block works on: the last one that starts at or before it.
template <int width>
__device__ __forceinline__ int slot_of_block(const SlotTable<width>& table) {
  int low = 0, high = table.slots;  // the slot is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (static_cast<int>(blockIdx.x) >= table.first_blocks[middle]) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Calls body.operator()<pack>(i) for the elements i, ..., i + pack - 1 that belong to this thread.
template <class T, int width, class F>
__device__ __forceinline__ void for_each_element(const SlotTable<width>& table, int slot, F body) {
  constexpr int pack = cuda::kPackSize<T>;
  const int64_t begin =
      static_cast<int64_t>(static_cast<int>(blockIdx.x) - table.first_blocks[slot]) * kMultiTensorBlock;
  const int64_t end = min(begin + kMultiTensorBlock, table.counts[slot]);
  int64_t i = begin + threadIdx.x;
  if (table.packed[slot]) {
    const int64_t whole = end - (end - begin) % pack;
    for (int64_t at = begin + static_cast<int64_t>(threadIdx.x) * pack; at < whole;
         at += kMultiTensorThreads * pack) {
      body.template operator()<pack>(at);
    }
    i = whole + threadIdx.x;
  }
  for (; i < end; i += kMultiTensorThreads) body.template operator()<1>(i);
}

/// Calls launch_table.operator()<T>(table, launch shape) until all slots of the call are covered; the slots
/// of a table have elements of type T.
template <int width, int ranged, class F>
void for_each_slot_table(const KernelContext& context, const char* tag, F&& launch_table) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    SlotTable<width> table;
    int64_t blocks = 0;
    const auto flush = [&] {
      if (table.slots == 0) return;
      table.first_blocks[table.slots] = static_cast<int>(blocks);
      const cuda::LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kMultiTensorThreads)};
      dispatch_float(dtype, tag, [&]<class T> { launch_table.template operator()<T>(table, shape); });
      table = {};
      blocks = 0;
    };
    for (size_t first = 0; first < context.input_count(); first += width) {
      const TensorView& parameter = context.input(first);
      if (parameter.dtype != dtype || parameter.numel() == 0) continue;
      const int64_t own_blocks = cuda::blocks_for(parameter.numel(), kMultiTensorBlock);
      SINTER_CHECK(own_blocks <= kMostBlocks, "[{}] a tensor of {} elements is too large", tag,
                   parameter.numel());
      if (table.slots == kMultiTensorSlots || blocks + own_blocks > kMostBlocks) flush();
      const int slot = table.slots++;
      table.first_blocks[slot] = static_cast<int>(blocks);
      table.counts[slot] = parameter.numel();
      table.packed[slot] = true;
      for (int i = 0; i < width; ++i) {
        const size_t input = first + static_cast<size_t>(i);
        table.data[slot][i] = context.has_input(input) ? context.input(input).data : nullptr;
        if (i < ranged) table.packed[slot] = table.packed[slot] && cuda::is_aligned(table.data[slot][i], 16);
      }
      blocks += own_blocks;
    }
    flush();
  }
}

}  // namespace sinter::ops
