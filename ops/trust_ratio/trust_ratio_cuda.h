// The passes of an optimiser step with trust ratios on a GPU: each block sums over its part of a parameter,
// one block for each parameter adds these up in a fixed order, then all blocks step. Nothing waits for the
// host. For .cu files.
#pragma once

#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/trust_ratio/trust_sums.h>

namespace sinter::ops {

/// Writes the sums of a block, which all its threads call with their own.
__device__ __forceinline__ void store_block_sums(TrustSums sums, TrustSums* to) {
  sums.parameter = RowReduce<kMultiTensorThreads>{}(sums.parameter, SumOf{});
  sums.direction = RowReduce<kMultiTensorThreads>{}(sums.direction, SumOf{});
  if (threadIdx.x == 0) *to = sums;
}

/// Slot blockIdx.x: the sum of what its blocks wrote.
template <int width>
__global__ void trust_totals_kernel(__grid_constant__ const SlotTable<width> table, const TrustSums* partials,
                                    TrustSums* totals) {
  const int slot = static_cast<int>(blockIdx.x);
  TrustSums sums;
  for (int i = table.first_blocks[slot] + static_cast<int>(threadIdx.x); i < table.first_blocks[slot + 1];
       i += kMultiTensorThreads) {
    sums.add(partials[i]);
  }
  store_block_sums(sums, totals + slot);
}

/// Sums of all blocks, and one for each slot of `width` inputs.
template <size_t width>
size_t trust_workspace_cuda(const KernelQuery& query) {
  int64_t sums = 0;
  for (size_t slot = 0; slot < query.input_count(); slot += width) {
    sums += cuda::blocks_for(query.input(slot).shape.numel(), kMultiTensorBlock) + 1;
  }
  return static_cast<size_t>(sums) * sizeof(TrustSums);
}

/// For each table of slots with `arrays` arrays: measure.operator()<T, G>(table, shape, partials), which
/// launches a kernel whose blocks write partials[blockIdx.x]; then step.operator()<T, G>(table, shape,
/// totals) with the sums of each slot.
template <int arrays, class Measure, class Step>
void run_trust_step(const KernelContext& context, const char* tag, bool adapts, Measure measure, Step step) {
  constexpr int width = arrays + static_cast<int>(kUpdateInputs);
  auto* sums = context.workspace<TrustSums>();
  for_each_update_table<arrays>(
      context, tag, [&]<class T, class G>(const SlotTable<width>& table, const cuda::LaunchShape& shape) {
        if (!adapts) return step.template operator()<T, G>(table, shape, nullptr);
        TrustSums *const totals = sums, *const partials = sums + table.slots;
        sums = partials + shape.grid.x;
        measure.template operator()<T, G>(table, shape, partials);
        const cuda::LaunchShape per_slot{dim3(static_cast<unsigned>(table.slots)), dim3(kMultiTensorThreads)};
        cuda::launch(context.stream(), per_slot, trust_totals_kernel<width>, table,
                     static_cast<const TrustSums*>(partials), totals);
        step.template operator()<T, G>(table, shape, static_cast<const TrustSums*>(totals));
      });
}

}  // namespace sinter::ops
