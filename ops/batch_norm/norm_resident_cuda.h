// Batch normalisation in one kernel that keeps a tensor in shared memory between the sums and the map. For .cu
// files. NormResidentPlan says how the tensor is cut.
//
// Pass, what is computed; elements of type T come in packs of kPack, those of kTensors tensors:
//   source(i)                          tensor i, as const T*
//   Center, center(channel), and centers(channel, centers), those of kPack channels from a multiple of it on
//   Beside, beside(offset)             what else the sums read of a pack
//   add(offset, packs, beside, centers, sums)       adds to sums[kValues][kPack]; may change packs
//   Known, known(channel, keeps)       what finishing a channel reads; keeps: it will be kept too
//   Finished, finish(known, sums)      what the map needs of a channel, from its double sums; a Parameter's `main`
//   keep(channel, known, sums)         writes what the op gives of the channel
//   Added, added(offset)               what else the map reads of a pack
//   map(offset, packs, parameters, added)
#pragma once
#define NORM_STAMPS 1

#include <cooperative_groups.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/cuda/launch_cooperative.h>
#include <sinter/ops/batch_norm/norm_kernels_cuda.h>
#include <sinter/ops/batch_norm/norm_resident_plan.h>

namespace sinter::ops {
namespace detail {

// ---- copies into shared memory, which run on while the thread does

__device__ __forceinline__ void copy_to_shared(uint4* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void end_copy_batch() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the last `pending` batches of this thread's copies are there.
__device__ __forceinline__ void wait_for_copies(int pending) {
#define SINTER_WAIT(n)                                     \
  case n:                                                  \
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

// ---- sums that blocks exchange: each comes with the number of its turn, so that its reader knows it is there

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
  constexpr int in_flight = 16;
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

#ifdef NORM_STAMPS
static __device__ long long stamps[1024][16];
#define STAMP(k) do { if (id == 0 && turn == 1) { stamps[blockIdx.x][k] = clock64(); } } while (0)
__device__ __forceinline__ long long global_time() { long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
#define STAMP_TIME(k) do { if (id == 0) { stamps[blockIdx.x][k] = global_time(); } } while (0)
#else
#define STAMP(k)
#define STAMP_TIME(k)
#endif

/// Where a thread stands.
struct ResidentPlace {
  int column, lane, member, team;
  int first_channel;  ///< of the thread's pack, in its panel
  int split;          ///< elements of the pack that belong to it; those behind, to the next
  int slots;          ///< that hold a pack

  __device__ ResidentPlace(const NormResidentPlan& plan, int pack) {
    const int id = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
    lane = id / plan.columns;
    column = id - lane * plan.columns;
    team = block / plan.members;
    member = block - team * plan.members;
    const int step = plan.members * plan.lanes, left = static_cast<int>(plan.rows) - first_row(plan);
    slots = lane < plan.lanes && left > 0 ? (left + step - 1) / step : 0;
    first_channel = column * pack;
    split = pack;
    if (plan.inner != 1) {
      const auto inner = static_cast<int>(plan.inner);
      first_channel = plan.channels == 1 ? 0 : column * pack / inner;
      if (plan.channels != 1) split = min(pack, (first_channel + 1) * inner - column * pack);
    }
  }
  __device__ int first_row(const NormResidentPlan& plan) const { return member * plan.lanes + lane; }
};

/// Goes through a thread's packs, slot by slot.
class ResidentWalk {
 public:
  __device__ ResidentWalk(const NormResidentPlan& plan, const ResidentPlace& place, int pack)
      : pieces_(plan.pieces) {
    const int row = place.first_row(plan), step = plan.members * plan.lanes;
    const int image = row / pieces_, images = step / pieces_, piece = plan.columns * pack;
    piece_ = row - image * pieces_;
    step_pieces_ = step - images * pieces_;
    offset_ = image * plan.width + piece_ * piece + place.column * pack;
    step_ = images * plan.width + step_pieces_ * piece;
    wrap_ = plan.width - int64_t{pieces_} * piece;
  }
  /// The element at which the pack begins, of panel 0; steps on to the next slot.
  __device__ int64_t next() {
    const int64_t now = offset_;
    offset_ += step_;
    piece_ += step_pieces_;
    if (piece_ >= pieces_) {
      piece_ -= pieces_;
      offset_ += wrap_;
    }
    return now;
  }

 private:
  int64_t offset_, step_, wrap_;
  int pieces_, piece_, step_pieces_;
};

/// Adds a block's sums up: thread k * channels + c < kValues * channels gets value k of the panel's channel c.
template <int pack, int threads>
__device__ __forceinline__ float sum_block(const NormResidentPlan& plan, const ResidentPlace& place,
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

template <class Pass, int threads, int per_processor>
__global__ void __launch_bounds__(threads, per_processor)
    resident_kernel(Pass pass, NormResidentPlan plan, uint64_t* table) {
  using T = typename Pass::T;
  constexpr int pack = Pass::kPack, tensors = Pass::kTensors, values = NormResidentPlan::kValues,
                width = NormResidentPlan::kBatch;
  using Values = cuda::Pack<T, pack>;
  static_assert(sizeof(typename Pass::Finished) <= NormResidentPlan::kParameterBytes);
  extern __shared__ uint4 shared[];
  const int id = static_cast<int>(threadIdx.x), entries = values * plan.channels;
  const ResidentPlace place(plan, pack);
  auto* parameters_of = reinterpret_cast<typename Pass::Finished*>(shared);
  auto* totals = reinterpret_cast<float*>(shared + plan.channels);
  float* scratch = totals + plan.total_floats();
  auto* parts = reinterpret_cast<double*>(scratch);  // in the same place, later
  uint4* kept = shared + plan.fixed_bytes / sizeof(uint4) + id;
  uint32_t turn = 1;
  STAMP_TIME(14);
  STAMP(0);
  const auto grid = cooperative_groups::this_grid();
  uint64_t* team_table = table + int64_t{place.team} * 2 * plan.members * entries;
  unsigned arrival = 0;
  if (plan.members > 1) {
    for (int i = id; i < 2 * entries; i += threads) {
      const int side = i < entries ? 0 : 1;
      team_table[(side * plan.members + place.member) * entries + i - side * entries] = 0;
    }
    arrival = grid.barrier_arrive();
  }
  STAMP(1);

  const int batches = (plan.slots + width - 1) / width;
  const int64_t panel_step = plan.channels * plan.inner;
  const ResidentWalk begin(plan, place, pack);
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
    ResidentWalk walk = begin;
    const int64_t start = place.team * panel_step;
    for_batches([&]<bool whole>(int, int left, uint4* memory) {
#pragma unroll
      for (int u = 0; u < width; ++u) {
        const int64_t offset = start + walk.next();
        if (whole || u < left) take_in(memory + u * tensors * threads, offset);
      }
      end_copy_batch();
    });
  }
  STAMP(2);

  for (int64_t panel = place.team; panel < plan.panels; panel += plan.teams, ++turn) {
    const int64_t start = panel * panel_step, channel = panel * plan.channels;
    const bool finishes = id < plan.channels, keeps = place.member == 0;
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
      ResidentWalk walk = begin;
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
      STAMP(3);
      const float sum = sum_block<pack, threads>(plan, place, sums, scratch, totals);
      STAMP(4);
      // The channel's total, from all members in an order of its own.
      int groups = 1;
      if (plan.members == 1) {
        __syncthreads();
        if (id < entries) parts[id] = static_cast<double>(sum);
      } else {
        if (turn == 1) grid.barrier_wait(std::move(arrival));
        STAMP(5);
        uint64_t* now = team_table + (turn & 1) * plan.members * entries;
        if (id < entries) post_sum(now + place.member * entries + id, sum, turn);
        groups = min(threads / entries, plan.members);
        const int group = id / entries, entry = id - group * entries;
        const double part =
            group < groups ? collect_sums(now + entry, group, plan.members, groups, entries, turn) : 0.0;
        STAMP(6);
        __syncthreads();
        if (group < groups) parts[id] = part;
      }
      __syncthreads();
      if (finishes) {
        double sums_of_channel[values];
#pragma unroll
        for (int value = 0; value < values; ++value) {
          sums_of_channel[value] = 0.0;
#pragma unroll 4
          for (int group = 0; group < groups; ++group) {
            sums_of_channel[value] += parts[group * entries + value * plan.channels + id];
          }
        }
        parameters_of[id] = pass.finish(known, sums_of_channel);
        if (keeps) pass.keep(channel + id, known, sums_of_channel);
      }
      __syncthreads();
      STAMP(7);
    }
    typename Pass::Parameter parameters[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const int own = plan.inner == 1 ? i : i < place.split ? 0 : 1;
      parameters[i].main = parameters_of[place.first_channel + own];
    }
    const bool goes_on = panel + plan.teams < plan.panels;
    const int64_t further = plan.teams * panel_step;
    ResidentWalk walk = begin;
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
    STAMP(8);
  }
  STAMP_TIME(15);
}

}  // namespace detail

#ifdef NORM_STAMPS
static void dump_stamps(const char* what, int blocks) {
  static long long host[1024][16];
  cudaDeviceSynchronize();
  cudaMemcpyFromSymbol(host, detail::stamps, sizeof(host));
  double mean[16] = {}, most[16] = {};
  long long first = host[0][14], last_start = host[0][14], first_end = host[0][15], last = host[0][15];
  for (int b = 0; b < blocks; ++b) {
    for (int k = 1; k <= 8; ++k) {
      const double d = double(host[b][k] - host[b][0]);
      mean[k] += d / blocks;
      most[k] = std::max(most[k], d);
    }
    first = std::min(first, host[b][14]); last_start = std::max(last_start, host[b][14]);
    first_end = std::min(first_end, host[b][15]); last = std::max(last, host[b][15]);
  }
  std::printf("      %s cycles mean(max): issue %.0f(%.0f) arrive %.0f(%.0f) sums %.0f(%.0f) block %.0f(%.0f) wait %.0f(%.0f) collect %.0f(%.0f) finish %.0f(%.0f) map %.0f(%.0f); ns: starts within %lld, ends %lld..%lld\n",
    what, mean[1], most[1], mean[2], most[2], mean[3], most[3], mean[4], most[4], mean[5], most[5], mean[6], most[6], mean[7], most[7], mean[8], most[8], last_start - first, first_end - first, last - first);
}
#endif

namespace detail {

inline int last_blocks = 0;
inline int env_or(const char* name, int other) {
  const char* text = std::getenv(name);
  return text == nullptr ? other : std::atoi(text);
}

template <class Pass, int threads, int per_processor>
bool run_resident_with(const Stream& stream, const ChannelView& view, const Pass& pass, void* workspace) {
  const NormRoom room{.blocks = env_or("SINTER_NORM_SM", cuda::device_traits(stream.device.index).processors) * per_processor,
                      .threads = threads,
                      .shared_bytes = (233472 / per_processor) - 1024,
                      .tensors = Pass::kTensors,
                      .element_bytes = static_cast<int>(sizeof(typename Pass::T))};
  const NormResidentPlan plan = plan_norm_resident(view, room, env_or("SINTER_NORM_Q", 8));
  if (env_or("SINTER_NORM_SAY", 0) != 0) {
    std::fprintf(stderr, "  panels %ld channels %d columns %d lanes %d pieces %d rows %ld members %d teams %d slots %d shared %zu\n",
                 plan.panels, plan.channels, plan.columns, plan.lanes, plan.pieces, plan.rows, plan.members, plan.teams,
                 plan.slots, plan.shared_bytes);
  }
  if (!plan.fits()) return false;
  last_blocks = static_cast<int>(plan.blocks());
  const auto kernel = resident_kernel<Pass, threads, per_processor>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(plan.shared_bytes)),
              "cudaFuncSetAttribute");
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())), dim3(threads), plan.shared_bytes};
  auto* table = static_cast<uint64_t*>(workspace);
  if (plan.members == 1) {
    cuda::launch(stream, shape, kernel, pass, plan, table);
  } else {
    cuda::launch_cooperative(stream, shape, kernel, pass, plan, table);
  }
  return true;
}

}  // namespace detail

template <class Pass>
bool run_resident(const Stream& stream, const ChannelView& view, const Pass& pass, void* workspace) {
  switch (detail::env_or("SINTER_NORM_V", 0)) {
    case 0:
      return detail::run_resident_with<Pass, 512, 1>(stream, view, pass, workspace);
    case 1:
      return detail::run_resident_with<Pass, 768, 1>(stream, view, pass, workspace);
    case 2:
      return detail::run_resident_with<Pass, 256, 2>(stream, view, pass, workspace);
    case 3:
      return detail::run_resident_with<Pass, 384, 2>(stream, view, pass, workspace);
    case 4:
      return detail::run_resident_with<Pass, 1024, 1>(stream, view, pass, workspace);
    default:
      return false;
  }
}

}  // namespace sinter::ops
