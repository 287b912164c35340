// The second stage of sums that several blocks share: adds up a table [part, out] in a fixed order. For .cu
// files.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/cuda/device/launch_early.h>

namespace sinter::ops {

/// A block has 2^log_side neighbouring sums, and 2^log_lanes threads to each.
struct SplitCut {
  static constexpr unsigned kMostThreads = 1024;
  static constexpr unsigned kMostSide = 32;      ///< neighbours in the table, loaded at once
  static constexpr unsigned kFewSide = 8;        ///< of a sector: where many parts make more blocks worth it
  static constexpr int kAhead = 4;               ///< parts that a thread loads at once
  static constexpr int64_t kManyOuts = 1 << 16;  ///< from which on each has as many

  unsigned log_side = 0, log_lanes = 0;

  SplitCut(int64_t parts, int64_t outs) {
    const auto up = [](int64_t count, unsigned most) {
      return std::min(most, std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(count, 1, most))));
    };
    unsigned side = up(outs, kMostSide);
    while (side > kFewSide && parts > kMostThreads / side) side /= 2;
    const int64_t each = outs < kManyOuts ? 1 : kAhead;
    log_side = static_cast<unsigned>(std::countr_zero(side));
    log_lanes = static_cast<unsigned>(std::countr_zero(up((parts + each - 1) / each, kMostThreads / side)));
  }
};

/// A Finish: to[out] = the sum.
template <class T>
struct StoreSums {
  T* to;

  template <class C>
  __device__ void operator()(int64_t out, C sum) const {
    to[out] = cuda::round_to<T>(sum);
  }
};

namespace detail {

template <class C, class Finish>
__global__ void __launch_bounds__(SplitCut::kMostThreads)
    split_reduce_kernel(SplitCut cut, int64_t parts, int64_t outs, const C* table, Finish finish) {
  __shared__ C sums[SplitCut::kMostThreads];
  const unsigned side = 1U << cut.log_side, lanes = 1U << cut.log_lanes, lane = threadIdx.x >> cut.log_side;
  const int64_t out = (int64_t{blockIdx.x} << cut.log_side) + (threadIdx.x & (side - 1));
  cuda::wait_for_previous();
  C sum = 0;
  if (out < outs)
    sum = cuda::add_strided<SplitCut::kAhead>(table, lane * outs + out, parts * outs, lanes * outs);
  sums[threadIdx.x] = sum;
  cuda::fold_lanes(sums, threadIdx.x, lane, lanes, side, [](C a, C b) { return a + b; });
  if (lane == 0 && out < outs) finish(out, sums[threadIdx.x]);
}

}  // namespace detail

/// Calls finish(out, sum) on the device with the sum of table[part * outs + out] over all parts, for each
/// out. The table was written by the kernel before it on the stream, which may let this one begin early; with
/// no parts there is none, and the sums are 0.
template <class C, class Finish>
void split_reduce(const Stream& stream, int64_t parts, int64_t outs, const C* table, const Finish& finish) {
  const SplitCut cut(parts, outs);
  const cuda::LaunchShape shape{
      .grid = dim3(static_cast<unsigned>((outs + (int64_t{1} << cut.log_side) - 1) >> cut.log_side)),
      .block = dim3(1U << (cut.log_side + cut.log_lanes))};
  const auto kernel = detail::split_reduce_kernel<C, Finish>;
  if (parts > 0) {
    cuda::launch_early(stream, shape, kernel, cut, parts, outs, table, finish);
  } else {
    cuda::launch(stream, shape, kernel, cut, parts, outs, table, finish);
  }
}

}  // namespace sinter::ops
