// The two passes of an optimiser step with trust ratios on the CPU: sums over each parameter in pieces of a
// fixed size, so that threads do not change them, then the step.
#pragma once

#include <utility>

#include <sinter/core/op/kernel.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/multi_tensor_cpu.h>
#include <sinter/ops/trust_ratio/trust_sums.h>

namespace sinter::ops {

inline constexpr int64_t kTrustPiece = 8192;

/// The sums over a parameter's elements [begin, end), of which `terms(i)` gives an element and its direction,
/// in lanes side by side: one sum after the other would wait for each addition.
template <class Terms>
TrustSums sum_terms(int64_t begin, int64_t end, Terms terms) {
  constexpr int64_t kLanes = 16;
  double parameters[kLanes] = {}, directions[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) {
    const auto [parameter, direction] = terms(i);
    parameters[lane] += static_cast<double>(parameter) * static_cast<double>(parameter);
    directions[lane] += static_cast<double>(direction) * static_cast<double>(direction);
  };
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    SINTER_IVDEP
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int64_t lane = 0; i < end; ++i, ++lane) add(i, lane);
  TrustSums sums;
  for (int64_t lane = 0; lane < kLanes; ++lane) sums.add(TrustSums{parameters[lane], directions[lane]});
  return sums;
}

/// Pieces of all parameters, and one sum for each slot of `width` inputs.
template <size_t width>
size_t trust_workspace(const KernelQuery& query) {
  int64_t sums = 0;
  for (size_t slot = 0; slot < query.input_count(); slot += width) {
    sums += (query.input(slot).shape.numel() + kTrustPiece - 1) / kTrustPiece + 1;
  }
  return static_cast<size_t>(sums) * sizeof(TrustSums);
}

/// measure(slot, begin, end) for all elements, whose TrustSums are added up for each slot; then
/// step(slot, begin, end, sums). `slot` is the first input of the slot.
template <size_t width, class Measure, class Step>
void run_trust_step(const KernelContext& context, Measure measure, Step step) {
  auto* const totals = context.workspace<TrustSums>();
  TrustSums* const pieces = totals + context.input_count() / width;
  const auto pieces_of = [&](size_t slot) {
    return (context.input(slot).numel() + kTrustPiece - 1) / kTrustPiece;
  };
  int64_t count = 0;
  for (size_t slot = 0; slot < context.input_count(); slot += width) count += pieces_of(slot);
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t slot = 0; slot < context.input_count() && first < end; slot += width) {
      const int64_t own = pieces_of(slot), elements = context.input(slot).numel();
      for (int64_t i = std::max(begin - first, int64_t{0}); i < std::min(end - first, own); ++i) {
        pieces[first + i] = measure(slot, i * kTrustPiece, std::min((i + 1) * kTrustPiece, elements));
      }
      first += own;
    }
  });
  const TrustSums* piece = pieces;
  for (size_t slot = 0; slot < context.input_count(); slot += width) {
    TrustSums& total = totals[slot / width] = {};
    for (int64_t i = pieces_of(slot); i > 0; --i) total.add(*piece++);
  }
  for_each_slot_range(context, width, kTrustPiece, [&](size_t slot, int64_t begin, int64_t end) {
    step(slot, begin, end, totals[slot / width]);
  });
}

}  // namespace sinter::ops
