// Scratch memory, alignment and the number of blocks, as both directions of batch normalisation use them.
#pragma once

#include <algorithm>
#include <initializer_list>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/plan/norm_plan.h>

namespace sinter::ops {

// Blocks of the sums that a processor is given; so many fit.
inline constexpr int kStatisticsBlocks = 4;
inline constexpr int kGradientBlocks = 2;

inline int64_t norm_blocks(int device, int per_processor) {
  return int64_t{cuda::device_traits(device).processors} * per_processor;
}

/// Cuts arrays off a call's workspace, each aligned to 256 bytes.
class NormScratch {
 public:
  explicit NormScratch(void* workspace) : next_(static_cast<char*>(workspace)) {}

  static constexpr size_t bytes(size_t of_array) { return (of_array + 255) / 256 * 256; }
  template <class P>
  P* take(int64_t count) {
    auto* array = reinterpret_cast<P*>(next_);
    next_ += bytes(static_cast<size_t>(count) * sizeof(P));
    return array;
  }
  void* rest() const { return next_; }

 private:
  char* next_;
};

/// Bytes of a table of `values` sums over `view`, with wide accesses or not.
inline size_t norm_table_bytes(const ChannelView& view, DType dtype, int device, int per_processor,
                               int values) {
  const ChannelView walked = simplified_norm_view(view);
  const int64_t blocks = norm_blocks(device, per_processor);
  const int pack = 16 / static_cast<int>(size_of(dtype));
  const auto table_of = [&](int own, int of_plane) {
    return plan_norm_sums(walked, own, of_plane, blocks).table_size();
  };
  const int64_t size = std::max({table_of(pack, pack), table_of(pack, NormPlan::kGroup), table_of(1, 1)});
  return static_cast<size_t>(size) * static_cast<size_t>(values) * size_of(accumulate_dtype(dtype));
}

template <class P>
P* pointer_or_null(const TensorView& tensor) {
  return tensor.present ? tensor.as<P>() : nullptr;
}

/// All of the pointers allow accesses of 16 bytes; null does.
inline bool are_wide(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* pointer) { return cuda::is_aligned(pointer, 16); });
}

}  // namespace sinter::ops
