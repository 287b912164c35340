// Thin products in float32 with several vectors that sum up few terms: mostly, they write.
#include <sinter/ops/matvec/plan/unit_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/units/unit_loads_cuda.h>

namespace sinter::ops {
namespace {

struct FewTerms {
  cuda::FastDivide by_blocks, by_vectors;
  int64_t outs, groups;
  int64_t a_stride, x_stride, x_vector, x_element, y_stride, y_vector;
  int32_t terms, vectors, turns;
  bool interleaved;  // y has the vectors of an out side by side; else the outs
                     // of a vector
};

/// Shared memory of a block: the vectors, and for each warp two groups of the
/// matrix as they lie, where outs are its rows, and a group's rounded sums.
template <bool transpose, int slots, class T>
struct FewTermMemory {
  using Word = uint32_t;  // an element
  static constexpr int kWarps = FewTermPlan::kThreads / 32, kTerms = FewTermPlan::kMostTerms;
  static constexpr int kOuts = FewTermPlan::group_outs(sizeof(T));

  alignas(16) float factors[kTerms][slots];
  alignas(16) Word matrix[kWarps][transpose ? 1 : 2][transpose ? 8 : kOuts * kTerms];
  alignas(16) Word sums[kWarps][kOuts][slots];
};

/// Begins to copy the rows of a group, `bytes` from a multiple of 16 on, to
/// `to`.
__device__ __forceinline__ void copy_group(uintptr_t from, int32_t bytes, const void* to, uint64_t policy) {
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  for (int32_t at = static_cast<int32_t>(threadIdx.x % 32) * 16; at < bytes; at += 32 * 16) {
    const uintptr_t source = from + static_cast<uintptr_t>(at);
    if (at + 16 <= bytes) {
      copy_unit<true>(target + static_cast<uint32_t>(at), source, policy);
    } else {
      copy_part_of_unit(target + static_cast<uint32_t>(at), source, static_cast<uint32_t>(bytes - at));
    }
  }
}

/// The same in whole units, where there is nothing between the outs in shared
/// memory, too.
template <class Word>
__device__ __forceinline__ void write_units(const Word* sums, uint32_t elements, Word* to) {
  constexpr uint32_t pack = 16 / sizeof(Word);
  for (uint32_t i = threadIdx.x % 32 * pack; i < elements; i += 32 * pack) {
    if (i + pack <= elements) {
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(sums + i);
    } else {
      for (uint32_t j = i; j < elements; ++j) to[j] = sums[j];
    }
  }
}

/// A group's sums, `count` outs, from shared memory to y, which has them one
/// after the other.
template <int slots>
__device__ __forceinline__ void write_interleaved(const FewTerms& shape, const uint32_t* sums, int32_t count,
                                                  uint32_t* to) {
  const uint32_t elements = static_cast<uint32_t>(count * shape.vectors);
  if (shape.vectors == slots && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    return write_units(sums, elements, to);
  }
  for (uint32_t i = threadIdx.x % 32; i < elements; i += 32) {
    uint32_t v;
    const uint32_t out = shape.by_vectors.divide(i, v);
    to[i] = sums[out * slots + v];
  }
}

/// A lane's elements of its outs, `lane` and every 32nd after it of a group,
/// and their sums.
template <int slots, int terms, class T>
struct FewTermOuts {
  static constexpr int kOuts = FewTermPlan::group_outs(sizeof(T)) / 32, kTerms = terms;
  using Sums = float[kOuts][slots];

  LoadedPack<T, 1> elements[kOuts][kTerms];

  /// From columns: `from` is the first out of the group.
  __device__ __forceinline__ void load_columns(const FewTerms& shape, const T* from, int32_t lane,
                                               int32_t count) {
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
#pragma unroll
      for (int h = 0; h < kOuts; ++h) {
        if (k < shape.terms && lane + 32 * h < count) {
          elements[h][k].load_once(LoadedPack<T, 1>::source(from + k * shape.outs + lane + 32 * h));
        }
      }
    }
  }
  /// From rows in shared memory; behind the last out is what lay there before.
  __device__ __forceinline__ void load_rows(const FewTerms& shape, const uint32_t* rows, int32_t lane) {
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
#pragma unroll
      for (int h = 0; h < kOuts; ++h) {
        if (k < shape.terms) elements[h][k].word = rows[(lane + 32 * h) * shape.terms + k];
      }
    }
  }
  __device__ __forceinline__ void multiply(const FewTerms& shape, const float (*factors)[slots],
                                           Sums& sums) const {
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
      if (k >= shape.terms) break;
#pragma unroll
      for (int v = 0; v < slots; ++v) {
        const float factor = factors[k][v];
#pragma unroll
        for (int h = 0; h < kOuts; ++h) sums[h][v] += elements[h][k][0] * factor;
      }
    }
  }
  /// Rounded to shared memory, out after out.
  static __device__ __forceinline__ void put(const Sums& sums, int32_t lane, uint32_t (*to)[slots]) {
#pragma unroll
    for (int h = 0; h < kOuts; ++h) {
      auto* const packs = reinterpret_cast<cuda::Pack<T, 4>*>(to[lane + 32 * h]);
#pragma unroll
      for (int v = 0; v < slots; v += 4) {
        cuda::Pack<T, 4> pack;
#pragma unroll
        for (int j = 0; j < 4; ++j) pack.values[j] = cuda::round_to<T>(sums[h][v + j]);
        packs[v / 4] = pack;
      }
    }
  }
  /// To y, which has the outs of a vector one after the other; `to` is the
  /// group's first.
  static __device__ __forceinline__ void write_lines(const FewTerms& shape, const Sums& sums, int32_t lane,
                                                     int32_t count, T* to) {
#pragma unroll
    for (int v = 0; v < slots; ++v) {
#pragma unroll
      for (int h = 0; h < kOuts; ++h) {
        if (v < shape.vectors && lane + 32 * h < count) {
          to[v * shape.y_vector + lane + 32 * h] = cuda::round_to<T>(sums[h][v]);
        }
      }
    }
  }
};

/// Block (matrix, groups) of a FewTermPlan. A lane has outs `lane` and `lane` +
/// 32 of a group; its warp takes group after group, of which the next is copied
/// while one is multiplied. Nothing but the vectors is shared among warps.
template <bool transpose, int slots, int terms, class T>
__global__ void __launch_bounds__(FewTermPlan::kThreads, slots > 12 ? 2 : 3)
    few_terms_kernel(const __grid_constant__ FewTerms shape, const T* __restrict__ a, const T* __restrict__ x,
                     T* __restrict__ y) {
  using Memory = FewTermMemory<transpose, slots, T>;
  using Outs = FewTermOuts<slots, terms, T>;
  constexpr int ahead = transpose ? FewTermPlan::groups_ahead(terms) : 1;
  constexpr int32_t kOuts = Memory::kOuts;
  __shared__ Memory memory;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  uint32_t block;
  const uint32_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  a += matrix * shape.a_stride;
  x += matrix * shape.x_stride;
  y += matrix * shape.y_stride;
  const int64_t first_group = int64_t{block} * shape.turns * Memory::kWarps + warp;
  const auto group_of = [&](int32_t turn) { return first_group + int64_t{turn} * Memory::kWarps; };
  const auto count_of = [&](int64_t group) {
    return static_cast<int32_t>(min(int64_t{kOuts}, shape.outs - group * kOuts));
  };
  const uint64_t policy = leaves_first();
  const auto copy = [&](int32_t turn) {
    const int64_t group = group_of(turn);
    if (turn < shape.turns && group < shape.groups) {
      copy_group(reinterpret_cast<uintptr_t>(a + group * kOuts * shape.terms),
                 count_of(group) * shape.terms * static_cast<int32_t>(sizeof(T)),
                 memory.matrix[warp][turn & 1], policy);
    }
    end_copy_group();
  };
  if constexpr (!transpose) copy(0);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < shape.terms * slots; i += FewTermPlan::kThreads) {
    const int32_t v = i % slots, term = i / slots;
    memory.factors[term][v] =
        v < shape.vectors ? cuda::load_as_compute(x[v * shape.x_vector + term * shape.x_element]) : 0.0F;
  }
  __syncthreads();
#pragma unroll 1
  for (int32_t turn = 0; turn < shape.turns; turn += ahead) {
    Outs outs[ahead];
    if constexpr (transpose) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int64_t group = group_of(turn + i);
        if (turn + i < shape.turns && group < shape.groups) {
          outs[i].load_columns(shape, a + group * kOuts, lane, count_of(group));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int64_t group = group_of(turn + i);
      if (turn + i >= shape.turns || group >= shape.groups) break;  // of the whole warp
      const int32_t count = count_of(group);
      if constexpr (!transpose) {
        copy(turn + 1);
        wait_for_copies<1>();
        __syncwarp();
        outs[i].load_rows(shape, memory.matrix[warp][turn & 1], lane);
      }
      typename Outs::Sums sums = {};
      outs[i].multiply(shape, memory.factors, sums);
      if (shape.interleaved) {
        Outs::put(sums, lane, memory.sums[warp]);
        __syncwarp();
        write_interleaved<slots>(shape, memory.sums[warp][0], count,
                                 reinterpret_cast<uint32_t*>(y + group * kOuts * shape.vectors));
      } else {
        Outs::write_lines(shape, sums, lane, count, y + group * kOuts);
      }
      __syncwarp();  // all are done with the group's shared memory
    }
  }
}

// ---- host

template <bool transpose, int slots, int terms, class T>
void launch_terms(const Stream& stream, const ThinProblem& problem, const FewTermPlan& plan, const T* a,
                  const T* x, T* y) {
  const FewTerms shape{.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks)),
                       .by_vectors = cuda::FastDivide(static_cast<uint32_t>(problem.vectors)),
                       .outs = problem.out(),
                       .groups = plan.groups,
                       .a_stride = problem.a_stride,
                       .x_stride = problem.x_stride,
                       .x_vector = problem.x_vector,
                       .x_element = problem.x_element,
                       .y_stride = problem.out() * problem.vectors,
                       .y_vector = problem.y_vector,
                       .terms = static_cast<int32_t>(problem.in()),
                       .vectors = problem.vectors,
                       .turns = plan.turns,
                       .interleaved = problem.y_vector == 1};
  const cuda::LaunchShape grid{.grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks)),
                               .block = dim3(FewTermPlan::kThreads)};
  cuda::launch(stream, grid, few_terms_kernel<transpose, slots, terms, T>, shape, a, x, y);
}

template <bool transpose, int slots, class T>
void launch_slots(const Stream& stream, const ThinProblem& problem, const FewTermPlan& plan, const T* a,
                  const T* x, T* y) {
  if constexpr (transpose) {
    if (problem.in() <= 2) return launch_terms<true, slots, 2>(stream, problem, plan, a, x, y);
    if (problem.in() <= 6) return launch_terms<true, slots, 6>(stream, problem, plan, a, x, y);
  }
  launch_terms<transpose, slots, FewTermPlan::kMostTerms>(stream, problem, plan, a, x, y);
}

template <bool transpose, class T>
void launch_plan(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  const FewTermPlan plan = plan_few_terms(problem.batch, problem.out(), problem.vectors, sizeof(T));
  if (plan.slots == 4) return launch_slots<transpose, 4>(stream, problem, plan, a, x, y);
  if (plan.slots == 8) return launch_slots<transpose, 8>(stream, problem, plan, a, x, y);
  if (plan.slots == 12) return launch_slots<transpose, 12>(stream, problem, plan, a, x, y);
  launch_slots<transpose, 16>(stream, problem, plan, a, x, y);
}

}  // namespace

template <class T>
void launch_few_terms(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y) {
  if (problem.transpose) return launch_plan<true>(stream, problem, a, x, y);
  launch_plan<false>(stream, problem, a, x, y);
}

template void launch_few_terms(const Stream&, const ThinProblem&, const float*, const float*, float*);

}  // namespace sinter::ops
