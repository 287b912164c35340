// How the elementwise kernels of PReLU cut a tensor. Pure arithmetic, without CUDA.
#pragma once

#include <cstdint>

#include <sinter/ops/common/channel_view.h>

namespace sinter::ops {

/// How the slopes of neighbouring elements lie, which decides how a pack of them is found.
enum class SlopeOrder {
  kRuns,     ///< runs of at least a pack: a pack has one slope, or changes once to the next
  kVectors,  ///< channels side by side, a multiple of a pack: a pack's slopes are an aligned vector
  kMixed     ///< anything else
};

inline SlopeOrder slope_order(const ChannelView& view, int64_t pack) {
  if (view.inner >= pack) return SlopeOrder::kRuns;
  return view.inner == 1 && view.channels % pack == 0 ? SlopeOrder::kVectors : SlopeOrder::kMixed;
}

/// Packs that a thread of the forward kernel takes, for a tensor of `bytes`: measured, docs/kernels/prelu.md.
constexpr int prelu_packs_of_thread(int64_t bytes) {
  return bytes > (int64_t{32} << 20) ? 1 : 2;
}

}  // namespace sinter::ops
