// Staged products of the 16-bit types, on tensor cores with sums in float32.
#include <sinter/ops/matvec/staged/half_products_cuda.h>
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

/// The same of a line whose elements are neighbours: what lies behind its end, in shared memory too, is read
/// and masked. `words`: pairs lie at multiples of 4 bytes.
template <bool whole>
__device__ __forceinline__ uint32_t load_neighbours(const char* line, bool words, int32_t term,
                                                    int32_t terms) {
  const char* const from = line + term * 2;
  uint32_t pair;
  if (words) {
    pair = *reinterpret_cast<const uint32_t*>(from);
  } else {
    const auto* const halves = reinterpret_cast<const uint16_t*>(from);
    pair = uint32_t{halves[0]} | uint32_t{halves[1]} << 16;
  }
  if (whole || term + 1 < terms) return pair;
  return term < terms ? pair & 0xFFFFU : 0;
}

/// Elements `term` and `term` + 1 of two lines that are neighbours, at a multiple of 4 bytes: `first` and
/// `second`, as load_pair has them.
template <bool whole>
__device__ __forceinline__ void load_two_pairs(const char* lines, int32_t step, int32_t term, int32_t terms,
                                               uint32_t& first, uint32_t& second) {
  const char* const from = lines + term * step;
  uint32_t low = 0, high = 0;
  if (whole || term < terms) low = *reinterpret_cast<const uint32_t*>(from);
  if (whole || term + 1 < terms) high = *reinterpret_cast<const uint32_t*>(from + step);
  first = __byte_perm(low, high, 0x5410);
  second = __byte_perm(low, high, 0x7632);
}

/// The sums of 16 outs and `groups` times 8 vectors, of one warp. As the instruction has it, lane 4 g + t
/// holds two outs, terms 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, and of each 8 vectors sums 2 t and 2 t + 1. The
/// two outs are g and g + 8, or 2 g and 2 g + 1 where outs are neighbours in memory: these share a word.
template <class T, int groups>
struct MmaTile {
  static constexpr int kOuts = 16, kSlots = 8 * groups, kBlocks = 3, kStep = 16;
  static constexpr int kHeldSteps = 4;

  float sums[groups][4];
  uint32_t held[kHeldSteps][groups][2];  // the vectors' elements of the first terms

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
  }

  /// Two lines of the matrix, those of a lane's outs, and one of each 8 vectors.
  struct Lines {
    const char *left[2], *right[groups];
    int32_t left_step, right_step;
    bool left_neighbours, right_neighbours;  // the terms of a line
    bool left_words, right_words;            // pairs lie at multiples of 4 bytes

    __device__ __forceinline__ Lines(const StagedView& matrix, const StagedView& vectors,
                                     const StagedShare& share)
        : left_step(matrix.term_step),
          right_step(vectors.term_step),
          left_neighbours(!share.neighbours),
          right_neighbours(vectors.term_step == 2),
          left_words(starts_words(matrix, share.neighbours ? matrix.term_step : matrix.line_step)),
          right_words(starts_words(vectors, vectors.line_step)) {
      const auto g = static_cast<int32_t>(threadIdx.x % 32 / 4);
      if (share.neighbours) {
        const int32_t out = share.first_out + 2 * g;
        // Words hold the second out, whether or not there is one.
        left[0] = left_words ? matrix.data + out * 2 : matrix.line(out);
        left[1] = matrix.line(out + 1);
      } else {
        left[0] = matrix.line(share.first_out + g);
        left[1] = matrix.line(share.first_out + g + 8);
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) right[n] = vectors.line(8 * n + g);
    }

    static __device__ __forceinline__ bool starts_words(const StagedView& view, int32_t step) {
      return ((reinterpret_cast<uintptr_t>(view.data) | static_cast<uintptr_t>(step)) & 3) == 0;
    }
  };

  /// Terms `low`, low + 1, low + 8 and low + 9 of both lines; those from `terms` on are zero.
  template <bool whole>
  static __device__ __forceinline__ void load_left(const Lines& lines, int32_t low, int32_t terms,
                                                   uint32_t (&left)[4]) {
    if (lines.left_neighbours) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = load_neighbours<whole>(lines.left[i % 2], lines.left_words, low + i / 2 * 8, terms);
      }
    } else if (lines.left_words) {
      load_two_pairs<whole>(lines.left[0], lines.left_step, low, terms, left[0], left[1]);
      load_two_pairs<whole>(lines.left[0], lines.left_step, low + 8, terms, left[2], left[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = load_pair<whole>(lines.left[i % 2], lines.left_step, low + i / 2 * 8, terms);
      }
    }
  }

  template <bool whole>
  static __device__ __forceinline__ void load_right(const Lines& lines, int n, int32_t low, int32_t terms,
                                                    uint32_t (&right)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      right[i] = lines.right_neighbours
                     ? load_neighbours<whole>(lines.right[n], lines.right_words, low + 8 * i, terms)
                     : load_pair<whole>(lines.right[n], lines.right_step, low + 8 * i, terms);
    }
  }

  static __device__ __forceinline__ int32_t first_term() {
    return static_cast<int32_t>(threadIdx.x % 4) * 2;
  }

  /// Terms first to first + 15, which are all below `terms` if `whole`.
  template <bool whole>
  __device__ __forceinline__ void step(const Lines& lines, int32_t first, int32_t terms) {
    uint32_t left[4], right[groups][2];
    load_left<whole>(lines, first + first_term(), terms, left);
#pragma unroll
    for (int n = 0; n < groups; ++n) load_right<whole>(lines, n, first + first_term(), terms, right[n]);
#pragma unroll
    for (int n = 0; n < groups; ++n) multiply_add<T>(sums[n], left, right[n]);
  }

  __device__ __forceinline__ void add(const StagedView& matrix, const StagedView& vectors,
                                      const StagedShare& share, int32_t terms) {
    const Lines lines(matrix, vectors, share);
    int32_t first = share.term_warp * kStep;
    for (; first + kStep <= terms; first += share.term_warps * kStep) step<true>(lines, first, terms);
    if (first < terms) step<false>(lines, first, terms);
  }

  // ---- few terms: the vectors stay in registers

  static __device__ __forceinline__ bool can_hold(const StagedShare& share, int32_t terms) {
    return share.term_warps == 1 && terms <= kHeldSteps * kStep;
  }

  /// Reads what add_held multiplies with; behind `terms` it is zero.
  __device__ __forceinline__ void hold(const StagedView& matrix, const StagedView& vectors,
                                       const StagedShare& share, int32_t terms) {
    if (!can_hold(share, terms)) return;
    const Lines lines(matrix, vectors, share);
#pragma unroll
    for (int k = 0; k < kHeldSteps; ++k) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        held[k][n][0] = held[k][n][1] = 0;
        if (k * kStep < terms) load_right<false>(lines, n, k * kStep + first_term(), terms, held[k][n]);
      }
    }
  }

  __device__ __forceinline__ void add_held(const StagedView& matrix, const StagedView& vectors,
                                           const StagedShare& share, int32_t terms) {
    if (!can_hold(share, terms)) return add(matrix, vectors, share, terms);
    const Lines lines(matrix, vectors, share);
#pragma unroll
    for (int k = 0; k < kHeldSteps; ++k) {
      if (k * kStep >= terms) break;
      uint32_t left[4];
      if ((k + 1) * kStep <= terms) {
        load_left<true>(lines, k * kStep + first_term(), terms, left);
      } else {
        load_left<false>(lines, k * kStep + first_term(), terms, left);
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) multiply_add<T>(sums[n], left, held[k][n]);
    }
  }

  __device__ __forceinline__ void put(int32_t first_out, const StagedSums<float>& to) const {
    const auto g = static_cast<int32_t>(threadIdx.x % 32 / 4);
    const int32_t vector = static_cast<int32_t>(threadIdx.x % 4) * 2;
    const int32_t low = first_out + (to.neighbours ? 2 * g : g), high = low + (to.neighbours ? 1 : 8);
#pragma unroll
    for (int n = 0; n < groups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to.put(i < 2 ? low : high, 8 * n + vector + i % 2, sums[n][i]);
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
