// Batch normalisation in one kernel that keeps a tensor in shared memory between the sums and the map. For
// .cu files. NormResidentPlan says how the tensor is cut.
//
// Pass, what is computed; elements of type T come in packs of kPack, those of kTensors tensors:
//   source(i)                    tensor i, as const T*
//   Center, center(channel)      what a channel's terms need
//   centers(channel, centers)    the same of the kPack channels from a multiple of it on
//   Beside, beside(offset)       what else the sums read of a pack
//   add(offset, packs, beside, centers, sums)
//                                adds to sums[kValues][kPack]; if kChanges, it changes pack kChanged
//   Known, known(channel, keeps) what finishing a channel reads; keeps: it will be kept, too
//   Finished, finish(known, sums)
//                                what the map needs of a channel
//   Parameter, set(parameter, finished)
//                                the same as the map takes it
//   keep(channel, known, sums)   writes what the op gives of the channel
//   Again, again(offset)         if kTensors > 1, what the map reads of a pack that was not kept
//   restore(again, packs)        makes of that what would have been kept
//   Added, added(offset)         what else the map reads of a pack
//   map(offset, packs, parameters, added)
#pragma once

#include <cooperative_groups.h>

#include <sinter/core/cuda/device/launch_cooperative.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_copies_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_exchange_cuda.h>
#include <sinter/ops/norm/plan/norm_resident_plan.h>

namespace sinter::ops {
namespace detail {

// ---- the kernel

/// What one block does; `streams`: not all of its packs are kept.
template <class Pass, int threads, bool streams>
class ResidentBlock {
 public:
  __device__ ResidentBlock(const Pass& pass, const NormResidentPlan& plan, uint64_t* table, uint4* shared)
      : pass_(pass),
        plan_(plan),
        team_(static_cast<int>(blockIdx.x) / plan.members),
        member_(static_cast<int>(blockIdx.x) - team_ * plan.members),
        entries_(plan.entries()),
        batches_((plan.slots + kBatch - 1) / kBatch),
        panel_step_(plan.channels * plan.inner),
        place_(plan, kPack, member_, id_),
        begin_(plan, place_, kPack),
        table_(table + int64_t{team_} * NormResidentPlan::kTurns * plan.members * entries_),
        finished_(reinterpret_cast<Finished*>(shared)),
        totals_(reinterpret_cast<float*>(shared + plan.channels)),
        scratch_(totals_ + plan.total_floats()),
        kept_(shared + plan.fixed_bytes / sizeof(uint4) + id_) {}

  __device__ __forceinline__ void run() {
    clear_table();
    take_first_in();
    for (int64_t panel = team_; panel < plan_.panels; panel += plan_.teams, ++turn_) {
      typename Pass::Known known;
      if (id_ < plan_.channels) known = pass_.known(panel * plan_.channels + id_, member_ == 0);
      float sums[kValues][kPack] = {};
      sum_up(panel, sums);
      finish(panel, known, sums);
      map_and_take_next(panel);
    }
  }

 private:
  using T = typename Pass::T;
  using Finished = typename Pass::Finished;
  using Values = cuda::Pack<T, Pass::kPack>;
  static constexpr int kPack = Pass::kPack, kTensors = Pass::kTensors, kValues = NormResidentPlan::kValues,
                       kBatch = NormResidentPlan::kBatch;
  static constexpr int kStreamed = 4;  // packs of each tensor that are read at a time
  static_assert(sizeof(Finished) <= NormResidentPlan::kParameterBytes);

  /// Nobody may look at the table before all have cleared their entries of it.
  __device__ __forceinline__ void clear_table() {
    if (plan_.members == 1) return;
#pragma unroll 1
    for (int i = id_; i < NormResidentPlan::kTurns * entries_; i += threads) {
      const int side = i / entries_;
      table_[(side * plan_.members + member_) * entries_ + i - side * entries_] = 0;
    }
    arrival_ = cooperative_groups::this_grid().barrier_arrive();
  }

  /// Calls body<whole>(batch, slots left, their memory) for every batch of slots; all are there if `whole`.
  template <class Body>
  __device__ __forceinline__ void for_batches(const Body& body) const {
    for (int batch = 0; batch < batches_; ++batch) {
      const int slot = batch * kBatch;
      uint4* memory = kept_ + slot * kTensors * threads;
      if (slot + kBatch <= place_.slots) {
        body.template operator()<true>(batch, place_.slots - slot, memory);
      } else {
        body.template operator()<false>(batch, place_.slots - slot, memory);
      }
    }
  }

  /// Calls body<whole>(first, packs left) for the packs behind the slots' ones, kStreamed at a time; all of
  /// these are there if `whole`.
  template <class Body>
  __device__ __forceinline__ void for_streamed(const Body& body) const {
    for (int first = 0; first < place_.streamed; first += kStreamed) {
      const int left = place_.streamed - first;
      if (left >= kStreamed) {
        body.template operator()<true>(first, left);
      } else {
        body.template operator()<false>(first, left);
      }
    }
  }

  __device__ __forceinline__ void take_in(uint4* to, int64_t offset) const {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) copy_to_shared(to + i * threads, pass_.source(i) + offset);
  }
  __device__ __forceinline__ void read(const uint4* from, Values (&packs)[kTensors]) const {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) packs[i] = std::bit_cast<Values>(from[i * threads]);
  }

  __device__ __forceinline__ void take_first_in() const {
    NormResidentWalk walk = begin_;
    const int64_t start = team_ * panel_step_;
    for_batches([&]<bool whole>(int, int left, uint4* memory) {
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int64_t offset = start + walk.next();
        if (whole || u < left) take_in(memory + u * kTensors * threads, offset);
      }
      end_copy_batch();
    });
  }

  __device__ __forceinline__ void find_centers(int64_t channel,
                                               typename Pass::Center (&centers)[kPack]) const {
    if (plan_.inner == 1) return pass_.centers(channel, centers);
    const auto first = pass_.center(channel);
    const auto second = place_.split < kPack ? pass_.center(channel + 1) : first;
#pragma unroll
    for (int i = 0; i < kPack; ++i) centers[i] = i < place_.split ? first : second;
  }

  /// This thread's sums.
  __device__ __forceinline__ void sum_up(int64_t panel, float (&sums)[kValues][kPack]) const {
    const int64_t start = panel * panel_step_;
    typename Pass::Center centers[kPack];
    find_centers(panel * plan_.channels + place_.first_channel, centers);
    if constexpr (streams) sum_streamed(start, centers, sums);
    NormResidentWalk walk = begin_;
    for_batches([&]<bool whole>(int batch, int left, uint4* memory) {
      typename Pass::Beside beside[kBatch];
      int64_t offsets[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        offsets[u] = start + walk.next();
        if (whole || u < left) beside[u] = pass_.beside(offsets[u]);
      }
      wait_for_copies(batches_ - 1 - batch);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (!whole && u >= left) continue;
        uint4* own = memory + u * kTensors * threads;
        Values packs[kTensors];
        read(own, packs);
        pass_.add(offsets[u], packs, beside[u], centers, sums);
        if constexpr (Pass::kChanges) {
          own[Pass::kChanged * threads] = std::bit_cast<uint4>(packs[Pass::kChanged]);
        }
      }
    });
  }

  /// This thread's sums of what is not kept; copies of what is go on meanwhile.
  __device__ __forceinline__ void sum_streamed(int64_t start, const typename Pass::Center (&centers)[kPack],
                                               float (&sums)[kValues][kPack]) const {
    for_streamed([&]<bool whole>(int first, int left) {
      Values packs[kStreamed][kTensors];
      typename Pass::Beside beside[kStreamed];
      int64_t offsets[kStreamed];
#pragma unroll
      for (int u = 0; u < kStreamed; ++u) {
        if (!whole && u >= left) continue;
        offsets[u] = start + begin_.ahead(place_.slots + first + u);
#pragma unroll
        for (int i = 0; i < kTensors; ++i) packs[u][i] = load_pack<kPack>(pass_.source(i), offsets[u]);
        beside[u] = pass_.beside(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < kStreamed; ++u) {
        if (whole || u < left) pass_.add(offsets[u], packs[u], beside[u], centers, sums);
      }
    });
  }

  /// Maps what is not kept, the last first: that is what the L2 cache may have.
  __device__ __forceinline__ void map_streamed(int64_t start,
                                               const typename Pass::Parameter (&parameters)[kPack]) const {
    const int last = place_.slots + place_.streamed - 1;
    for_streamed([&]<bool whole>(int first, int left) {
      typename Pass::Again again[kStreamed];
      typename Pass::Added added[kStreamed];
      int64_t offsets[kStreamed];
#pragma unroll
      for (int u = 0; u < kStreamed; ++u) {
        if (!whole && u >= left) continue;
        offsets[u] = start + begin_.ahead(last - first - u);
        again[u] = pass_.again(offsets[u]);
        added[u] = pass_.added(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < kStreamed; ++u) {
        if (!whole && u >= left) continue;
        Values packs[kTensors];
        pass_.restore(again[u], packs);
        pass_.map(offsets[u], packs, parameters, added[u]);
      }
    });
  }

  /// Finishes the panel's channels from the sums of all threads of the team.
  __device__ __forceinline__ void finish(int64_t panel, const typename Pass::Known& known,
                                         float (&sums)[kValues][kPack]) {
    const float sum = sum_block<kPack, threads>(plan_, place_, sums, scratch_, totals_);
    if (turn_ == 1 && plan_.members > 1) {
      cooperative_groups::this_grid().barrier_wait(std::move(arrival_));
    }
    auto* parts = reinterpret_cast<double*>(scratch_);
    uint64_t* now = table_ + turn_ % NormResidentPlan::kTurns * plan_.members * entries_;
    const int lines = exchange_sums(plan_, member_, sum, now, turn_, parts);
    if (id_ < plan_.channels) {
      double all[kValues] = {};
#pragma unroll
      for (int value = 0; value < kValues; ++value) {
#pragma unroll 4
        for (int line = 0; line < lines; ++line) {
          all[value] += parts[line * entries_ + value * plan_.channels + id_];
        }
      }
      finished_[id_] = pass_.finish(known, all);
      if (member_ == 0) pass_.keep(panel * plan_.channels + id_, known, all);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void map_and_take_next(int64_t panel) const {
    typename Pass::Parameter parameters[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int own = plan_.inner == 1 ? i : i < place_.split ? 0 : 1;
      Pass::set(parameters[i], finished_[place_.first_channel + own]);
    }
    const int64_t start = panel * panel_step_, further = plan_.teams * panel_step_;
    const bool goes_on = panel + plan_.teams < plan_.panels;
    if constexpr (streams) map_streamed(start, parameters);
    NormResidentWalk walk = begin_;
    for_batches([&]<bool whole>(int, int left, uint4* memory) {
      typename Pass::Added added[kBatch];
      int64_t offsets[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        offsets[u] = start + walk.next();
        if (whole || u < left) added[u] = pass_.added(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (!whole && u >= left) continue;
        Values packs[kTensors];
        read(memory + u * kTensors * threads, packs);
        pass_.map(offsets[u], packs, parameters, added[u]);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (goes_on && (whole || u < left)) take_in(memory + u * kTensors * threads, offsets[u] + further);
      }
      end_copy_batch();
    });
  }

  const Pass& pass_;
  const NormResidentPlan& plan_;
  const int id_ = static_cast<int>(threadIdx.x);
  int team_, member_;
  int entries_;  ///< sums of a panel
  int batches_;
  int64_t panel_step_;
  NormResidentPlace place_;
  NormResidentWalk begin_;
  uint64_t* table_;     ///< the team's
  Finished* finished_;  ///< by channel of the panel
  float *totals_, *scratch_;
  uint4* kept_;  ///< this thread's first slot
  uint32_t turn_ = 1;
  unsigned arrival_ = 0;
};

template <class Pass, int threads, bool streams>
__global__ void __launch_bounds__(threads, NormResidentPlan::kThreads / threads)
    resident_kernel(Pass pass, NormResidentPlan plan, uint64_t* table) {
  extern __shared__ uint4 shared[];
  ResidentBlock<Pass, threads, streams>(pass, plan, table, shared).run();
}

}  // namespace detail

/// What a GPU leaves room for; no blocks where they cannot wait for each other.
inline NormRoom norm_room(int device, int tensors, size_t element_bytes) {
  const cuda::DeviceTraits& traits = cuda::device_traits(device);
  return {.processors = traits.cooperative ? traits.processors : 0,
          .shared_bytes = traits.shared_of_block(1),
          .shared_of_half = traits.shared_of_block(2),
          .tensors = tensors,
          .element_bytes = static_cast<int>(element_bytes)};
}

/// Keeps `tensors` tensors of `view` on chip, if they fit there.
inline NormResidentPlan plan_resident_tensors(const ChannelView& view, DType dtype, int device, int tensors) {
  if (dtype == DType::kFloat64) return {};
  return plan_norm_resident(simplified_norm_view(view), norm_room(device, tensors, size_of(dtype)));
}

namespace detail {

template <class Pass, int threads, bool streams>
void launch_resident(const Stream& stream, const NormResidentPlan& plan, const Pass& pass, uint64_t* table) {
  const auto kernel = resident_kernel<Pass, threads, streams>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())), dim3(threads), plan.shared_bytes};
  if (plan.members == 1) {
    cuda::launch(stream, shape, kernel, pass, plan, table);
  } else {
    cuda::launch_cooperative(stream, shape, kernel, pass, plan, table);
  }
}

}  // namespace detail

/// Runs `pass` over the tensors that `plan`, of plan_resident_tensors, keeps. Workspace: the plan's table.
template <class Pass>
void run_resident(const Stream& stream, const NormResidentPlan& plan, const Pass& pass, void* workspace) {
  auto* table = static_cast<uint64_t*>(workspace);
  if (plan.threads == NormResidentPlan::kHalfThreads) {
    detail::launch_resident<Pass, NormResidentPlan::kHalfThreads, false>(stream, plan, pass, table);
    return;
  }
  if constexpr (Pass::kTensors > 1) {  // of one tensor no rows are streamed
    if (plan.streamed > 0) {
      detail::launch_resident<Pass, NormResidentPlan::kThreads, true>(stream, plan, pass, table);
      return;
    }
  }
  detail::launch_resident<Pass, NormResidentPlan::kThreads, false>(stream, plan, pass, table);
}

}  // namespace sinter::ops
