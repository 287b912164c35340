// Batch normalisation in one kernel in which a block keeps whole channels in shared memory between the sums
// and the map. For .cu files. NormGroupPlan says how the tensor is cut, norm_resident_cuda.h what a pass is;
// here its packs may be single elements, too.
#pragma once

#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_copies_cuda.h>
#include <sinter/ops/norm/plan/norm_group_plan.h>

namespace sinter::ops {
namespace detail {

/// What one block does.
template <class Pass>
class GroupedBlock {
 public:
  __device__ GroupedBlock(const Pass& pass, const NormGroupWalk& walk, uint4* shared)
      : pass_(pass),
        walk_(walk),
        plan_(walk.plan),
        place_(walk, blockIdx.x, id_),
        finished_(reinterpret_cast<Finished*>(shared)),
        totals_(reinterpret_cast<double*>(shared + plan_.channels * sizeof(C) / 4)),
        scratch_(reinterpret_cast<C*>(totals_ + kValues * plan_.channels)),
        kept_(reinterpret_cast<Values*>(reinterpret_cast<char*>(shared) + plan_.fixed_bytes) + id_) {}

  __device__ __forceinline__ void run() {
    take_in();
    typename Pass::Known known;
    const int64_t own = place_.first_channel + id_;
    const bool finishes = id_ < place_.channels;
    if (finishes) known = pass_.known(own, true);
    C sums[kValues][kPack] = {};
    sum_up(sums);
    leave(sums);
    __syncthreads();
    add_up();
    __syncthreads();
    if (finishes) {
      double all[kValues];
#pragma unroll
      for (int value = 0; value < kValues; ++value) all[value] = totals_[value * plan_.channels + id_];
      finished_[id_] = pass_.finish(known, all);
      pass_.keep(own, known, all);
    }
    __syncthreads();
    map();
  }

 private:
  using T = typename Pass::T;
  using C = typename Pass::C;
  using Finished = typename Pass::Finished;
  static constexpr int kPack = Pass::kPack, kTensors = Pass::kTensors, kValues = NormGroupPlan::kValues;
  // Packs that are worked on at a time: few, for code must be fetched too.
  static constexpr int kBatch = kPack > 1 ? 2 : 4;
  using Values = cuda::Pack<T, kPack>;
  static_assert(sizeof(Finished) <= 4 * sizeof(C));

  __device__ __forceinline__ Values* slot(int i, int tensor) const {
    return kept_ + (i * kTensors + tensor) * plan_.threads;
  }

  /// All of the block's reads are in flight at once; of single elements eight of a thread.
  __device__ __forceinline__ void take_in() const {
    if constexpr (kPack > 1) {
#pragma unroll 1
      for (int i = 0; i < place_.packs; ++i) {
        const int64_t offset = place_.offset(i);
#pragma unroll
        for (int t = 0; t < kTensors; ++t) {
          copy_to_shared(reinterpret_cast<uint4*>(slot(i, t)), pass_.source(t) + offset);
        }
        pass_.prefetch(offset);
      }
    } else {
      constexpr int in_flight = 8 / kTensors;
#pragma unroll 1
      for (int i = 0; i < place_.packs; i += in_flight) {
        T values[in_flight][kTensors];
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          const int64_t offset = place_.offset(min(i + u, place_.packs - 1));
#pragma unroll
          for (int t = 0; t < kTensors; ++t) values[u][t] = pass_.source(t)[offset];
          if (offset % NormPlan::kGroup == 0) pass_.prefetch(offset);
        }
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          if (i + u >= place_.packs) break;
#pragma unroll
          for (int t = 0; t < kTensors; ++t) slot(i + u, t)->values[0] = values[u][t];
        }
      }
    }
  }

  __device__ __forceinline__ void find_centers(typename Pass::Center (&centers)[kPack]) const {
    if constexpr (kPack > 1) {
      if (plan_.fixed && plan_.inner == 1) {
        return pass_.centers(place_.first_channel + place_.column * kPack, centers);
      }
    }
    centers[0] = pass_.center(place_.first_channel + place_.channel(0));
    const bool one = plan_.own_sums() == 1;
#pragma unroll
    for (int i = 1; i < kPack; ++i) {
      centers[i] = one ? centers[0] : pass_.center(place_.first_channel + place_.channel(i));
    }
  }

  /// This thread's sums.
  __device__ __forceinline__ void sum_up(C (&sums)[kValues][kPack]) const {
    if (place_.packs == 0) return;
    typename Pass::Center centers[kPack];
    find_centers(centers);
#pragma unroll 1
    for (int first = 0; first < place_.packs; first += kBatch) {
      typename Pass::Beside beside[kBatch];
      int64_t offsets[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        offsets[u] = place_.offset(min(first + u, place_.packs - 1));
        beside[u] = pass_.beside(offsets[u]);
      }
      if (kPack > 1 && first == 0) wait_for_copies(0);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (first + u >= place_.packs) break;
        Values packs[kTensors];
#pragma unroll
        for (int t = 0; t < kTensors; ++t) packs[t] = load_slot(slot(first + u, t));
        pass_.add(offsets[u], packs, beside[u], centers, sums);
        if constexpr (Pass::kChanges) *slot(first + u, Pass::kChanged) = packs[Pass::kChanged];
      }
    }
  }
  static __device__ __forceinline__ Values load_slot(const Values* from) {
    if constexpr (kPack > 1) {
      return std::bit_cast<Values>(*reinterpret_cast<const uint4*>(from));
    } else {
      return *from;
    }
  }

  /// Leaves this thread's sums where the block adds them up.
  __device__ __forceinline__ void leave(const C (&sums)[kValues][kPack]) const {
    if (id_ >= plan_.active) return;
    const int pitch = plan_.pitch(), size = plan_.lines() * pitch;
    const int at = plan_.fixed ? (id_ - place_.column) / plan_.columns * pitch + place_.column : id_;
    const bool one = plan_.own_sums() == 1;
#pragma unroll
    for (int value = 0; value < kValues; ++value) {
      if (one) {
        double sum = static_cast<double>(sums[value][0]);
#pragma unroll
        for (int i = 1; i < kPack; ++i) sum += static_cast<double>(sums[value][i]);
        scratch_[value * size + at] = static_cast<C>(sum);
      } else {
#pragma unroll
        for (int i = 0; i < kPack; ++i) scratch_[(value * kPack + i) * size + at] = sums[value][i];
      }
    }
  }

  /// The block's sums: a warp takes a sum at a time.
  __device__ __forceinline__ void add_up() const {
    const int pitch = plan_.pitch(), size = plan_.lines() * pitch, own = plan_.own_sums();
    const auto span = static_cast<int>(plan_.span());
    const int lane = id_ % kWarp, entries = kValues * place_.channels;
    for (int entry = id_ / kWarp; entry < entries; entry += plan_.threads / kWarp) {
      const int value = entry >= place_.channels ? 1 : 0, channel = entry - value * place_.channels;
      double sum = 0.0;
#pragma unroll 2
      for (int i = lane; i < plan_.lines() * span; i += kWarp) {
        uint32_t within;
        const auto line = static_cast<int>(walk_.by_span.divide(static_cast<uint32_t>(i), within));
        const int place = channel * span + static_cast<int>(within);
        const int column = own == 1 ? place : place / kPack, sub = own == 1 ? 0 : place % kPack;
        sum += static_cast<double>(scratch_[(value * own + sub) * size + line * pitch + column]);
      }
#pragma unroll
      for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
      if (lane == 0) totals_[value * plan_.channels + channel] = sum;
    }
  }

  __device__ __forceinline__ void map() const {
    if (place_.packs == 0) return;
    typename Pass::Parameter parameters[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) Pass::set(parameters[i], finished_[place_.channel(i)]);
#pragma unroll 1
    for (int first = 0; first < place_.packs; first += kBatch) {
      typename Pass::Added added[kBatch];
      int64_t offsets[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        offsets[u] = place_.offset(min(first + u, place_.packs - 1));
        added[u] = pass_.added(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (first + u >= place_.packs) break;
        Values packs[kTensors];
#pragma unroll
        for (int t = 0; t < kTensors; ++t) packs[t] = load_slot(slot(first + u, t));
        pass_.map(offsets[u], packs, parameters, added[u]);
      }
    }
  }

  const Pass& pass_;
  const NormGroupWalk& walk_;
  const NormGroupPlan& plan_;
  const int id_ = static_cast<int>(threadIdx.x);
  NormGroupPlace place_;
  Finished* finished_;  ///< by channel of the group
  double* totals_;      ///< the block's sums: value, channel
  C* scratch_;          ///< its threads'
  Values* kept_;        ///< this thread's first slot
};

template <class Pass>
__global__ void __launch_bounds__(NormGroupPlan::kThreads, 1)
    grouped_kernel(const __grid_constant__ Pass pass, const __grid_constant__ NormGroupWalk walk) {
  extern __shared__ uint4 shared[];
  GroupedBlock<Pass>(pass, walk, shared).run();
}

}  // namespace detail

/// Gives the channels of `tensors` tensors of `view` to blocks, if that is possible and faster. `wide`: they
/// begin at multiples of 16 bytes; `mask`: one is written.
inline NormGroupPlan plan_grouped_tensors(const ChannelView& view, DType dtype, int device, int tensors,
                                          bool wide, bool mask) {
  const cuda::DeviceTraits& traits = cuda::device_traits(device);
  return plan_norm_groups(simplified_norm_view(view), {.processors = traits.processors,
                                                       .shared_bytes = traits.shared_of_block(1),
                                                       .tensors = tensors,
                                                       .element_bytes = static_cast<int>(size_of(dtype)),
                                                       .wide = wide,
                                                       .mask = mask});
}

/// Runs `pass` over the tensors that `plan`, of plan_grouped_tensors, keeps.
template <class Pass>
void run_grouped(const Stream& stream, const NormGroupPlan& plan, const Pass& pass) {
  const auto kernel = detail::grouped_kernel<Pass>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.groups)),
                                dim3(static_cast<unsigned>(plan.threads)), plan.shared_bytes};
  cuda::launch(stream, shape, kernel, pass, NormGroupWalk(plan));
}

}  // namespace sinter::ops
