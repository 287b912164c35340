// Staged products of the 16-bit types, on tensor cores with sums in float32.
#include <sinter/ops/matvec/staged/staged_product_cuda.h>

namespace sinter::ops {
namespace {

/// Elements `term` and `term` + 1 of a line, `step` bytes apart, in one register; those from `terms` on are
/// zero, so that nothing that happens to lie there (a NaN) gets into sums.
template <bool whole>
__device__ __forceinline__ uint32_t load_pair(const char* line, int32_t step, int32_t term, int32_t terms) {
  const char* const from = line + term * step;
  uint32_t low = 0, high = 0;
  if (whole || term < terms) low = *reinterpret_cast<const uint16_t*>(from);
  if (whole || term + 1 < terms) high = *reinterpret_cast<const uint16_t*>(from + step);
  return low | high << 16;
}

/// sums += left (16 outs x 16 terms) right (16 terms x 8 vectors).
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&left)[4],
                                             const uint32_t (&right)[2]) {
  if constexpr (std::is_same_v<T, float16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}

/// The sums of 16 outs and `groups` times 8 vectors, of one warp. As the instruction has it, lane 4 g + t
/// holds outs g and g + 8, terms 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, and of each 8 vectors sums 2 t and 2 t
/// + 1.
template <class T, int groups>
struct MmaTile {
  static constexpr int kOuts = 16, kSlots = 8 * groups, kBlocks = 3, kStep = 16;

  float sums[groups][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
  }

  struct Lines {
    const char *left[2], *right[groups];
    int32_t left_step, right_step;
    bool left_words, right_words;
  };

  static __device__ __forceinline__ bool has_words(const StagedView& view) {
    return view.term_step == 2 && ((reinterpret_cast<uintptr_t>(view.data) | view.line_step) & 3) == 0;
  }

  /// Terms first to first + 15, which are all below `terms` if `whole`.
  template <bool whole>
  __device__ __forceinline__ void step(const Lines& lines, int32_t first, int32_t terms) {
    const int32_t low = first + static_cast<int32_t>(threadIdx.x % 4) * 2, high = low + 8;
    uint32_t left[4], right[groups][2];
    if (whole && lines.left_words) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = *reinterpret_cast<const uint32_t*>(lines.left[i % 2] + (i < 2 ? low : high) * 2);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = load_pair<whole>(lines.left[i % 2], lines.left_step, i < 2 ? low : high, terms);
      }
    }
    if (whole && lines.right_words) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        right[n][0] = *reinterpret_cast<const uint32_t*>(lines.right[n] + low * 2);
        right[n][1] = *reinterpret_cast<const uint32_t*>(lines.right[n] + high * 2);
      }
    } else {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        right[n][0] = load_pair<whole>(lines.right[n], lines.right_step, low, terms);
        right[n][1] = load_pair<whole>(lines.right[n], lines.right_step, high, terms);
      }
    }
#pragma unroll
    for (int n = 0; n < groups; ++n) multiply_add<T>(sums[n], left, right[n]);
  }

  __device__ __forceinline__ void add(const StagedView& matrix, const StagedView& vectors,
                                      const StagedShare& share, int32_t terms) {
    const auto g = static_cast<int32_t>(threadIdx.x % 32 / 4);
    Lines lines{.left = {matrix.line(share.first_out + g), matrix.line(share.first_out + g + 8)},
                .left_step = matrix.term_step,
                .right_step = vectors.term_step,
                .left_words = has_words(matrix),
                .right_words = has_words(vectors)};
#pragma unroll
    for (int n = 0; n < groups; ++n) lines.right[n] = vectors.line(8 * n + g);
    int32_t first = share.term_warp * kStep;
    for (; first + kStep <= terms; first += share.term_warps * kStep) step<true>(lines, first, terms);
    if (first < terms) step<false>(lines, first, terms);
  }

  __device__ __forceinline__ void put(int32_t first_out, const StagedSums<float>& to) const {
    const int32_t out = first_out + static_cast<int32_t>(threadIdx.x % 32 / 4),
                  vector = static_cast<int32_t>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to.put(out + i / 2 * 8, 8 * n + vector + i % 2, sums[n][i]);
    }
  }
};

}  // namespace

template <class T>
void launch_staged_tensor_cores(const Stream& stream, const ThinProblem& problem, const StagedPlan& plan,
                                const T* a, const T* x, T* y, float* table, const ThinBias& bias) {
  const StagedLaunch<T> launch{stream, problem, plan, a, x, y, table, bias};
  if (plan.slots <= 8) return launch.template run<MmaTile<T, 1>>();
  launch.template run<MmaTile<T, 2>>();
}

template void launch_staged_tensor_cores(const Stream&, const ThinProblem&, const StagedPlan&, const float16*,
                                         const float16*, float16*, float*, const ThinBias&);
template void launch_staged_tensor_cores(const Stream&, const ThinProblem&, const StagedPlan&,
                                         const bfloat16*, const bfloat16*, bfloat16*, float*,
                                         const ThinBias&);

}  // namespace sinter::ops
