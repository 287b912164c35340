// Batch normalisation in one kernel that keeps a tensor in shared memory between the sums and the map. For .cu
// files. NormResidentPlan says how the tensor is cut.
//
// Pass, what is computed; elements of type T come in packs of kPack, those of kTensors tensors:
//   source(i)                          tensor i, as const T*
//   Center, center(channel), and centers(channel, centers), those of kPack channels from a multiple of it on
//   kMasked, bits(offset)              the sums take bits of a mask, those of a pack
//   add(offset, packs, bits, centers, sums)         adds to sums[kValues][kPack]; kChanges: changes pack kChanged
//   Known, known(channel, keeps)       what finishing a channel reads; keeps: it will be kept too
//   Finished, finish(known, sums)      what the map needs of a channel, from its double sums; a Parameter's `main`
//   keep(channel, known, sums)         writes what the op gives of the channel
//   Added, added(offset)               what else the map reads of a pack, of kMapWidth packs at a time
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
__device__ __forceinline__ void end_copies() {
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

// ---- sums that blocks exchange: each pair comes with the number of its turn, so that its reader knows that it
// is there

struct PostedSums {
  float first, second;
  uint32_t turn;
};

/// In one access of 16 bytes.
__device__ __forceinline__ void post_sums(uint4* entry, float first, float second, uint32_t turn) {
  asm volatile(
      "{\n"
      ".reg .b64 low, high;\n"
      ".reg .b128 all;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %3};\n"
      "mov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n"
      "}\n" ::"l"(entry),
      "r"(__float_as_uint(first)), "r"(__float_as_uint(second)), "r"(turn)
      : "memory");
}
__device__ __forceinline__ PostedSums look_at_sums(const uint4* entry) {
  uint64_t low, high;
  asm volatile(
      "{\n"
      ".reg .b128 all;\n"
      "ld.relaxed.gpu.global.b128 all, [%2];\n"
      "mov.b128 {%0, %1}, all;\n"
      "}\n"
      : "=l"(low), "=l"(high)
      : "l"(entry)
      : "memory");
  return {__uint_as_float(static_cast<uint32_t>(low)), __uint_as_float(static_cast<uint32_t>(low >> 32)),
          static_cast<uint32_t>(high)};
}

/// Adds entries from[i * step], first <= i < count in steps of `stride`, to the sums, once they are those of
/// `turn`.
__device__ __forceinline__ void collect_sums(const uint4* from, int first, int count, int stride, int step,
                                             uint32_t turn, double (&sums)[2]) {
  constexpr int in_flight = 8;
  for (int i = first; i < count; i += in_flight * stride) {
    PostedSums posted[in_flight];
    bool all = false;
    while (!all) {
      all = true;
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int at = i + k * stride;
        posted[k] = at < count ? look_at_sums(from + at * step) : PostedSums{0.0F, 0.0F, turn};
      }
#pragma unroll
      for (int k = 0; k < in_flight; ++k) all &= posted[k].turn == turn;
    }
#pragma unroll
    for (int k = 0; k < in_flight; ++k) {
      sums[0] += static_cast<double>(posted[k].first);
      sums[1] += static_cast<double>(posted[k].second);
    }
  }
}

// ---- barriers between the two kinds of threads

__device__ __forceinline__ void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void pass_by(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
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

/// Leaves a worker's sums in `scratch`: of a warp's columns, or of the one or two channels of the thread's pack.
template <int pack, int workers>
__device__ __forceinline__ void leave_sums(const NormResidentPlan& plan, const NormResidentPlace& place,
                                           float (&sums)[NormResidentPlan::kValues][pack], float* scratch) {
  constexpr int values = NormResidentPlan::kValues;
  const int id = static_cast<int>(threadIdx.x), columns = plan.columns;
  if (plan.inner == 1) {
    for (int step = kWarp / 2; step >= columns; step /= 2) {
#pragma unroll
      for (int i = 0; i < values * pack; ++i) {
        sums[i / pack][i % pack] += __shfl_xor_sync(~0u, sums[i / pack][i % pack], step);
      }
    }
    if (id % kWarp < columns) {
      float* own = scratch + id / kWarp * values * pack * columns + id % kWarp;
#pragma unroll
      for (int i = 0; i < values * pack; ++i) own[i * columns] = sums[i / pack][i % pack];
    }
    return;
  }
#pragma unroll
  for (int value = 0; value < values; ++value) {
    float first = 0.0F, second = 0.0F;
#pragma unroll
    for (int i = 0; i < pack; ++i) (i < place.split ? first : second) += sums[value][i];
    scratch[2 * value * workers + id] = first;
    scratch[(2 * value + 1) * workers + id] = second;
  }
}

/// Adds up what the workers have left: value k of channel c goes to totals[k * channels + c]. By the clerks,
/// thread `id` of them.
template <int pack, int workers, int clerks>
__device__ __forceinline__ void add_left_sums(const NormResidentPlan& plan, int id, const float* scratch,
                                              float* totals) {
  constexpr int values = NormResidentPlan::kValues, warps = workers / kWarp;
  const int entries = values * plan.channels;
  if (plan.inner == 1) {
    for (int entry = id; entry < entries; entry += clerks) {
      const int value = entry / plan.channels, channel = entry - value * plan.channels;
      const float* own = scratch + (value * pack + channel % pack) * plan.columns + channel / pack;
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < warps; ++i) sum += own[i * values * pack * plan.columns];
      totals[entry] = sum;
    }
    return;
  }
  const int inner = plan.channels == 1 ? plan.columns * pack : static_cast<int>(plan.inner);
  for (int entry = id / kWarp; entry < entries; entry += clerks / kWarp) {
    const int value = entry / plan.channels, channel = entry - value * plan.channels;
    const int begin = channel * inner / pack, end = ((channel + 1) * inner + pack - 1) / pack;
    float sum = 0.0F;
    for (int column = begin + id % kWarp; column < end; column += kWarp) {
      const bool starts_before = column * pack < channel * inner;
      const float* own = scratch + (2 * value + (starts_before ? 1 : 0)) * workers + column;
#pragma unroll 8
      for (int lane = 0; lane < plan.lanes; ++lane) sum += own[lane * plan.columns];
    }
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    if (id % kWarp == 0) totals[entry] = sum;
  }
}

/// Workers take panels in, sum up and map. Clerks, the threads behind them, exchange the sums of a panel with
/// the other members of the team and finish its channels, while the workers sum the next panel up.
template <class Pass, int workers, int clerks>
__global__ void __launch_bounds__(workers + clerks, 1)
    resident_kernel(Pass pass, NormResidentPlan plan, uint4* table) {
  using T = typename Pass::T;
  using Values = cuda::Pack<T, Pass::kPack>;
  using Finished = typename Pass::Finished;
  constexpr int pack = Pass::kPack, tensors = Pass::kTensors, values = NormResidentPlan::kValues,
                group = NormResidentPlan::kCopyGroup, turns = NormResidentPlan::kTurns, all = workers + clerks;
  constexpr int kSumsLeft = 1, kFinished = 3, kClerks = 5;  // barriers; the first two of every other panel
  static_assert(sizeof(Finished) <= NormResidentPlan::kParameterBytes);
  extern __shared__ uint4 shared[];
  const int id = static_cast<int>(threadIdx.x), channels = plan.channels;
  const int team = static_cast<int>(blockIdx.x) / plan.members;
  const int member = static_cast<int>(blockIdx.x) - team * plan.members;
  const int panels = static_cast<int>((plan.panels - team + plan.teams - 1) / plan.teams);  // of the team
  const int64_t panel_step = plan.channels * plan.inner, first_panel = team * panel_step,
                team_step = plan.teams * panel_step;
  auto* finished = reinterpret_cast<Finished*>(shared);  // of every other panel
  auto* totals = reinterpret_cast<float*>(shared + 2 * channels);
  float* scratch = totals + plan.total_floats();
  const int scratch_floats = plan.scratch_floats(workers);
  uint8_t* bits_of = reinterpret_cast<uint8_t*>(shared) + plan.shared_bytes - plan.bits_bytes + id;
  const int turn = 1;
  (void)turn;
  STAMP_TIME(14);
  STAMP(0);

  // Nobody may look at the table before all have cleared their entries of it.
  const auto grid = cooperative_groups::this_grid();
  unsigned arrival = 0;
  uint4* team_table = table + int64_t{team} * turns * plan.members * channels;
  if (plan.members > 1) {
    for (int i = id; i < turns * channels; i += all) {
      const int side = i / channels;
      team_table[(side * plan.members + member) * channels + i - side * channels] = uint4{0, 0, 0, 0};
    }
    arrival = grid.barrier_arrive();
  }
  STAMP(1);

  if (id >= workers) {
    const int clerk = id - workers;
    int groups = 1;  // of lanes that share a channel's members
    while (groups < kWarp && 2 * groups * channels <= clerks && groups < plan.members) groups *= 2;
    const int group = clerk % groups, own = clerk / groups;
    if (plan.members > 1) grid.barrier_wait(std::move(arrival));
    for (int panel = 0; panel < panels; ++panel) {
      const int64_t channel = (int64_t{panel} * plan.teams + team) * channels + own;
      typename Pass::Known known;
      if (own < channels) known = pass.known(channel, member == 0);
      wait_at(kSumsLeft + panel % 2, all);
      add_left_sums<pack, workers, clerks>(plan, clerk, scratch + panel % 2 * scratch_floats, totals);
      wait_at(kClerks, clerks);
      double sums[values] = {};
      if (plan.members == 1) {
        if (own < channels) {
#pragma unroll
          for (int value = 0; value < values; ++value) {
            sums[value] = static_cast<double>(totals[value * channels + own]);
          }
        }
      } else {
        const auto now = static_cast<uint32_t>(panel) + 1;
        uint4* side = team_table + now % turns * plan.members * channels;
        if (clerk < channels) {
          post_sums(side + member * channels + clerk, totals[clerk], totals[channels + clerk], now);
        }
        if (own < channels) collect_sums(side + own, group, plan.members, groups, channels, now, sums);
        for (int step = groups / 2; step > 0; step /= 2) {
#pragma unroll
          for (int value = 0; value < values; ++value) sums[value] += __shfl_xor_sync(~0u, sums[value], step);
        }
      }
      const bool finishes = own < channels && group == 0;
      if (finishes) finished[panel % 2 * channels + own] = pass.finish(known, sums);
      pass_by(kFinished + panel % 2, all);
      if (finishes && member == 0) pass.keep(channel, known, sums);
    }
    return;
  }

  const NormResidentPlace place(plan, pack, member, id);
  const int groups_of_copies = plan.slots / group + 1, stage_packs = plan.slots * tensors * workers;
  uint4* kept = shared + plan.fixed_bytes / sizeof(uint4) + id;
  const NormResidentWalk begin(plan, place, pack);
  const auto take_in = [&](uint4* to, int64_t offset) {
#pragma unroll
    for (int i = 0; i < tensors; ++i) copy_to_shared(to + i * workers, pass.source(i) + offset);
  };
  for (int panel = 0; panel < plan.stages; ++panel) {
    NormResidentWalk walk = begin;
    const int64_t start = first_panel + panel * team_step;
    uint4* memory = kept + panel * stage_packs;
    const int slots = panel < panels ? place.slots : 0;
#pragma unroll 1
    for (int slot = 0; slot < plan.slots; ++slot, memory += tensors * workers) {
      const int64_t offset = start + walk.next();
      if (slot < slots) take_in(memory, offset);
      if (slot % group == group - 1) end_copies();
    }
    end_copies();
  }
  STAMP(2);

  const auto sum_up = [&](int panel, int stage) {
    const int64_t start = first_panel + panel * team_step;
    const int64_t channel = (int64_t{panel} * plan.teams + team) * channels + place.first_channel;
    float sums[values][pack] = {};
    typename Pass::Center centers[pack];
    if (plan.inner == 1) {
      pass.centers(channel, centers);
    } else {
      const auto first = pass.center(channel);
      const auto second = place.split < pack ? pass.center(channel + 1) : first;
#pragma unroll
      for (int i = 0; i < pack; ++i) centers[i] = i < place.split ? first : second;
    }
    uint8_t* bits = bits_of + (stage * plan.slots) * workers;
    if constexpr (Pass::kMasked) {
      NormResidentWalk walk = begin;
      for (int slot = 0; slot < place.slots; slot += 4) {
        unsigned own[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const int64_t offset = start + walk.next();
          own[u] = slot + u < place.slots ? pass.bits(offset) : 0;
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          if (slot + u < place.slots) bits[(slot + u) * workers] = static_cast<uint8_t>(own[u]);
        }
      }
    }
    NormResidentWalk walk = begin;
    const int later = panel == 0 ? (plan.stages - 1) * groups_of_copies : 0;  // groups behind this panel's
    uint4* memory = kept + stage * stage_packs;
#pragma unroll 1
    for (int slot = 0; slot < plan.slots; ++slot, memory += tensors * workers) {
      if (slot % group == 0) wait_for_copies(later + groups_of_copies - 1 - slot / group);
      const int64_t offset = start + walk.next();
      if (slot < place.slots) {
        Values packs[tensors];
#pragma unroll
        for (int i = 0; i < tensors; ++i) packs[i] = std::bit_cast<Values>(memory[i * workers]);
        pass.add(offset, packs, Pass::kMasked ? bits[slot * workers] : ~0u, centers, sums);
        if constexpr (Pass::kChanges) memory[Pass::kChanged * workers] = std::bit_cast<uint4>(packs[Pass::kChanged]);
      }
    }
    leave_sums<pack, workers>(plan, place, sums, scratch + panel % 2 * scratch_floats);
    if (panel == 0 && plan.members > 1) grid.barrier_wait(std::move(arrival));
    pass_by(kSumsLeft + panel % 2, all);
  };

  const auto map_and_take_next = [&](int panel, int stage) {
    const int64_t start = first_panel + panel * team_step, further = plan.stages * team_step;
    const bool goes_on = panel + plan.stages < panels;
    wait_at(kFinished + panel % 2, all);
    if (panel == 0) { STAMP(7); }
    typename Pass::Parameter parameters[pack];
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const int own = plan.inner == 1 ? i : i < place.split ? 0 : 1;
      parameters[i].main = finished[panel % 2 * channels + place.first_channel + own];
    }
    NormResidentWalk walk = begin;
    uint4* memory = kept + stage * stage_packs;
    constexpr int width = Pass::kMapWidth;
    static_assert(group % width == 0);
#pragma unroll 1
    for (int slot = 0; slot < plan.slots; slot += width, memory += width * tensors * workers) {
      int64_t offsets[width];
      typename Pass::Added added[width];
#pragma unroll
      for (int u = 0; u < width; ++u) {
        offsets[u] = start + walk.next();
        if (slot + u < place.slots) added[u] = pass.added(offsets[u]);
      }
#pragma unroll
      for (int u = 0; u < width; ++u) {
        if (slot + u >= place.slots) continue;
        Values packs[tensors];
#pragma unroll
        for (int i = 0; i < tensors; ++i) packs[i] = std::bit_cast<Values>(memory[(u * tensors + i) * workers]);
        pass.map(offsets[u], packs, parameters, added[u]);
        if (goes_on) take_in(memory + u * tensors * workers, offsets[u] + further);
      }
      if (slot % group == group - width) end_copies();
    }
    end_copies();
  };

  // With two stages, a panel is mapped after the next has been summed up.
  const int ahead = plan.stages - 1;
#pragma unroll 1
  for (int panel = 0; panel < panels + ahead; ++panel) {
    if (panel < panels) sum_up(panel, panel & ahead);
    if (panel == 0) { STAMP(3); }
    if (panel >= ahead) map_and_take_next(panel - ahead, (panel - ahead) & ahead);
  }
  {
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
  std::printf("      %s cycles mean(max): arrive %.0f(%.0f) issue %.0f(%.0f) sums %.0f(%.0f) finished %.0f(%.0f) map %.0f(%.0f); ns: starts within %lld, ends %lld..%lld\n",
    what, mean[1], most[1], mean[2], most[2], mean[3], most[3], mean[7], most[7], mean[8], most[8], last_start - first, first_end - first, last - first);
}
#endif

namespace detail {

inline int last_blocks = 0;
inline int env_or(const char* name, int other) {
  const char* text = std::getenv(name);
  return text == nullptr ? other : std::atoi(text);
}

template <class Pass, int workers, int clerks>
bool run_resident_with(const Stream& stream, const ChannelView& view, const Pass& pass, void* workspace) {
  const NormRoom room{.blocks = env_or("SINTER_NORM_SM", cuda::device_traits(stream.device.index).processors),
                      .threads = workers,
                      .shared_bytes = 227 * 1024,
                      .tensors = Pass::kTensors,
                      .masked = Pass::kMasked,
                      .element_bytes = static_cast<int>(sizeof(typename Pass::T))};
  const NormResidentPlan plan =
      plan_norm_resident(view, room, env_or("SINTER_NORM_Q", 8), env_or("SINTER_NORM_STAGES", 2));
  if (env_or("SINTER_NORM_SAY", 0) != 0) {
    std::fprintf(stderr,
                 "  panels %ld channels %d columns %d lanes %d pieces %d rows %ld members %d teams %d stages %d slots %d shared "
                 "%zu\n",
                 plan.panels, plan.channels, plan.columns, plan.lanes, plan.pieces, plan.rows, plan.members,
                 plan.teams, plan.stages, plan.slots, plan.shared_bytes);
  }
  if (!plan.fits()) return false;
  last_blocks = static_cast<int>(plan.blocks());
  const auto kernel = resident_kernel<Pass, workers, clerks>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(plan.shared_bytes)),
              "cudaFuncSetAttribute");
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(plan.blocks())), dim3(workers + clerks),
                                plan.shared_bytes};
  auto* table = static_cast<uint4*>(workspace);
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
      return detail::run_resident_with<Pass, 512, 128>(stream, view, pass, workspace);
    case 1:
      return detail::run_resident_with<Pass, 384, 128>(stream, view, pass, workspace);
    default:
      return false;
  }
}

}  // namespace sinter::ops
