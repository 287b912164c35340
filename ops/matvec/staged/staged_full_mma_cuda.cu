// Staged products of float32 and float64 on tensor cores, in full precision: a float64 is multiplied as it
// is, a float32 as the sum of two numbers that fit TF32.
#include <sinter/ops/matvec/staged/split_products_cuda.h>
#include <sinter/ops/matvec/staged/staged_product_cuda.h>

namespace sinter::ops {
namespace {

/// What a lane loads for products of `tiles` times 16 outs, 8 terms and `groups` times 8 vectors, eight terms
/// after eight. As the instructions have it, lane 4 g + t holds outs g and g + 8, terms t and t + 4, of each
/// 8 vectors number g, and of their sums 2 t and 2 t + 1.
template <class T, int groups, int tiles>
struct LaneLines {
  const char *left[tiles][2], *right[groups];  // the lane's first term
  int32_t left_step, right_step;               // of four terms

  __device__ __forceinline__ LaneLines(const StagedView& matrix, const StagedView& vectors,
                                       const StagedShare& share, int32_t first)
      : left_step(4 * matrix.term_step), right_step(4 * vectors.term_step) {
    const auto g = static_cast<int32_t>(threadIdx.x % 32 / 4);
    const int32_t term = first + first_term();
#pragma unroll
    for (int m = 0; m < 2 * tiles; ++m) {
      left[m / 2][m % 2] = matrix.line(share.first_out + 8 * m + g) + term * matrix.term_step;
    }
#pragma unroll
    for (int n = 0; n < groups; ++n) right[n] = vectors.line(8 * n + g) + term * vectors.term_step;
  }

  static __device__ __forceinline__ int32_t first_term() {
    return static_cast<int32_t>(threadIdx.x % 4);
  }

  /// By a multiple of four terms.
  __device__ __forceinline__ void advance(int32_t terms) {
#pragma unroll
    for (int m = 0; m < 2 * tiles; ++m) left[m / 2][m % 2] += terms / 4 * left_step;
#pragma unroll
    for (int n = 0; n < groups; ++n) right[n] += terms / 4 * right_step;
  }

  /// The terms of eight number `k`. Of all, `terms` are left; those behind are zero, so that nothing that
  /// happens to lie there (a NaN) gets into sums; `whole`: there are none.
  template <bool whole>
  __device__ __forceinline__ void load_left(int m, int k, int32_t terms, T (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = load<whole>(left[m][i % 2], left_step, 2 * k + i / 2, terms);
  }
  template <bool whole>
  __device__ __forceinline__ void load_right(int n, int k, int32_t terms, T (&values)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) values[i] = load<whole>(right[n], right_step, 2 * k + i, terms);
  }
  template <bool whole>
  static __device__ __forceinline__ T load(const char* line, int32_t step, int four, int32_t terms) {
    if (!whole && first_term() + 4 * four >= terms) return T{0};
    return *reinterpret_cast<const T*>(line + four * step);
  }
};

/// The sums of `tiles` times 16 outs and `groups` times 8 vectors, of one warp.
template <class T, int groups, int tiles>
struct FullSums {
  static constexpr int kOuts = 16 * tiles, kSlots = 8 * groups;

  T sums[tiles][groups][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < tiles * groups * 4; ++i) sums[i / 4 / groups][i / 4 % groups][i % 4] = 0;
  }

  __device__ __forceinline__ void put(int32_t first_out, const StagedSums<T>& to) const {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t out = first_out + lane / 4, vector = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to.put(out + 16 * m + i / 2 * 8, 8 * n + vector + i % 2, sums[m][n][i]);
      }
    }
  }

  /// Few terms: the vectors are read from shared memory for each 16 outs.
  __device__ __forceinline__ void hold(const StagedView&, const StagedView&, const StagedShare&, int32_t) {}
};

// ---- float64

/// sums += left (16 outs x 8 terms) right (8 terms x 8 vectors).
__device__ __forceinline__ void multiply_add(double (&sums)[4], const double (&left)[4],
                                             const double (&right)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
      : "d"(left[0]), "d"(left[1]), "d"(left[2]), "d"(left[3]), "d"(right[0]), "d"(right[1]));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sums[i % 2 * 2]), "+d"(sums[i % 2 * 2 + 1])
        : "d"(left[i]), "d"(right[i / 2]));
  }
#endif
}

template <int groups>
struct DoubleTile : FullSums<double, groups, 1> {
  static constexpr int kBlocks = 3, kStep = 8;
  using FullSums<double, groups, 1>::sums;
  using Lines = LaneLines<double, groups, 1>;

  template <bool whole>
  __device__ __forceinline__ void step(const Lines& lines, int32_t terms) {
    double left[4], right[groups][2];
    lines.template load_left<whole>(0, 0, terms, left);
#pragma unroll
    for (int n = 0; n < groups; ++n) lines.template load_right<whole>(n, 0, terms, right[n]);
#pragma unroll
    for (int n = 0; n < groups; ++n) multiply_add(sums[0][n], left, right[n]);
  }

  __device__ __forceinline__ void add(const StagedView& matrix, const StagedView& vectors,
                                      const StagedShare& share, int32_t terms) {
    int32_t left = terms - share.term_warp * kStep;
    Lines lines(matrix, vectors, share, share.term_warp * kStep);
#pragma unroll 2
    for (; left >= kStep; left -= share.term_warps * kStep) {
      step<true>(lines, left);
      lines.advance(share.term_warps * kStep);
    }
    if (left > 0) step<false>(lines, left);
  }
  __device__ __forceinline__ void add_held(const StagedView& matrix, const StagedView& vectors,
                                           const StagedShare& share, int32_t terms) {
    add(matrix, vectors, share, terms);
  }
};

// ---- float32

/// float32 as three products of halves: high by low, low by high, high by high. Tensor cores cut where
/// float32 rounds; so they add no more than 16 terms, the small products first, and float32 adds their sums.
///
/// An infinity, times a low half that is zero, is NaN, and products beyond 2^102 overflow when scaled. So a
/// chunk's sums that are not finite are taken once more, without tensor cores.
template <int groups, int tiles>
struct SplitTile : FullSums<float, groups, tiles> {
  static constexpr int kBlocks = groups * tiles == 4 ? 2 : 3, kStep = 16;
  using FullSums<float, groups, tiles>::sums;
  using Lines = LaneLines<float, groups, tiles>;

  /// The lines' next 16 terms; adds to `scaled` sums.
  template <bool whole>
  static __device__ __forceinline__ void step(const Lines& lines, int32_t terms,
                                              float (&scaled)[tiles][groups][4]) {
    uint32_t right_high[2][groups][2], right_low[2][groups][2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        float right[2];
        lines.template load_right<whole>(n, k, terms, right);
        split_floats(right, right_high[k][n], right_low[k][n]);
      }
    }
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      float products[groups][4] = {};
      uint32_t left_high[2][4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t left_low[4];
        float left[4];
        lines.template load_left<whole>(m, k, terms, left);
        split_floats(left, left_high[k], left_low);
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          multiply_add_tf32(products[n], left_low, right_high[k][n]);
          multiply_add_tf32(products[n], left_high[k], right_low[k][n]);
        }
      }
#pragma unroll
      for (int n = 0; n < groups; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) multiply_add_tf32(products[n], left_high[k], right_high[k][n]);
#pragma unroll
        for (int i = 0; i < 4; ++i) scaled[m][n][i] += products[n][i];
      }
    }
  }

  __device__ __forceinline__ void add(const StagedView& matrix, const StagedView& vectors,
                                      const StagedShare& share, int32_t terms) {
    float scaled[tiles][groups][4] = {};
    int32_t left = terms - share.term_warp * kStep;
    Lines lines(matrix, vectors, share, share.term_warp * kStep);
#pragma unroll 1
    for (; left >= kStep; left -= share.term_warps * kStep) {
      step<true>(lines, left, scaled);
      lines.advance(share.term_warps * kStep);
    }
    if (left > 0) step<false>(lines, left, scaled);
    float zero = 0;  // or NaN
#pragma unroll
    for (int i = 0; i < tiles * groups * 4; ++i) {
      zero = fmaf(scaled[i / 4 / groups][i / 4 % groups][i % 4], 0.0F, zero);
    }
    if (__any_sync(kThinLanes, zero != 0.0F)) return add_plainly(matrix, vectors, share, terms);
#pragma unroll
    for (int i = 0; i < tiles * groups * 4; ++i) {
      float& sum = sums[i / 4 / groups][i / 4 % groups][i % 4];
      sum = fmaf(scaled[i / 4 / groups][i / 4 % groups][i % 4], SplitFloat::kUnscale, sum);
    }
  }
  __device__ __forceinline__ void add_held(const StagedView& matrix, const StagedView& vectors,
                                           const StagedShare& share, int32_t terms) {
    add(matrix, vectors, share, terms);
  }

  /// The same sums, each by the lane that has it, term by term.
  __device__ __forceinline__ void add_plainly(const StagedView& matrix, const StagedView& vectors,
                                              const StagedShare& share, int32_t terms) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t out = share.first_out + lane / 4, vector = lane % 4 * 2;
#pragma unroll 1
    for (int32_t first = share.term_warp * kStep; first < terms; first += share.term_warps * kStep) {
#pragma unroll 1
      for (int32_t term = first; term < min(first + kStep, terms); ++term) {
#pragma unroll
        for (int i = 0; i < 4 * tiles; ++i) {
          const float left = element(matrix, out + i / 2 * 8, term);
#pragma unroll
          for (int n = 0; n < groups; ++n) {
            sums[i / 4][n][i % 4] += left * element(vectors, 8 * n + vector + i % 2, term);
          }
        }
      }
    }
  }
  static __device__ __forceinline__ float element(const StagedView& view, int32_t line, int32_t term) {
    return *reinterpret_cast<const float*>(view.line(line) + term * view.term_step);
  }
};

template <int groups>
void launch_groups(const StagedLaunch<float>& launch) {
  if (launch.plan.warp_outs == 16) return launch.run<SplitTile<groups, 1>>();
  launch.run<SplitTile<groups, 2>>();
}
template <int groups>
void launch_groups(const StagedLaunch<double>& launch) {
  launch.run<DoubleTile<groups>>();
}

}  // namespace

template <class T>
void launch_staged_full(const Stream& stream, const ThinProblem& problem, const StagedPlan& plan, const T* a,
                        const T* x, T* y, T* table, const ThinBias& bias) {
  const StagedLaunch<T> launch{stream, problem, plan, a, x, y, table, bias};
  if (plan.slots <= 8) return launch_groups<1>(launch);
  launch_groups<2>(launch);
}

template void launch_staged_full(const Stream&, const ThinProblem&, const StagedPlan&, const float*,
                                 const float*, float*, float*, const ThinBias&);
template void launch_staged_full(const Stream&, const ThinProblem&, const StagedPlan&, const double*,
                                 const double*, double*, double*, const ThinBias&);

}  // namespace sinter::ops
