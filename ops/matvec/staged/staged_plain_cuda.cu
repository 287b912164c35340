// Staged products of float32 and float64, without tensor cores.
#include <sinter/ops/matvec/staged/staged_product_cuda.h>

namespace sinter::ops {
namespace {

/// The sums of 32 / lanes * outs outs and `slots` vectors, of one warp: `lanes` neighbouring lanes share an
/// out and take every lanes-th term.
template <class T, int slots, int lanes, int outs>
struct PlainTile {
  static constexpr int kAcross = 32 / lanes;  // lanes side by side
  static constexpr int kOuts = kAcross * outs, kSlots = slots;
  static constexpr int kBlocks = static_cast<int>(sizeof(T)) * slots * outs <= 64 ? 3 : 2;

  T sums[outs][slots];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int o = 0; o < outs; ++o) {
#pragma unroll
      for (int v = 0; v < slots; ++v) sums[o][v] = 0;
    }
  }

  /// `neighbours`: the vectors of a term follow each other, so that one address does for all. Behind the last
  /// vector are other elements of shared memory; what they add up to is not written.
  template <bool neighbours>
  __device__ __forceinline__ void walk(const StagedView& matrix, const StagedView& vectors,
                                       const StagedShare& share, int32_t terms) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), step = share.term_warps * lanes;
    const char *left[outs], *right[slots];
#pragma unroll
    for (int o = 0; o < outs; ++o) left[o] = matrix.line(share.first_out + lane / lanes + o * kAcross);
#pragma unroll
    for (int v = 0; v < slots; ++v) right[v] = neighbours ? vectors.data : vectors.line(v);
#pragma unroll 2
    for (int32_t term = share.term_warp * lanes + lane % lanes; term < terms; term += step) {
      T elements[outs];
#pragma unroll
      for (int o = 0; o < outs; ++o) {
        elements[o] = *reinterpret_cast<const T*>(left[o] + term * matrix.term_step);
      }
#pragma unroll
      for (int v = 0; v < slots; ++v) {
        const auto* const from = reinterpret_cast<const T*>(right[v] + term * vectors.term_step);
        const T factor = neighbours ? from[v] : *from;
#pragma unroll
        for (int o = 0; o < outs; ++o) sums[o][v] += elements[o] * factor;
      }
    }
  }

  __device__ __forceinline__ void add(const StagedView& matrix, const StagedView& vectors,
                                      const StagedShare& share, int32_t terms) {
    if (vectors.line_step == static_cast<int32_t>(sizeof(T))) {
      walk<true>(matrix, vectors, share, terms);
    } else {
      walk<false>(matrix, vectors, share, terms);
    }
  }

  /// Few terms: these tiles read the vectors from shared memory all the same.
  __device__ __forceinline__ void hold(const StagedView&, const StagedView&, const StagedShare&, int32_t) {}
  __device__ __forceinline__ void add_held(const StagedView& matrix, const StagedView& vectors,
                                           const StagedShare& share, int32_t terms) {
    add(matrix, vectors, share, terms);
  }

  __device__ __forceinline__ void put(int32_t first_out, const StagedSums<T>& to) const {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    __syncwarp();
#pragma unroll
    for (int o = 0; o < outs; ++o) {
#pragma unroll
      for (int v = 0; v < slots; ++v) {
        T sum = sums[o][v];
#pragma unroll
        for (int distance = lanes / 2; distance > 0; distance /= 2) {
          sum += __shfl_xor_sync(kThinLanes, sum, distance);
        }
        if (lane % lanes == v % lanes) to.put(first_out + lane / lanes + o * kAcross, v, sum);
      }
    }
  }
};

template <class T, int slots>
void launch_slots(const StagedLaunch<T>& launch) {
  const StagedPlan& plan = launch.plan;
  if (plan.term_lanes == 1) {
    if constexpr (sizeof(T) == 4) {
      if (plan.outs_per_lane == 2) return launch.template run<PlainTile<T, slots, 1, 2>>();
    }
    return launch.template run<PlainTile<T, slots, 1, 1>>();
  }
  if constexpr (slots <= 8) {
    if (plan.term_lanes == 32) return launch.template run<PlainTile<T, slots, 32, 4>>();
    if (plan.term_lanes == 16) return launch.template run<PlainTile<T, slots, 16, 4>>();
  }
  if (plan.outs_per_lane == 2) return launch.template run<PlainTile<T, slots, 4, 2>>();
  if constexpr (sizeof(T) == 4) return launch.template run<PlainTile<T, slots, 4, 4>>();
}

}  // namespace

template <class T>
void launch_staged_plain(const Stream& stream, const ThinProblem& problem, const StagedPlan& plan, const T* a,
                         const T* x, T* y, T* table, const ThinBias& bias) {
  const StagedLaunch<T> launch{stream, problem, plan, a, x, y, table, bias};
  if (plan.slots == 2) return launch_slots<T, 2>(launch);
  if (plan.slots == 4) return launch_slots<T, 4>(launch);
  if (plan.slots == 8) return launch_slots<T, 8>(launch);
  launch_slots<T, 16>(launch);
}

template void launch_staged_plain(const Stream&, const ThinProblem&, const StagedPlan&, const float*,
                                  const float*, float*, float*, const ThinBias&);
template void launch_staged_plain(const Stream&, const ThinProblem&, const StagedPlan&, const double*,
                                  const double*, double*, double*, const ThinBias&);

}  // namespace sinter::ops
