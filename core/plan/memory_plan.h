// Where the buffers of a program lie in one arena: static offsets, found once from when each is in use.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sinter {

/// Every offset of a plan is a multiple of it: what the widest accesses of a GPU's kernels ask for.
inline constexpr size_t kPlanAlignment = 256;

/// A buffer of a program whose steps are numbered in the order in which they run.
struct BufferLifetime {
  size_t bytes = 0;  ///< 0: it takes no room, and may share its offset with any other
  int first = 0;     ///< the step that writes it
  int last = 0;      ///< the last step that reads it, not before `first`; during both its bytes are its own
};

struct MemoryPlan {
  std::vector<size_t> offsets;  ///< bytes from the start of the arena, by buffer
  size_t bytes = 0;             ///< of the arena, which should begin at a multiple of kPlanAlignment
  size_t lower_bound = 0;       ///< the most bytes that are in use in one step: no plan can do with less
};

/// Gives every buffer an offset such that no two that are in use in one step overlap, in an arena that is as
/// small as a fixed amount of work can make it: for the training of networks that is nearly always the lower
/// bound itself. Sizes count after rounding up to kPlanAlignment. The same buffers give the same plan.
///
/// The problem is NP-hard (dynamic storage allocation). Buffers are placed one after another at the lowest or
/// the tightest gap among those that are placed already and in use at the same time, or from both ends of the
/// arena, in several orders. Then the best order is repaired: buffers at the top of the arena, and those that
/// hold them up there, are moved ahead as long as that does no harm.
///
/// It looks no further once the arena has no more than `enough` bytes: without that it finds the same plan or
/// a smaller one.
///
/// Throws InvalidArgument if a lifetime ends before it begins or the sizes add up to more than 2^62 bytes.
MemoryPlan plan_memory(std::span<const BufferLifetime> buffers, size_t enough = 0);

}  // namespace sinter
