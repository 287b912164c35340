// Sums (and other reductions) per channel on a GPU, in two deterministic stages: every block reduces one part
// of a channel, or of neighbouring channels, to doubles in a table; then one kernel merges the parts and
// finishes. For .cu files.
//
// An Op says what is reduced:
//   kValues                     results per channel, at most 2
//   Thread<pack, step>          one thread's state: pack results side by side, of channels `step` apart (1,
//   or 0: all
//                               of one channel); values[k][lane] and count are the results so far
//     start(op, channel)        loads the parameters of the channels
//     begin(op, offset)         starts a chunk whose first pack lies at element `offset`
//     add(op, offset)           takes in the pack at element `offset`
//     flush(n)                  ends a chunk of n packs: takes it into values and count
//   merge(a, count, b, other)   takes the results b over `other` elements into a over `count`; either may be
//   empty
// A Finish is called on the device as finish(channel, values, count) with the results of every channel.
#pragma once

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/channel_view.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/pool/channels/channel_plan.h>

namespace sinter::ops {

/// An Op of plain sums. Terms gives compute type `Compute`, `kValues`, `Parameter parameter(channel)` and
/// `add<pack>(offset, parameters, sums)`, which adds the terms of `pack` elements to sums[kValues][pack].
template <class Terms>
struct ChannelSums {
  using C = typename Terms::Compute;
  static constexpr int kValues = Terms::kValues;

  Terms terms;

  template <int pack, int step>
  struct Thread {
    typename Terms::Parameter parameters[pack];
    C sums[kValues][pack];
    double values[kValues][pack] = {};
    double count = 0.0;

    __device__ void start(const ChannelSums& op, int64_t channel) {
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) parameters[lane] = op.terms.parameter(channel + lane * step);
    }
    __device__ void begin(const ChannelSums&, int64_t) {
#pragma unroll
      for (int i = 0; i < kValues * pack; ++i) sums[i / pack][i % pack] = C{0};
    }
    __device__ void add(const ChannelSums& op, int64_t offset) {
      op.terms.template add<pack>(offset, parameters, sums);
    }
    __device__ void flush(int n) {
#pragma unroll
      for (int i = 0; i < kValues * pack; ++i) {
        values[i / pack][i % pack] += static_cast<double>(sums[i / pack][i % pack]);
      }
      count += n;
    }
  };

  static __device__ void merge(double* a, double, const double* b, double) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) a[k] += b[k];
  }
};

namespace detail {

/// Packs that are summed in the compute type before they go to double precision.
constexpr int kChannelChunk = 64;

/// Takes in `left` packs, the first one at element at(0), the next at at(1), ...
template <class Op, class Thread, class At>
__device__ __forceinline__ void take_packs(Thread& thread, const Op& op, int64_t left, At at) {
  for (int64_t first = 0; first < left; first += kChannelChunk) {
    const int n = static_cast<int>(left - first < kChannelChunk ? left - first : kChannelChunk);
    thread.begin(op, at(first));
#pragma unroll 4
    for (int i = 0; i < n; ++i) thread.add(op, at(first + i));
    thread.flush(n);
  }
}

/// Results of a block's threads, `width` per thread, while they are merged.
template <class Op, int width, int threads>
struct ChannelTable {
  double values[Op::kValues][width * threads];
  double counts[threads];

  __device__ void merge(int to, int from, double count, double other) {
    double a[Op::kValues], b[Op::kValues];
#pragma unroll
    for (int k = 0; k < Op::kValues; ++k) a[k] = values[k][to], b[k] = values[k][from];
    Op::merge(a, count, b, other);
#pragma unroll
    for (int k = 0; k < Op::kValues; ++k) values[k][to] = a[k];
  }

  /// Merges thread `thread` with those below it, which are multiples of `columns` behind; `rows` (a power of
  /// 2) of them lie below each other. The first row's threads end up with the results, in their own places.
  /// To be called by all threads of the block, each of which has written its own places.
  __device__ void merge_rows(int thread, int columns, int rows) {
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half * columns) {
        const int from = thread + half * columns;
#pragma unroll
        for (int lane = 0; lane < width; ++lane) {
          merge(lane * threads + thread, lane * threads + from, counts[thread], counts[from]);
        }
        counts[thread] += counts[from];
      }
    }
  }
};

/// Block (column tile of a group, part) of plan_channel_rows.
template <int pack, class Op>
__global__ void __launch_bounds__(ChannelPlan::kThreads)
    reduce_rows_kernel(Op op, ChannelPlan plan, int64_t channels, double* table) {
  __shared__ ChannelTable<Op, pack, ChannelPlan::kThreads> shared;
  const int id = static_cast<int>(threadIdx.x), columns = plan.columns,
            lanes = ChannelPlan::kThreads / columns;
  const int lane = id / columns;
  const int64_t group = blockIdx.x / plan.tiles, tile = blockIdx.x - group * plan.tiles;
  const int64_t channel = (tile * columns + id % columns) * pack, part = blockIdx.y;
  const int64_t first = plan.items * part / plan.parts + lane, last = plan.items * (part + 1) / plan.parts;
  typename Op::template Thread<pack, 1> thread;
  if (channel < channels) {
    thread.start(op, channel);
    const int64_t origin = (group * plan.items + first) * channels + channel, stride = lanes * channels;
    const int64_t count = first < last ? (last - first + lanes - 1) / lanes : 0;
    take_packs(thread, op, count, [=](int64_t i) { return origin + i * stride; });
  }
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) {
#pragma unroll
    for (int v = 0; v < pack; ++v) shared.values[k][v * ChannelPlan::kThreads + id] = thread.values[k][v];
  }
  shared.counts[id] = thread.count;
  shared.merge_rows(id, columns, lanes);
  if (lane != 0 || channel >= channels) return;
  double* to = table + part * plan.sums + group * channels + channel;
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) {
#pragma unroll
    for (int v = 0; v < pack; ++v) {
      to[k * plan.parts * plan.sums + v] = shared.values[k][v * ChannelPlan::kThreads + id];
    }
  }
}

/// Block (channel, part) of plan_channel_runs. `run` divides by the packs of a run, of which there are
/// `run_packs`.
template <int pack, class Index, class Op>
__global__ void __launch_bounds__(ChannelPlan::kThreads)
    reduce_runs_kernel(Op op, ChannelPlan plan, IndexDivide<Index> run, int64_t run_packs, double* table) {
  constexpr int threads = ChannelPlan::kThreads;
  __shared__ ChannelTable<Op, 1, threads> shared;
  const int id = static_cast<int>(threadIdx.x);
  const int64_t channel = blockIdx.x, part = blockIdx.y, channels = plan.sums;
  const int64_t first = plan.items * part / plan.parts + id, last = plan.items * (part + 1) / plan.parts;
  const int64_t count = first < last ? (last - first + threads - 1) / threads : 0;
  typename Op::template Thread<pack, 0> thread;
  thread.start(op, channel);
  take_packs(thread, op, count, [=](int64_t i) {
    Index place;
    const Index outer = run.divide(static_cast<Index>(first + i * threads), place);
    return ((outer * channels + channel) * run_packs + place) * pack;
  });
  double result[Op::kValues], results = thread.count;
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) result[k] = thread.values[k][0];
#pragma unroll
  for (int v = 1; v < pack; ++v) {
    double other[Op::kValues];
#pragma unroll
    for (int k = 0; k < Op::kValues; ++k) other[k] = thread.values[k][v];
    Op::merge(result, results, other, thread.count);
    results += thread.count;
  }
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) shared.values[k][id] = result[k];
  shared.counts[id] = results;
  shared.merge_rows(id, 1, threads);
  if (id != 0) return;
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k)
    table[(k * plan.parts + part) * channels + channel] = shared.values[k][0];
}

constexpr int kFoldSide = 32;

/// Merges the parts of 32 channels per block, 32 threads to a channel, and finishes them.
template <class Op, class Finish>
__global__ void __launch_bounds__(kFoldSide* kFoldSide)
    fold_parts_kernel(ChannelPlan plan, const double* table, Finish finish) {
  constexpr int threads = kFoldSide * kFoldSide;
  __shared__ ChannelTable<Op, 1, threads> shared;
  const int id = static_cast<int>(threadIdx.x), lane = id / kFoldSide;
  const int64_t channel = int64_t{blockIdx.x} * kFoldSide + id % kFoldSide;
  double values[Op::kValues] = {}, count = 0.0;
  if (channel < plan.sums) {
    for (int64_t part = lane; part < plan.parts; part += kFoldSide) {
      double other[Op::kValues];
#pragma unroll
      for (int k = 0; k < Op::kValues; ++k) other[k] = table[(k * plan.parts + part) * plan.sums + channel];
      const int64_t items = plan.items * (part + 1) / plan.parts - plan.items * part / plan.parts;
      const double others = static_cast<double>(items * plan.per_item);
      Op::merge(values, count, other, others);
      count += others;
    }
  }
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) shared.values[k][id] = values[k];
  shared.counts[id] = count;
  shared.merge_rows(id, kFoldSide, kFoldSide);
  if (lane != 0 || channel >= plan.sums) return;
#pragma unroll
  for (int k = 0; k < Op::kValues; ++k) values[k] = shared.values[k][id];
  finish(channel, static_cast<const double*>(values), shared.counts[id]);
}

template <class Op, class Finish>
void fold_parts(const Stream& stream, const ChannelPlan& plan, const double* table, Finish finish) {
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(cuda::blocks_for(plan.sums, kFoldSide))),
                                dim3(kFoldSide * kFoldSide)};
  cuda::launch(stream, shape, fold_parts_kernel<Op, Finish>, plan, table, finish);
}

inline cuda::LaunchShape channel_shape(const ChannelPlan& plan, int64_t groups) {
  return {dim3(static_cast<unsigned>(groups * plan.tiles), static_cast<unsigned>(plan.parts)),
          dim3(ChannelPlan::kThreads)};
}

}  // namespace detail

/// With one channel, or one element per run, there is a simpler view of the same tensor.
inline ChannelView simplified(const ChannelView& view) {
  return view.channels == 1 ? ChannelView{.outer = 1, .channels = 1, .inner = view.numel()} : view;
}

/// Bytes of the table of reduce_channels over a tensor of elements of `element` bytes, aligned or not.
inline size_t reduce_channels_bytes(const ChannelView& any_view, int values, size_t element) {
  const ChannelView view = simplified(any_view);
  const int64_t pack = 16 / static_cast<int64_t>(element);
  const auto bytes = [&](int64_t size) {
    const bool rows = view.inner == 1;
    if ((rows ? view.channels : view.inner) % size != 0) return size_t{0};
    const ChannelPlan plan = rows ? plan_channel_rows(1, view.outer, view.channels, size)
                                  : plan_channel_runs(view.outer, view.channels, view.inner, size);
    return plan.table_bytes(values);
  };
  return std::max(bytes(1), bytes(pack));
}

/// Reduces `groups` matrices of `rows` x `channels` over their rows. `pack` is 1, or divides `channels` and
/// all of the Op's pointers allow accesses of pack elements.
template <int pack, class Op, class Finish>
void reduce_rows(const Stream& stream, int64_t groups, int64_t rows, int64_t channels, const Op& op,
                 double* table, const Finish& finish) {
  const ChannelPlan plan = plan_channel_rows(groups, rows, channels, pack);
  cuda::launch(stream, detail::channel_shape(plan, groups), detail::reduce_rows_kernel<pack, Op>, op, plan,
               channels, table);
  detail::fold_parts<Op>(stream, plan, table, finish);
}

/// Reduces every channel of a tensor of elements of type T and finishes it; an empty tensor has results 0 and
/// count 0. `aligned`: all of the Op's pointers allow accesses of 16 bytes. `table`: scratch of
/// reduce_channels_bytes.
template <class T, class Op, class Finish>
void reduce_channels(const Stream& stream, const ChannelView& any_view, bool aligned, const Op& op,
                     double* table, const Finish& finish) {
  constexpr int widest = cuda::kPackSize<T>;
  const ChannelView view = simplified(any_view);
  if (view.inner == 1) {
    const bool wide = aligned && view.channels % widest == 0;
    const auto reduce = wide ? reduce_rows<widest, Op, Finish> : reduce_rows<1, Op, Finish>;
    reduce(stream, 1, view.outer, view.channels, op, table, finish);
    return;
  }
  const auto reduce = [&]<int pack, class Index>() {
    const ChannelPlan plan = plan_channel_runs(view.outer, view.channels, view.inner, pack);
    if (plan.parts > 0) {
      const int64_t run_packs = view.inner / pack;
      cuda::launch(stream, detail::channel_shape(plan, 1), detail::reduce_runs_kernel<pack, Index, Op>, op,
                   plan, IndexDivide<Index>(static_cast<Index>(run_packs)), run_packs, table);
    }
    detail::fold_parts<Op>(stream, plan, table, finish);
  };
  dispatch_index(view.numel(), [&]<class Index> {
    if (aligned && view.inner % widest == 0) {
      reduce.template operator()<widest, Index>();
    } else {
      reduce.template operator()<1, Index>();
    }
  });
}

}  // namespace sinter::ops
