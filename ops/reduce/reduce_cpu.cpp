#include <algorithm>
#include <limits>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_cpu.h>
#include <sinter/ops/reduce/reduce_loops_cpu.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {
namespace {

// A reduction adds rows of a tile into as many lanes, side by side, then folds the lanes by halves, and last
// combines the segments in order, sums of floats in double precision. All sizes follow from the shape, so
// results do not depend on threads; and few terms are added one after another, so rounding errors stay small.
constexpr int64_t kTile = 256;           // lanes, if the columns are fewer
constexpr int64_t kMostColumns = 1024;   // columns that one task takes on
constexpr int64_t kSegment = 32 * 1024;  // elements that go into one partial result, roughly
constexpr int64_t kReduceGrain = 32 * 1024;

/// How the work of a plan is cut.
struct Schedule {
  explicit Schedule(const ReducePlan& plan)
      : width(std::min(plan.columns, kMostColumns)),
        column_blocks((plan.columns + width - 1) / width),
        tile_rows(std::clamp<int64_t>(kTile / width, 1, plan.rows)),
        piece_rows(std::min(plan.rows, std::max<int64_t>(kSegment / width / tile_rows, 1) * tile_rows)),
        pieces((plan.rows + piece_rows - 1) / piece_rows),
        units(plan.reduced.count() * pieces),
        segment_units(std::max<int64_t>(kSegment / (piece_rows * width), 1)),
        segments((units + segment_units - 1) / segment_units) {}

  int64_t width, column_blocks;  // columns of a task
  int64_t tile_rows;             // rows that lie side by side in the lanes
  int64_t piece_rows, pieces;    // the rows of a block are cut into pieces; a unit is one piece of one block
  int64_t units;
  int64_t segment_units, segments;  // a segment is some units in a row
};

/// The type in which segments are combined.
template <class A, class Reducer>
using PartialType =
    std::conditional_t<std::is_same_v<A, float> && std::is_same_v<Reducer, SumReducer>, double, A>;

/// The type of the lanes.
template <class T, class Reducer>
using LaneType = std::conditional_t<std::is_integral_v<T> && std::is_same_v<Reducer, SumReducer>, int64_t,
                                    compute_type<T>>;

/// Reduces `segment` of the columns [first, first + width) of the blocks of `kept`, into lanes[0, width).
template <class Reducer, class T, class A>
void reduce_segment(const ReducePlan& plan, const Schedule& cut, const T* x, int64_t first, int64_t width,
                    int64_t segment, A* lanes) {
  std::fill_n(lanes, cut.tile_rows * width, Reducer::template identity<A>());
  const int64_t end = std::min((segment + 1) * cut.segment_units, cut.units);
  for (int64_t unit = segment * cut.segment_units; unit < end; ++unit) {
    const int64_t row = unit % cut.pieces * cut.piece_rows;
    const int64_t rows = std::min(cut.piece_rows, plan.rows - row);
    const T* block = x + plan.reduced.offset(unit / cut.pieces) + row * plan.columns + first;
    // With tile_rows > 1 the block is as wide as all columns, and so the rows of a tile lie without gaps.
    const int64_t step = cut.tile_rows * plan.columns;
    const int64_t tiles = rows / cut.tile_rows, rest = rows % cut.tile_rows;
    combine_rows<Reducer>(lanes, block, step, tiles, cut.tile_rows * width);
    if (rest > 0) combine_rows<Reducer>(lanes, block + tiles * step, step, 1, rest * width);
  }
  fold_rows<Reducer>(lanes, cut.tile_rows, width);
}

/// Reduces the blocks of `kept`, each of neighbouring elements, where one segment is all: many outputs,
/// without a set-up for each.
template <class Reducer, class T, class A, class Store>
void reduce_many(const ReducePlan& plan, const T* x, Store store) {
  const int64_t rows = plan.rows, columns = plan.columns, size = rows * columns;
  if (size <= kSmallBlock) {
    const int64_t groups = (plan.kept.count() + kSmallBlocks - 1) / kSmallBlocks;
    parallel_for(
        groups, std::max<int64_t>(kReduceGrain / (size * kSmallBlocks), 1), [&](int64_t begin, int64_t end) {
          for (int64_t group = begin; group < end; ++group) {
            const int64_t first = group * kSmallBlocks;
            reduce_small_blocks<Reducer, T, A>(
                x + first * size, std::min(kSmallBlocks, plan.kept.count() - first), rows, columns,
                [&](int64_t block, int64_t c, A value) { store((first + block) * columns + c, value); });
          }
        });
    return;
  }
  parallel_for(plan.outputs(), std::max<int64_t>(kReduceGrain / rows, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store(i, reduce_line<Reducer, T, A>(x + i * rows, rows));
  });
}

/// `finish` maps a reduced value to what is stored.
template <class Reducer, class T, class Out, class Finish>
void reduce_view(const TensorView& x, const TensorView& y, const AxisMask& mask, void* workspace,
                 Finish finish) {
  using A = LaneType<T, Reducer>;
  using P = PartialType<A, Reducer>;
  Out* out = y.as<Out>();
  if (x.numel() == 0) {
    std::fill_n(out, y.numel(), static_cast<Out>(finish(Reducer::template identity<P>())));
    return;
  }
  const ReducePlan plan = plan_reduction(x.shape, mask);
  const Schedule cut(plan);
  const auto store = [=](int64_t i, auto value) { out[i] = static_cast<Out>(finish(static_cast<P>(value))); };
  if (plan.reduced.rank == 0 &&
      (plan.rows * plan.columns <= kSmallBlock || (plan.columns == 1 && cut.segments == 1))) {
    return reduce_many<Reducer, T, A>(plan, x.as<const T>(), store);
  }
  P* partials = static_cast<P*>(workspace);
  const int64_t tasks = plan.kept.count() * cut.column_blocks * cut.segments;
  const int64_t task_size = cut.segment_units * cut.piece_rows * cut.width;
  parallel_for(tasks, std::max<int64_t>(kReduceGrain / task_size, 1), [&](int64_t begin, int64_t end) {
    alignas(64) A lanes[kMostColumns];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t segment = task % cut.segments;
      const int64_t column = task / cut.segments % cut.column_blocks * cut.width;
      const int64_t kept = task / cut.segments / cut.column_blocks;
      const int64_t width = std::min(cut.width, plan.columns - column);
      reduce_segment<Reducer>(plan, cut, x.as<const T>() + plan.kept.offset(kept), column, width, segment,
                              lanes);
      const int64_t target = kept * plan.columns + column;
      if (cut.segments == 1) {
        for (int64_t c = 0; c < width; ++c) store(target + c, lanes[c]);
      } else {
        P* partial = partials + segment * plan.outputs() + target;
        for (int64_t c = 0; c < width; ++c) partial[c] = static_cast<P>(lanes[c]);
      }
    }
  });
  if (cut.segments == 1) return;
  parallel_for(plan.outputs(), std::max<int64_t>(kReduceGrain / cut.segments, 1),
               [&](int64_t begin, int64_t end) {
                 P* totals = partials;  // those of the first segment
                 combine_rows<Reducer>(totals + begin, partials + plan.outputs() + begin, plan.outputs(),
                                       cut.segments - 1, end - begin);
                 for (int64_t i = begin; i < end; ++i) store(i, totals[i]);
               });
}

/// The partial results of all segments; no type of them is larger than a double.
size_t partials_bytes(const Shape& x, const AxisMask& mask) {
  if (x.numel() == 0) return 0;
  const ReducePlan plan = plan_reduction(x, mask);
  const Schedule cut(plan);
  return cut.segments == 1 ? 0 : static_cast<size_t>(cut.segments * plan.outputs()) * sizeof(double);
}

size_t reduce_workspace(const KernelQuery& query) {
  const Shape& x = query.input(0).shape;
  return partials_bytes(x, reduced_axes(query.attributes<ReduceAttributes>().axes, x.rank(), "reduce"));
}

size_t sum_to_workspace(const KernelQuery& query) {
  return sum_to_workspace_cpu(query.input(0).shape, query.output(0).shape);
}

/// Sums of a floating-point dtype.
template <class T>
void sum_floats(const TensorView& x, const TensorView& y, const AxisMask& mask, void* workspace) {
  reduce_view<SumReducer, T, T>(x, y, mask, workspace, [](double value) { return value; });
}

void run_sum(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "sum");
  dispatch_all(x.dtype, "sum", [&]<class T> {
    if constexpr (std::is_integral_v<T>) {
      reduce_view<SumReducer, T, int64_t>(x, y, mask, context.workspace(), [](auto value) { return value; });
    } else {
      sum_floats<T>(x, y, mask, context.workspace());
    }
  });
}

void run_sum_to(const KernelContext& context) {
  sum_to_cpu(context.input(0), context.output(0), context.workspace());
}

void run_mean(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "mean");
  const double terms = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(y.numel(), 1));
  dispatch_float(x.dtype, "mean", [&]<class T> {
    reduce_view<SumReducer, T, T>(x, y, mask, context.workspace(),
                                  [terms](double sum) { return sum / terms; });
  });
}

template <class Reducer>
void run_extreme(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "reduce");
  dispatch_all(x.dtype, "reduce", [&]<class T> {
    reduce_view<Reducer, T, T>(x, y, mask, context.workspace(), [](auto value) { return value; });
  });
}

}  // namespace

void sum_to_cpu(const TensorView& x, const TensorView& y, void* workspace) {
  dispatch_float(x.dtype, "sum_to",
                 [&]<class T> { sum_floats<T>(x, y, repeated_axes(x.shape, y.shape), workspace); });
}

size_t sum_to_workspace_cpu(const Shape& x, const Shape& y) {
  return partials_bytes(x, repeated_axes(x, y));
}

void register_reduce_cpu(OpRegistry& registry);
void register_reduce_cpu(OpRegistry& registry) {
  const auto add = [&](const char* name, size_t (*workspace)(const KernelQuery&),
                       void (*run)(const KernelContext&)) {
    registry.add_kernel(name, {.device = DeviceType::kCpu, .workspace_bytes = workspace, .run = run});
  };
  add("sum", reduce_workspace, run_sum);
  add("mean", reduce_workspace, run_mean);
  add("max", reduce_workspace, run_extreme<MaxReducer>);
  add("min", reduce_workspace, run_extreme<MinReducer>);
  add("sum_to", sum_to_workspace, run_sum_to);
  add("broadcast_to", nullptr, run_broadcast_to_cpu);
  add("max_grad", nullptr, run_max_grad_cpu);
  add("min_grad", nullptr, run_min_grad_cpu);
}

}  // namespace sinter::ops
