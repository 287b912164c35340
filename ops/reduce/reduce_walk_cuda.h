// Where a block of a reduction finds its outputs and terms. For .cu files.
#pragma once

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/reduce/reduce_schedule.h>

namespace sinter::ops {

/// An AxisWalk with divisions prepared.
struct AxisWalkCuda {
  AxisWalkCuda() = default;
  explicit AxisWalkCuda(const AxisWalk& walk) : rank(walk.rank) {
    for (int i = 0; i < rank; ++i) {
      extents[i] = cuda::WideDivide(walk.extents[static_cast<size_t>(i)]);
      strides[i] = walk.strides[static_cast<size_t>(i)];
    }
  }

  __device__ int64_t offset(int64_t index) const {
    int64_t sum = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      int64_t place = 0;
      index = extents[axis].divide(index, place);
      sum += place * strides[axis];
    }
    return rank > 0 ? sum + index * strides[0] : 0;
  }

  int rank = 0;
  cuda::WideDivide extents[kMaxRank];
  int64_t strides[kMaxRank] = {};
};

/// A ReducePlan and its schedule as kernels read them; units are those of the schedule.
struct ReduceWalk {
  ReduceWalk(const ReducePlan& plan, const ReduceSchedule& schedule)
      : kept(plan.kept),
        reduced(plan.reduced),
        columns(schedule.terms_adjoin ? 1 : plan.columns / schedule.pack),
        rows(schedule.terms_adjoin ? plan.rows / schedule.pack : plan.rows),
        column_step(schedule.terms_adjoin ? 0 : schedule.pack),
        row_step(schedule.terms_adjoin ? schedule.pack : plan.columns),
        outputs(plan.outputs()),
        output_units(schedule.output_units),
        term_units(schedule.term_units),
        segment_units(schedule.segment_units),
        segments(schedule.segments),
        blocks(schedule.output_blocks * schedule.segments),
        term_lanes(static_cast<unsigned>(schedule.term_lanes)),
        output_lanes(static_cast<unsigned>(schedule.output_lanes)),
        terms_adjoin(schedule.terms_adjoin) {}

  /// One block of threads for every block of the schedule; kernels loop beyond.
  cuda::LaunchShape launch_shape() const { return cuda::grid_stride_shape(blocks, 1, kReduceThreads); }

  __device__ unsigned term_lane() const {
    return terms_adjoin ? threadIdx.x & (term_lanes - 1) : threadIdx.x / output_lanes;
  }
  __device__ unsigned output_lane() const {
    return terms_adjoin ? threadIdx.x / term_lanes : threadIdx.x & (output_lanes - 1);
  }
  /// How far apart the threads of one output are.
  __device__ unsigned lane_step() const { return terms_adjoin ? 1 : output_lanes; }

  /// Where output unit `unit` has its first term.
  __device__ int64_t output_offset(int64_t unit) const {
    int64_t column = 0;
    const int64_t block = columns.divide(unit, column);
    return kept.offset(block) + column * column_step;
  }
  /// Where term unit `unit` lies behind it.
  __device__ int64_t term_offset(int64_t unit) const {
    if (reduced.rank == 0) return unit * row_step;
    int64_t row = 0;
    const int64_t block = rows.divide(unit, row);
    return reduced.offset(block) + row * row_step;
  }

  AxisWalkCuda kept, reduced;
  cuda::WideDivide columns, rows;
  int64_t column_step, row_step;
  int64_t outputs, output_units, term_units, segment_units, segments, blocks;
  unsigned term_lanes, output_lanes;
  bool terms_adjoin;
};

/// Whether the reduction is one of the rows of a matrix that are better held in registers
/// (resident_rows_cuda.h), if they fit: many, lest they be cut into segments, and each long enough for a
/// warp.
inline bool suits_resident_rows(const ReducePlan& plan, int pack) {
  constexpr int64_t kLeastRows = 512;
  return plan.columns == 1 && plan.reduced.rank == 0 && plan.outputs() >= kLeastRows &&
         plan.rows >= 32 * pack;
}

template <class Reducer>
struct Combine {
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return Reducer::combine(a, b);
  }
};

}  // namespace sinter::ops
