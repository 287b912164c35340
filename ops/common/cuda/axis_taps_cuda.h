// Images made of images of another size, rows and columns weighted apart (axis_taps.h). Each thread walks
// down a strip of rows: what two rows of the result share is read and weighted across once, and kept in
// registers. For .cu files.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/axis_taps.h>

namespace sinter::ops {
namespace detail {

/// Element `lane` images further on; lanes beyond the last image read the last once more, so that no load
/// waits for a branch.
__device__ __forceinline__ int lane_offset(const TapPlace& place, int lane, int image) {
  return min(lane, place.last_lane) * image;
}

/// The taps of the fine side's rows. All threads of a block want the same, so they are worked out once,
/// unless there are too many to keep.
template <class Axis, class C>
struct RowTaps {
  static constexpr int kMost = 512;

  /// Called by all threads of a block; `table` holds kMost.
  __device__ RowTaps(const Axis& rows, int count, AxisTap<C>* memory)
      : axis(rows), table(count <= kMost ? memory : nullptr) {
    if (table == nullptr) return;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += TapPlan::kThreads) {
      table[i] = axis.template tap<C>(i);
    }
    __syncthreads();
  }
  __device__ __forceinline__ AxisTap<C> operator()(int row) const {
    return table != nullptr ? table[row] : axis.template tap<C>(row);
  }

  const Axis& axis;
  AxisTap<C>* table;
};

/// The result's row of a thread's elements, from `to` on in its first image.
template <int pack, int lanes, class C, class T>
__device__ __forceinline__ void store_lanes(const TapPlan& plan, const TapPlace& place,
                                            const C (&values)[lanes][pack], T* to) {
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    if (lane > place.last_lane) break;
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int i = 0; i < pack; ++i) result.values[i] = cuda::round_to<T>(values[lane][i]);
    *reinterpret_cast<cuda::Pack<T, pack>*>(to + lane * plan.image) = result;
  }
}

/// To the fine side: each pixel from at most two rows and two columns.
template <int pack, int lanes, class Axis, class T>
__global__ void __launch_bounds__(TapPlan::kThreads)
    spread_taps_kernel(__grid_constant__ const TapPlan plan, __grid_constant__ const Axis rows,
                       __grid_constant__ const Axis columns, const T* source, T* result) {
  using C = compute_type<T>;
  __shared__ AxisTap<C> table[RowTaps<Axis, C>::kMost];
  const RowTaps<Axis, C> row_taps(rows, plan.rows, table);
  const int64_t thread = int64_t{blockIdx.x} * TapPlan::kThreads + threadIdx.x;
  if (thread >= plan.threads) return;
  const TapPlace place(plan, static_cast<uint32_t>(thread));
  const AxisTap<C> across = columns.template tap<C>(place.column);
  const T* const from =
      source + place.first_image * plan.source_image + int64_t{across.first} * plan.inner + place.channel;
  T* to = result + place.first_image * plan.image +
          (int64_t{place.first_row} * plan.columns + place.column) * plan.inner + place.channel;

  C above[lanes][pack] = {}, below[lanes][pack] = {};
  const auto read_row = [&](int row, C(&values)[lanes][pack]) {
    const T* const at = from + row * plan.source_row;
    cuda::Pack<T, pack> first[lanes] = {}, next[lanes] = {};
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const T* const pixel = at + lane_offset(place, lane, plan.source_image);
      if (across.weight != C{0}) first[lane] = *reinterpret_cast<const cuda::Pack<T, pack>*>(pixel);
      if (!Axis::kSingle && across.next_weight != C{0}) {
        next[lane] = *reinterpret_cast<const cuda::Pack<T, pack>*>(pixel + plan.inner);
      }
    }
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        const C value = across.weight * cuda::load_as_compute(first[lane].values[i]);
        const C more = across.next_weight * cuda::load_as_compute(next[lane].values[i]);
        values[lane][i] = !Axis::kSingle && across.next_weight != C{0} ? value + more : value;
      }
    }
  };
  int held = -1;          // the row in `above`
  bool has_next = false;  // whether the one after it is in `below`
  for (int row = place.first_row; row < place.last_row; ++row, to += plan.columns * plan.inner) {
    const AxisTap<C> down = row_taps(row);
    if (down.weight != C{0} && down.first != held) {
      if (has_next && down.first == held + 1) {
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
          for (int i = 0; i < pack; ++i) above[lane][i] = below[lane][i];
        }
      } else {
        read_row(down.first, above);
      }
      held = down.first;
      has_next = false;
    }
    const bool mixes = !Axis::kSingle && down.next_weight != C{0};
    if (mixes && !has_next) {
      read_row(held + 1, below);
      has_next = true;
    }
    C values[lanes][pack];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        const C value = down.weight != C{0} ? down.weight * above[lane][i] : C{0};
        values[lane][i] = mixes ? value + down.next_weight * below[lane][i] : value;
      }
    }
    store_lanes(plan, place, values, to);
  }
}

/// What column `column` of the coarse side takes of a row of the fine one.
template <int pack, int lanes, class Axis, class T>
struct RowCollector {
  using C = compute_type<T>;
  static constexpr int kShort = 4;  // columns whose weights are kept

  __device__ RowCollector(const TapPlan& the_plan, const TapPlace& the_place, const Axis& axis,
                          const T* source)
      : plan(the_plan), place(the_place), columns(axis), span(columns.span(place.column)) {
    from = source + place.first_image * plan.source_image + int64_t{span.begin} * plan.inner + place.channel;
    if constexpr (Axis::kEven) {
      weights[0] = columns.template weight<C>(place.column);
    } else {
#pragma unroll
      for (int i = 0; i < kShort; ++i) {
        weights[i] =
            span.begin + i < span.end ? columns.template tap<C>(span.begin + i).of(place.column) : C{0};
      }
    }
  }

  /// Adds `most` columns from `first` on, as far as they are there. All loads are on their way before the
  /// first is looked at.
  template <int most>
  __device__ __forceinline__ void add(const T* at, int first, C (&sums)[lanes][pack]) const {
    C weight[most];
    cuda::Pack<T, pack> elements[most][lanes] = {};
#pragma unroll
    for (int i = 0; i < most; ++i) {
      weight[i] = weight_at(first, i);
      if (weight[i] == C{0}) continue;
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        elements[i][lane] = *reinterpret_cast<const cuda::Pack<T, pack>*>(
            at + (first + i) * plan.inner + lane_offset(place, lane, plan.source_image));
      }
    }
#pragma unroll
    for (int i = 0; i < most; ++i) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
        for (int k = 0; k < pack; ++k) {
          sums[lane][k] += weight[i] * cuda::load_as_compute(elements[i][lane].values[k]);
        }
      }
    }
  }
  /// Of column first + i; 0 behind the last.
  __device__ __forceinline__ C weight_at(int first, int i) const {
    if constexpr (Axis::kEven) return first + i < span.end - span.begin ? weights[0] : C{0};
    if (first == 0) return weights[i];
    const int column = span.begin + first + i;
    return column < span.end ? columns.template tap<C>(column).of(place.column) : C{0};
  }
  __device__ __forceinline__ void read(int row, C (&sums)[lanes][pack]) const {
    const T* const at = from + row * plan.source_row;
    const int count = span.end - span.begin;
    if (count <= 2) {
      add<2>(at, 0, sums);
    } else if (count == 3) {
      add<3>(at, 0, sums);
    } else {
      for (int first = 0; first < count; first += kShort) add<kShort>(at, first, sums);
    }
  }

  const TapPlan& plan;
  const TapPlace& place;
  const Axis& columns;
  TapSpan span;
  const T* from;
  C weights[kShort];
};

/// To the coarse side: each pixel from all that belong to it, in the order of their rows and columns.
template <int pack, int lanes, class Axis, class T>
__global__ void __launch_bounds__(TapPlan::kThreads, sizeof(T) == sizeof(double) ? 2 : 3)
    collect_taps_kernel(__grid_constant__ const TapPlan plan, __grid_constant__ const Axis rows,
                        __grid_constant__ const Axis columns, const T* source, T* result) {
  using C = compute_type<T>;
  __shared__ AxisTap<C> table[RowTaps<Axis, C>::kMost];
  const RowTaps<Axis, C> row_taps(rows, plan.source_rows, table);
  const int64_t thread = int64_t{blockIdx.x} * TapPlan::kThreads + threadIdx.x;
  if (thread >= plan.threads) return;
  const TapPlace place(plan, static_cast<uint32_t>(thread));
  const RowCollector<pack, lanes, Axis, T> collector(plan, place, columns, source);
  T* to = result + place.first_image * plan.image +
          (int64_t{place.first_row} * plan.columns + place.column) * plan.inner + place.channel;

  C sums[lanes][pack] = {}, next_sums[lanes][pack] = {};  // of `row`, and of the row after it
  int row = place.first_row;
  const auto finish_row = [&] {
    store_lanes(plan, place, sums, to);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        sums[lane][i] = Axis::kSingle ? C{0} : next_sums[lane][i];
        next_sums[lane][i] = C{0};
      }
    }
    to += plan.columns * plan.inner;
    ++row;
  };
  const int end = rows.span(place.last_row - 1).end;
  for (int from = rows.span(place.first_row).begin; from < end; ++from) {
    const AxisTap<C> down = row_taps(from);
    while (row < down.first && row < place.last_row) finish_row();
    const C weight = down.of(row), next_weight = down.of(row + 1);
    if (weight == C{0} && next_weight == C{0}) continue;
    C values[lanes][pack] = {};
    collector.read(from, values);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        const C value = values[lane][i];
        if (weight != C{0}) sums[lane][i] += weight * value;
        if (!Axis::kSingle && next_weight != C{0}) next_sums[lane][i] += next_weight * value;
      }
    }
  }
  while (row < place.last_row) finish_row();
}

}  // namespace detail

/// `result` from `source`, which do not overlap; `collects`: to the coarse side, else to the fine one.
/// False if these kernels cannot take the call: nothing was launched.
template <bool collects, class Axis, class T>
bool launch_taps(const Stream& stream, const TapExtents& extents, const Axis& rows, const Axis& columns,
                 const T* source, T* result) {
  constexpr int widest = cuda::kPackSize<T>;
  constexpr int most_lanes = collects ? std::min(widest, 4) : widest;  // sums of two rows need registers
  const bool aligned = cuda::is_aligned(source, 16) && cuda::is_aligned(result, 16);
  const TapPlan plan = plan_taps(extents, widest, most_lanes, aligned);
  if (plan.threads == 0) return false;
  const auto shape = cuda::grid_stride_shape(plan.threads, TapPlan::kThreads, TapPlan::kThreads);
  const auto run = [&]<int pack, int lanes>() {
    if constexpr (collects) {
      cuda::launch(stream, shape, detail::collect_taps_kernel<pack, lanes, Axis, T>, plan, rows, columns,
                   source, result);
    } else {
      cuda::launch(stream, shape, detail::spread_taps_kernel<pack, lanes, Axis, T>, plan, rows, columns,
                   source, result);
    }
  };
  if (plan.pack > 1) {
    run.template operator()<widest, 1>();
  } else if (plan.lanes > 1) {
    run.template operator()<1, most_lanes>();
  } else {
    run.template operator()<1, 1>();
  }
  return true;
}

}  // namespace sinter::ops
