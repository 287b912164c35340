// The place of the first extreme element along reduced axes, for argmax and the gradients of max and min. For
// .cu files.
#pragma once

#include <climits>

#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/reduce/reduce_walk_cuda.h>

namespace sinter::ops {

/// A value and the term at which it stands; terms count in row-major order.
template <class C>
struct Place {
  C value;
  int64_t term;
};

/// The extreme one of two places, the first of equals. A strict total order, so any order of combining gives
/// one result.
template <class Reducer, class C>
__device__ __forceinline__ Place<C> first_extreme(const Place<C>& a, const Place<C>& b) {
  if (Reducer::replaces(b.value, a.value)) return b;
  if (Reducer::replaces(a.value, b.value)) return a;
  return b.term < a.term ? b : a;
}

/// What first_extreme never prefers to an element.
template <class Reducer, class C>
__device__ __forceinline__ Place<C> no_place() {
  return {Reducer::template identity<C>(), LLONG_MAX};
}

namespace detail {

/// Calls store(output, term) for every output, or writes the places of the segments to `partials`.
template <class Reducer, class T, class Store>
__global__ void __launch_bounds__(kReduceThreads)
    arg_reduce_kernel(const __grid_constant__ ReduceWalk walk, const T* x, Place<compute_type<T>>* partials,
                      Store store) {
  using C = compute_type<T>;
  __shared__ Place<C> places[kReduceThreads];
  const unsigned term_lane = walk.term_lane();
  for (int64_t block = blockIdx.x; block < walk.blocks; block += gridDim.x) {
    const int64_t segment = block % walk.segments;
    const int64_t output = block / walk.segments * walk.output_lanes + walk.output_lane();
    Place<C> best = no_place<Reducer, C>();
    if (output < walk.output_units) {
      const T* base = x + walk.output_offset(output);
      const int64_t begin = segment * walk.segment_units;
      const int64_t end =
          begin + walk.segment_units < walk.term_units ? begin + walk.segment_units : walk.term_units;
      for (int64_t term = begin + term_lane; term < end; term += walk.term_lanes) {
        const Place<C> place{cuda::load_as_compute(base[walk.term_offset(term)]), term};
        best = first_extreme<Reducer>(best, place);
      }
    }
    places[threadIdx.x] = best;
    cuda::fold_lanes(places, threadIdx.x, term_lane, walk.term_lanes, walk.lane_step(),
                     [](const Place<C>& a, const Place<C>& b) { return first_extreme<Reducer>(a, b); });
    if (term_lane == 0 && output < walk.output_units) {
      const Place<C> found = places[threadIdx.x];
      if (walk.segments == 1) {
        store(walk, output, found.term);
      } else {
        partials[segment * walk.outputs + output] = found;
      }
    }
    __syncthreads();  // places are used again
  }
}

/// Combines the segments: one warp's worth of lanes per output.
template <class Reducer, class C, class Store>
__global__ void __launch_bounds__(kReduceThreads)
    arg_combine_kernel(const __grid_constant__ ReduceWalk walk, const Place<C>* partials, Store store) {
  constexpr unsigned lanes = 32;
  __shared__ Place<C> places[kReduceThreads];
  const unsigned lane = threadIdx.x % lanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kReduceThreads / lanes);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * (kReduceThreads / lanes); first < walk.outputs;
       first += stride) {
    const int64_t output = first + threadIdx.x / lanes;
    Place<C> best = no_place<Reducer, C>();
    if (output < walk.outputs) {
      for (int64_t segment = lane; segment < walk.segments; segment += lanes) {
        best = first_extreme<Reducer>(best, partials[segment * walk.outputs + output]);
      }
    }
    places[threadIdx.x] = best;
    cuda::fold_lanes(places, threadIdx.x, lane, lanes, 1u,
                     [](const Place<C>& a, const Place<C>& b) { return first_extreme<Reducer>(a, b); });
    if (lane == 0 && output < walk.outputs) store(walk, output, places[threadIdx.x].term);
    __syncthreads();
  }
}

}  // namespace detail

/// The column of the first extreme element; every thread of the row gets it.
template <class Reducer, class Row, class Reduce>
__device__ __forceinline__ int first_extreme_column(const Row& row, typename Row::Values& values,
                                                    Reduce reduce) {
  using C = typename Row::C;
  C best = Reducer::template identity<C>();
  int column = INT_MAX;  // until something replaces the identity, as what lies outside the row never does
  row.each(
      [&](int at, C value) {
        const bool replaces = Reducer::replaces(value, best);
        best = replaces ? value : best;
        column = replaces ? at : column;
      },
      values);
  const C extreme = reduce(best, Combine<Reducer>{});
  const bool equal = best == extreme || (best != best && extreme != extreme);
  column = reduce(equal ? column : INT_MAX, Combine<MinReducer>{});
  return column == INT_MAX ? 0 : column;  // all elements are the identity
}

/// Calls store(row number, column of the first extreme element) for every row.
template <class Reducer, class T, class Store>
struct ResidentPlaces {
  static constexpr int kArrays = 1;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(x + first, Reducer::template identity<typename Row::C>(), values);
    const int column = first_extreme_column<Reducer>(row, values, reduce);
    if (row.leads()) store(number, column);
  }

  const T* x;
  Store store;
};

/// Scratch of launch_arg_reduce for an x of this shape.
inline size_t arg_reduce_workspace(const Shape& x, const AxisMask& mask) {
  if (x.numel() == 0) return 0;
  const ReduceSchedule schedule(plan_reduction(x, mask), 1);
  return static_cast<size_t>(schedule.partials()) * sizeof(Place<double>);
}

/// Calls `store(walk, output, term)` on the device with the first extreme term of every output of the
/// reduction of x, which has elements; walk.output_offset(output) + walk.term_offset(term) is its place in x.
template <class Reducer, class T, class Store>
void launch_arg_reduce(const Stream& stream, const Shape& shape, const AxisMask& mask, const T* x,
                       void* workspace, Store store) {
  using C = compute_type<T>;
  const ReducePlan plan = plan_reduction(shape, mask);
  const ReduceWalk walk(plan, ReduceSchedule(plan, 1));
  auto* partials = static_cast<Place<C>*>(workspace);
  cuda::launch(stream, walk.launch_shape(), detail::arg_reduce_kernel<Reducer, T, Store>, walk, x, partials,
               store);
  if (walk.segments == 1) return;
  const auto shape_of_rest = cuda::grid_stride_shape(walk.outputs, kReduceThreads / 32, kReduceThreads);
  cuda::launch(stream, shape_of_rest, detail::arg_combine_kernel<Reducer, C, Store>, walk, partials, store);
}

}  // namespace sinter::ops
