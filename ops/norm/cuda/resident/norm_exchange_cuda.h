// How the blocks of a normalisation that keeps its tensor on chip add their sums up: each its threads' ones,
// and a team's blocks each other's. For .cu files. NormResidentPlan says how the tensor is cut.
#pragma once

#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/plan/norm_resident_plan.h>

namespace sinter::ops::detail {

// ---- sums that blocks exchange: each comes with the number of its turn, so that its reader knows it is
// there

__device__ __forceinline__ void post_sum(uint64_t* entry, float sum, uint32_t turn) {
  const uint64_t word = uint64_t{turn} << 32 | __float_as_uint(sum);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(entry), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t look_at_sum(const uint64_t* entry) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(entry) : "memory");
  return word;
}

/// The sum of entries from[i * step], first <= i < count in steps of `stride`, once they are those of `turn`.
__device__ __forceinline__ double collect_sums(const uint64_t* from, int first, int count, int stride,
                                               int64_t step, uint32_t turn) {
  constexpr int in_flight = 18;  // of 132 members with 32 channels, a thread collects 17
  double sum = 0.0;
  for (int i = first; i < count; i += in_flight * stride) {
    uint64_t words[in_flight];
    bool all = false;
    while (!all) {
      all = true;
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int at = i + k * stride;
        words[k] = at < count ? look_at_sum(from + at * step) : uint64_t{turn} << 32;
      }
#pragma unroll
      for (int k = 0; k < in_flight; ++k) all &= static_cast<uint32_t>(words[k] >> 32) == turn;
    }
#pragma unroll
    for (int k = 0; k < in_flight; ++k) {
      sum += static_cast<double>(__uint_as_float(static_cast<uint32_t>(words[k])));
    }
  }
  return sum;
}

// ---- a block's sums, and those of a team

/// Adds a block's sums up: thread k * channels + c < kValues * channels gets value k of the panel's channel
/// c.
template <int pack, int threads>
__device__ __forceinline__ float sum_block(const NormResidentPlan& plan, const NormResidentPlace& place,
                                           float (&sums)[NormResidentPlan::kValues][pack], float* scratch,
                                           float* totals) {
  constexpr int values = NormResidentPlan::kValues, warps = threads / kWarp;
  const int id = static_cast<int>(threadIdx.x), warp = id / kWarp, entries = values * plan.channels;
  if (plan.inner == 1) {
    const int columns = plan.columns;
    for (int step = kWarp / 2; step >= columns; step /= 2) {
#pragma unroll
      for (int i = 0; i < values * pack; ++i) {
        sums[i / pack][i % pack] += __shfl_xor_sync(~0u, sums[i / pack][i % pack], step);
      }
    }
    if (id % kWarp < columns) {
      float* own = scratch + warp * values * pack * columns + id % kWarp;
#pragma unroll
      for (int i = 0; i < values * pack; ++i) own[i * columns] = sums[i / pack][i % pack];
    }
    __syncthreads();
    float sum = 0.0F;
    if (id < entries) {
      const int value = id / plan.channels, channel = id - value * plan.channels;
      const float* own = scratch + (value * pack + channel % pack) * columns + channel / pack;
#pragma unroll 8
      for (int i = 0; i < warps; ++i) sum += own[i * values * pack * columns];
    }
    return sum;
  }
  // A pack has elements of one channel or of two: their sums lie in two lines of a value.
#pragma unroll
  for (int value = 0; value < values; ++value) {
    float first = 0.0F, second = 0.0F;
#pragma unroll
    for (int i = 0; i < pack; ++i) (i < place.split ? first : second) += sums[value][i];
    scratch[2 * value * threads + id] = first;
    scratch[(2 * value + 1) * threads + id] = second;
  }
  __syncthreads();
  const int inner = plan.channels == 1 ? plan.columns * pack : static_cast<int>(plan.inner);
  for (int entry = warp; entry < entries; entry += warps) {
    const int value = entry / plan.channels, channel = entry - value * plan.channels;
    const int begin = channel * inner / pack, end = ((channel + 1) * inner + pack - 1) / pack;
    float sum = 0.0F;
    for (int column = begin + id % kWarp; column < end; column += kWarp) {
      const bool starts_before = column * pack < channel * inner;
      const float* own = scratch + (2 * value + (starts_before ? 1 : 0)) * threads + column;
#pragma unroll 4
      for (int lane = 0; lane < plan.lanes; ++lane) sum += own[lane * plan.columns];
    }
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    if (id % kWarp == 0) totals[entry] = sum;
  }
  __syncthreads();
  return id < entries ? totals[id] : 0.0F;
}

/// Leaves the panel's totals in `parts`: entry i, value i / channels of channel i % channels, in as many
/// lines of entries as the function returns, to be added up. `sum` is this block's, of entry threadIdx.x;
/// `table` is the team's, for this turn.
__device__ __forceinline__ int exchange_sums(const NormResidentPlan& plan, int member, float sum,
                                             uint64_t* table, uint32_t turn, double* parts) {
  const int id = static_cast<int>(threadIdx.x), entries = NormResidentPlan::kValues * plan.channels;
  if (plan.members == 1) {
    __syncthreads();
    if (id < entries) parts[id] = static_cast<double>(sum);
    __syncthreads();
    return 1;
  }
  if (id < entries) post_sum(table + member * entries + id, sum, turn);
  const int groups = min(plan.threads / entries, plan.members), group = id / entries;
  double part = 0.0;
  if (group < groups) {
    part = collect_sums(table + id - group * entries, group, plan.members, groups, entries, turn);
  }
  __syncthreads();
  if (group < groups) parts[id] = part;
  __syncthreads();
  return groups;
}

}  // namespace sinter::ops::detail
