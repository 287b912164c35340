// Batch normalisation in one kernel that keeps a tensor in shared memory between the sums and the map. For
// .cu files. NormResidentPlan says how the tensor is cut.
//
// Pass, what is computed; elements of type T come in packs of kPack, those of kTensors tensors:
//   source(i)                          tensor i, as const T*
//   Center, center(channel), and centers(channel, centers), those of kPack channels from a multiple of it on
//   Beside, beside(offset)             what else the sums read of a pack
//   add(offset, packs, beside, centers, sums)       adds to sums[kValues][kPack]; may change packs
//   Known, known(channel, keeps)       what finishing a channel reads; keeps: it will be kept too
//   Finished, finish(known, sums)      what the map needs of a channel, from its double sums; a Parameter's
//   `main` keep(channel, known, sums)         writes what the op gives of the channel Added, added(offset)
//   what else the map reads of a pack map(offset, packs, parameters, added)
#pragma once

#include <cooperative_groups.h>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/cuda/launch_cooperative.h>
#include <sinter/ops/batch_norm/norm_cuda.h>
#include <sinter/ops/batch_norm/norm_kernels_cuda.h>
#include <sinter/ops/batch_norm/norm_resident_plan.h>

namespace sinter::ops {
namespace detail {

// ---- copies into shared memory, which run on while the thread does

__device__ __forceinline__ void copy_to_shared(uint4* to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
__device__ __forceinline__ void end_copy_batch() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the last `pending` batches of this thread's copies are there.
__device__ __forceinline__ void wait_for_copies(int pending) {
#define SINTER_WAIT(n)                                           \
  case n:                                                        \
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); \
    break;
  switch (pending) {
    SINTER_WAIT(7)
    SINTER_WAIT(6)
    SINTER_WAIT(5)
    SINTER_WAIT(4)
    SINTER_WAIT(3)
    SINTER_WAIT(2)
    SINTER_WAIT(1)
    default:
      asm volatile("cp.async.wait_all;" ::: "memory");
  }
#undef SINTER_WAIT
}

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

// ---- the kernel

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

template <class Pass, int threads>
__global__ void __launch_bounds__(threads, NormResidentPlan::kThreads / threads)
    resident_kernel(Pass pass, NormResidentPlan plan, uint64_t* table) {
  using T = typename Pass::T;
  constexpr int pack = Pass::kPack, tensors = Pass::kTensors, values = NormResidentPlan::kValues,
                width = NormResidentPlan::kBatch, turns = NormResidentPlan::kTurns;
  using Values = cuda::Pack<T, pack>;
  static_assert(sizeof(typename Pass::Finished) <= NormResidentPlan::kParameterBytes);
  extern __shared__ uint4 shared[];
  const int id = static_cast<int>(threadIdx.x), channels = plan.channels;
  const int team = static_cast<int>(blockIdx.x) / plan.members;
  const int member = static_cast<int>(blockIdx.x) - team * plan.members;
  const NormResidentPlace place(plan, pack, member, id);
  auto* parameters_of = reinterpret_cast<typename Pass::Finished*>(shared);
  auto* totals = reinterpret_cast<float*>(shared + channels);
  float* scratch = totals + plan.total_floats();
  auto* parts = reinterpret_cast<double*>(scratch);  // in the same place, later
  uint4* kept = shared + plan.fixed_bytes / sizeof(uint4) + id;
  uint32_t turn = 1;
  const auto grid = cooperative_groups::this_grid();
  const int entries = values * channels;
  uint64_t* team_table = table + int64_t{team} * turns * plan.members * entries;
  unsigned arrival = 0;
  if (plan.members > 1) {
    // Nobody may look at the table before all have cleared their entries of it.
#pragma unroll 1
    for (int i = id; i < turns * entries; i += threads) {
      const int side = i / entries;
      team_table[(side * plan.members + member) * entries + i - side * entries] = 0;
    }
    arrival = grid.barrier_arrive();
  }

  const int batches = (plan.slots + width - 1) / width;
  const int64_t panel_step = channels * plan.inner;
  const NormResidentWalk begin(plan, place, pack);
  const auto take_in = [&](uint4* to, int64_t offset) {
#pragma unroll
    for (int i = 0; i < tensors; ++i) copy_to_shared(to + i * threads, pass.source(i) + offset);
  };
  // Calls body<whole>(slot, its memory) for every batch of slots; all are there if `whole`.
  const auto for_batches = [&](const auto& body) {
    for (int batch = 0; batch < batches; ++batch) {
      const int slot = batch * width;
      uint4* memory = kept + slot * tensors * threads;
      if (slot + width <= place.slots) {
        body.template operator()<true>(batch, place.slots - slot, memory);
      } else {
        body.template operator()<false>(batch, place.slots - slot, memory);
      }
    }
  };
  {
    NormResidentWalk walk = begin;
    const int64_t start = team * panel_step;
    for_batches([&]<bool whole>(int, int left, uint4* memory) {
#pragma unroll
      for (int u = 0; u < width; ++u) {
        const int64_t offset = start + walk.next();
        if (whole || u < left) take_in(memory + u * tensors * threads, offset);
      }
      end_copy_batch();
    });
  }

  for (int64_t panel = team; panel < plan.panels; panel += plan.teams, ++turn) {
    const int64_t start = panel * panel_step, channel = panel * channels;
    const bool finishes = id < channels, keeps = member == 0;
    {
      typename Pass::Known known;
      if (finishes) known = pass.known(channel + id, keeps);
      float sums[values][pack] = {};
      typename Pass::Center centers[pack];
      if (plan.inner == 1) {
        pass.centers(channel + place.first_channel, centers);
      } else {
        const auto first = pass.center(channel + place.first_channel);
        const auto second = place.split < pack ? pass.center(channel + place.first_channel + 1) : first;
#pragma unroll
        for (int i = 0; i < pack; ++i) centers[i] = i < place.split ? first : second;
      }
      NormResidentWalk walk = begin;
      for_batches([&]<bool whole>(int batch, int left, uint4* memory) {
        typename Pass::Beside beside[width];
        int64_t offsets[width];
#pragma unroll
        for (int u = 0; u < width; ++u) {
          offsets[u] = start + walk.next();
          if (whole || u < left) beside[u] = pass.beside(offsets[u]);
        }
        wait_for_copies(batches - 1 - batch);
#pragma unroll
        for (int u = 0; u < width; ++u) {
          if (!whole && u >= left) continue;
          Values packs[tensors];
#pragma unroll
          for (int i = 0; i < tensors; ++i) {
            packs[i] = std::bit_cast<Values>(memory[(u * tensors + i) * threads]);
          }
          pass.add(offsets[u], packs, beside[u], centers, sums);
          if constexpr (Pass::kChanges) {
            memory[(u * tensors + Pass::kChanged) * threads] = std::bit_cast<uint4>(packs[Pass::kChanged]);
          }
        }
      });
      const float sum = sum_block<pack, threads>(plan, place, sums, scratch, totals);
      if (turn == 1 && plan.members > 1) grid.barrier_wait(std::move(arrival));
      uint64_t* now = team_table + turn % turns * plan.members * entries;
      const int lines = exchange_sums(plan, member, sum, now, turn, parts);
      if (finishes) {
        double all[values] = {};
#pragma unroll
        for (int value = 0; value < values; ++value) {
#pragma unroll 4
          for (int line = 0; line < lines; ++line) {
            all[value] += parts[line * entries + value * channels + id];
          }
        }
        parameters_of[id] = pass.finish(known, all);
        if (keeps) pass.keep(channel + id, known, all);
      }
      __syncthreads();
    }
    typename Pass::Parameter parameters[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const int own = plan.inner == 1 ? i : i < place.split ? 0 : 1;
      parameters[i].main = parameters_of[place.first_channel + own];
    }
    const bool goes_on = panel + plan.teams < plan.panels;
    const int64_t further = plan.teams * panel_step;
    NormResidentWalk walk = begin;
    for_batches([&]<bool whole>(int, int left, uint4* memory) {
      typename Pass::Added added[width];
      int64_t offsets[width];
#pragma unroll
      for (int u = 0; u < width; ++u) {
        offsets[u] = start + walk.next();
        if (whole || u < left) added[u] = pass.added(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < width; ++u) {
        if (!whole && u >= left) continue;
        Values packs[tensors];
#pragma unroll
        for (int i = 0; i < tensors; ++i) {
          packs[i] = std::bit_cast<Values>(memory[(u * tensors + i) * threads]);
        }
        pass.map(offsets[u], packs, parameters, added[u]);
      }
      if (goes_on) {
#pragma unroll
        for (int u = 0; u < width; ++u) {
          if (whole || u < left) take_in(memory + u * tensors * threads, offsets[u] + further);
        }
      }
      end_copy_batch();
    });
  }
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

/// Workspace of run_resident.
inline size_t resident_bytes(const NormProblem& problem, int tensors) {
  if (problem.dtype == DType::kFloat64) return 0;
  const NormRoom room = norm_room(problem.device, tensors, size_of(problem.dtype));
  return static_cast<size_t>(plan_norm_resident(simplified_norm_view(problem.view), room).table_size()) *
         sizeof(uint64_t);
}

/// Runs `pass` over a tensor if that can be kept on chip. Else false, and nothing is launched.
template <class Pass>
bool run_resident(const Stream& stream, const ChannelView& view, const Pass& pass, void* workspace) {
  const NormRoom room = norm_room(stream.device.index, Pass::kTensors, sizeof(typename Pass::T));
  const NormResidentPlan plan = plan_norm_resident(simplified_norm_view(view), room);
  if (!plan.fits()) return false;
  const auto launch = [&](auto* kernel) {
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(plan.shared_bytes)),
                "cudaFuncSetAttribute");
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())),
                                  dim3(static_cast<unsigned>(plan.threads)), plan.shared_bytes};
    auto* table = static_cast<uint64_t*>(workspace);
    if (plan.members == 1) {
      cuda::launch(stream, shape, kernel, pass, plan, table);
    } else {
      cuda::launch_cooperative(stream, shape, kernel, pass, plan, table);
    }
  };
  if (plan.threads == NormResidentPlan::kThreads) {
    launch(detail::resident_kernel<Pass, NormResidentPlan::kThreads>);
  } else {
    launch(detail::resident_kernel<Pass, NormResidentPlan::kHalfThreads>);
  }
  return true;
}

}  // namespace sinter::ops
