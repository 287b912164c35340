// One launch over the elements of many tensors: what ops over all parameters of a model need. The addresses
// travel in the kernel's parameters, so that nothing is copied to the device and a launch can be captured.
// For .cu files.
#pragma once

#include <algorithm>
#include <utility>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>

namespace sinter::ops {

inline constexpr int kMultiTensorThreads = 256;
/// Elements of one tensor that one block works on.
inline constexpr int64_t kMultiTensorBlock = 8192;
/// Tensors in one launch: with eight addresses each a table takes 20 of the 32 kB that the parameters of a
/// kernel may have (from Volta and CUDA 12.1 on).
inline constexpr int kMultiTensorSlots = 256;

/// The slots of one launch: groups of `width` inputs, some of which are arrays of equal length.
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

/// Fills tables with the slots whose inputs 0 and `typed` are of `dtypes` and passes each, with its launch
/// shape, to launch_table. `is_ranged(i)`: whether input i of a slot is an array of the length of input 0.
template <int width, class Ranged, class F>
void fill_slot_tables(const KernelContext& context, const char* tag, size_t typed,
                      const std::pair<DType, DType>& dtypes, SlotTable<width>& table, Ranged is_ranged,
                      F&& launch_table) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  int64_t blocks = 0;
  const auto flush = [&] {
    if (table.slots == 0) return;
    table.first_blocks[table.slots] = static_cast<int>(blocks);
    launch_table(table, cuda::LaunchShape{dim3(static_cast<unsigned>(blocks)), dim3(kMultiTensorThreads)});
    table.slots = 0;
    blocks = 0;
  };
  for (size_t first = 0; first < context.input_count(); first += static_cast<size_t>(width)) {
    const TensorView& leading = context.input(first);
    if (leading.dtype != dtypes.first || context.input(first + typed).dtype != dtypes.second) continue;
    if (leading.numel() == 0) continue;
    const int64_t own_blocks = cuda::blocks_for(leading.numel(), kMultiTensorBlock);
    SINTER_CHECK(own_blocks <= kMostBlocks, "[{}] a tensor of {} elements is too large", tag,
                 leading.numel());
    if (table.slots == kMultiTensorSlots || blocks + own_blocks > kMostBlocks) flush();
    const int slot = table.slots++;
    table.first_blocks[slot] = static_cast<int>(blocks);
    table.counts[slot] = leading.numel();
    table.packed[slot] = true;
    for (int i = 0; i < width; ++i) {
      const size_t input = first + static_cast<size_t>(i);
      table.data[slot][i] = context.has_input(input) ? context.input(input).data : nullptr;
      if (is_ranged(i)) table.packed[slot] = table.packed[slot] && cuda::is_aligned(table.data[slot][i], 16);
    }
    blocks += own_blocks;
  }
  flush();
}

/// Calls launch_table.operator()<T>(table, launch shape) until all inputs of the call are covered: arrays of
/// any floating-point dtype; those of a table have elements of type T.
template <class F>
void for_each_array_table(const KernelContext& context, const char* tag, F&& launch_table) {
  SlotTable<1> table;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    dispatch_float(dtype, tag, [&]<class T> {
      fill_slot_tables(
          context, tag, 0, {dtype, dtype}, table, [](int) { return true; },
          [&](const SlotTable<1>& filled, const cuda::LaunchShape& shape) {
            launch_table.template operator()<T>(filled, shape);
          });
    });
  }
}

}  // namespace sinter::ops
