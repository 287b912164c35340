#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops {
namespace {

/// Drops the axes of extent 1 and renumbers the others.
void drop_ones(PermutePlan& plan) {
  std::array<int, kMaxRank> renamed{};
  std::array<bool, kMaxRank> kept{};
  int rank = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(plan.rank); ++axis) {
    kept[axis] = plan.extents[axis] != 1;
    renamed[axis] = rank;
    if (kept[axis]) plan.extents[static_cast<size_t>(rank++)] = plan.extents[axis];
  }
  size_t out = 0;
  for (size_t i = 0; i < static_cast<size_t>(plan.rank); ++i) {
    const auto axis = static_cast<size_t>(plan.axes[i]);
    if (kept[axis]) plan.axes[out++] = renamed[axis];
  }
  plan.rank = rank;
}

/// Makes one axis of each run of input axes that stay neighbours. Runs are taken whole, so that what is left
/// cannot be merged again: the end of one run is never followed by the input's next axis.
void merge_neighbours(PermutePlan& plan) {
  const auto rank = static_cast<size_t>(plan.rank);
  std::array<bool, kMaxRank> joins_previous{};  // by input axis
  for (size_t i = 1; i < rank; ++i) {
    if (plan.axes[i] == plan.axes[i - 1] + 1) joins_previous[static_cast<size_t>(plan.axes[i])] = true;
  }
  std::array<int, kMaxRank> renamed{};
  int merged = -1;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (joins_previous[axis]) {
      plan.extents[static_cast<size_t>(merged)] *= plan.extents[axis];
    } else {
      plan.extents[static_cast<size_t>(++merged)] = plan.extents[axis];
    }
    renamed[axis] = merged;
  }
  size_t out = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<size_t>(plan.axes[i]);
    if (!joins_previous[axis]) plan.axes[out++] = renamed[axis];
  }
  plan.rank = merged + 1;
}

}  // namespace

int64_t PermutePlan::input_stride(int axis) const {
  int64_t stride = 1;
  for (int i = axis + 1; i < rank; ++i) stride *= extent(i);
  return stride;
}

int64_t PermutePlan::output_stride(int axis) const {
  int64_t stride = 1;
  for (int i = axis + 1; i < rank; ++i) stride *= extent(input_axis(i));
  return stride;
}

PermutePlan plan_permute(const Shape& shape, std::span<const int> axes) {
  PermutePlan plan;
  if (shape.numel() == 0) return plan;
  plan.rank = shape.rank();
  for (int i = 0; i < plan.rank; ++i) {
    plan.extents[static_cast<size_t>(i)] = shape[i];
    plan.axes[static_cast<size_t>(i)] = axes[static_cast<size_t>(i)];
  }
  drop_ones(plan);
  merge_neighbours(plan);
  return plan;
}

std::array<int, kMaxRank> check_permutation(std::span<const int64_t> axes, int rank) {
  SINTER_CHECK(axes.size() == static_cast<size_t>(rank), "[permute] expected {} axes but got {}", rank,
               axes.size());
  std::array<int, kMaxRank> checked{};
  std::array<bool, kMaxRank> seen{};
  for (size_t i = 0; i < axes.size(); ++i) {
    checked[i] = normalize_axis(axes[i], rank, "permute");
    bool& known = seen[static_cast<size_t>(checked[i])];
    SINTER_CHECK(!known, "[permute] axis {} is named twice", checked[i]);
    known = true;
  }
  return checked;
}

}  // namespace sinter::ops
