// sum, mean, max, min and sum_to. Every block folds its part in a fixed order; where the outputs alone do not
// fill a GPU, a second kernel combines the segments, sums of floats in double precision.
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_cuda.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/reduce/reduce_walk_cuda.h>

namespace sinter::ops {
namespace {

/// The type in which terms are accumulated.
template <class T, class Reducer>
using LaneType = std::conditional_t<std::is_integral_v<T> && std::is_same_v<Reducer, SumReducer>, int64_t,
                                    compute_type<T>>;

/// The type in which segments are combined.
template <class A, class Reducer>
using TotalType =
    std::conditional_t<std::is_same_v<A, float> && std::is_same_v<Reducer, SumReducer>, double, A>;

/// A reduced value as what is stored: means are divided by the number of terms, the rest by 1.
template <class Out, class A>
__device__ __forceinline__ Out finished(A total, double divisor) {
  if constexpr (std::is_floating_point_v<A>) {
    return cuda::round_to<Out>(divisor == 1.0 ? total : static_cast<A>(static_cast<double>(total) / divisor));
  } else {
    return static_cast<Out>(total);
  }
}

/// acc[j] = combine(acc[j], term j of every pack) for the packs of this thread's lane in one segment.
template <class Reducer, int pack, class T, class A>
__device__ __forceinline__ void accumulate(const ReduceWalk& walk, const T* base, int64_t begin, int64_t end,
                                           A (&acc)[pack]) {
  using Packed = cuda::Pack<T, pack>;
  constexpr int unroll = 4;  // loads in flight
  const int64_t step = walk.term_lanes;
  int64_t term = begin;
  for (; term + (unroll - 1) * step < end; term += unroll * step) {
    Packed loaded[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      loaded[u] = *reinterpret_cast<const Packed*>(base + walk.term_offset(term + u * step));
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        acc[j] = Reducer::combine(acc[j], static_cast<A>(cuda::load_as_compute(loaded[u].values[j])));
      }
    }
  }
  for (; term < end; term += step) {
    const Packed loaded = *reinterpret_cast<const Packed*>(base + walk.term_offset(term));
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      acc[j] = Reducer::combine(acc[j], static_cast<A>(cuda::load_as_compute(loaded.values[j])));
    }
  }
}

/// Reduces to `out`, or with more than one segment to `partials`, of shape (segments, outputs).
template <class Reducer, int pack, class T, class A, class Out>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_kernel(const __grid_constant__ ReduceWalk walk, const T* x, A* partials, Out* out,
                  double divisor) {
  __shared__ A values[pack * kReduceThreads];
  const unsigned term_lane = walk.term_lane();
  const int used = walk.terms_adjoin ? 1 : pack;  // values of a thread that are outputs of their own
  for (int64_t block = blockIdx.x; block < walk.blocks; block += gridDim.x) {
    const int64_t segment = block % walk.segments;
    const int64_t unit = block / walk.segments * walk.output_lanes + walk.output_lane();
    A acc[pack];
#pragma unroll
    for (int j = 0; j < pack; ++j) acc[j] = Reducer::template identity<A>();
    if (unit < walk.output_units) {
      const int64_t begin = segment * walk.segment_units;
      const int64_t end =
          begin + walk.segment_units < walk.term_units ? begin + walk.segment_units : walk.term_units;
      accumulate<Reducer, pack>(walk, x + walk.output_offset(unit), begin + term_lane, end, acc);
    }
    if (walk.terms_adjoin) {
#pragma unroll
      for (int j = 1; j < pack; ++j) acc[0] = Reducer::combine(acc[0], acc[j]);
    }
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j * kReduceThreads + static_cast<int>(threadIdx.x)] = acc[j];
    cuda::fold_lanes_of<pack>(values, used, kReduceThreads, threadIdx.x, term_lane, walk.term_lanes,
                              walk.lane_step(), [](A a, A b) { return Reducer::combine(a, b); });
    if (term_lane == 0 && unit < walk.output_units) {
      for (int j = 0; j < used; ++j) {
        const A total = values[j * kReduceThreads + static_cast<int>(threadIdx.x)];
        const int64_t output = unit * used + j;
        if (walk.segments == 1) {
          out[output] = finished<Out>(total, divisor);
        } else {
          partials[segment * walk.outputs + output] = total;
        }
      }
    }
    __syncthreads();  // values are used again
  }
}

/// Combines the segments of every output: `output_lanes` neighbouring outputs a block, the other threads over
/// segments.
template <class Reducer, class A, class Out>
__global__ void __launch_bounds__(kReduceThreads)
    combine_kernel(int64_t outputs, int64_t segments, unsigned output_lanes, const A* partials, Out* out,
                   double divisor) {
  using Total = TotalType<A, Reducer>;
  __shared__ Total values[kReduceThreads];
  const unsigned lanes = kReduceThreads / output_lanes;
  const unsigned lane = threadIdx.x / output_lanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * output_lanes;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * output_lanes; first < outputs; first += stride) {
    const int64_t output = first + (threadIdx.x & (output_lanes - 1));
    Total total = Reducer::template identity<Total>();
    if (output < outputs) {
      for (int64_t segment = lane; segment < segments; segment += lanes) {
        total = Reducer::combine(total, static_cast<Total>(partials[segment * outputs + output]));
      }
    }
    values[threadIdx.x] = total;
    cuda::fold_lanes(values, threadIdx.x, lane, lanes, output_lanes,
                     [](Total a, Total b) { return Reducer::combine(a, b); });
    if (lane == 0 && output < outputs) out[output] = finished<Out>(values[threadIdx.x], divisor);
    __syncthreads();
  }
}

/// Rows that are held in registers.
template <class Reducer, class T, class Out>
struct ResidentReduction {
  static constexpr int kArrays = 1;
  using C = compute_type<T>;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(x + first, Reducer::template identity<C>(), values);
    C total = Reducer::template identity<C>();
    row.each([&](int, C value) { total = Reducer::combine(total, value); }, values);
    total = reduce(total, Combine<Reducer>{});
    if (row.leads()) out[number] = finished<Out>(total, divisor);
  }

  const T* x;
  Out* out;
  double divisor;
};

template <class C>
struct Constant {
  C value;
  __device__ C operator()() const { return value; }
};

template <class Reducer, int pack, class T, class Out>
void launch_reduce(const Stream& stream, const ReducePlan& plan, const T* x, void* workspace, Out* out,
                   double divisor) {
  using A = LaneType<T, Reducer>;
  const ReduceWalk walk(plan, ReduceSchedule(plan, pack));
  auto* partials = static_cast<A*>(workspace);
  cuda::launch(stream, walk.launch_shape(), reduce_kernel<Reducer, pack, T, A, Out>, walk, x, partials, out,
               divisor);
  if (walk.segments == 1) return;
  unsigned output_lanes = 1;
  while (output_lanes < 32 && output_lanes < walk.outputs) output_lanes *= 2;
  cuda::launch(stream, cuda::grid_stride_shape(walk.outputs, output_lanes, kReduceThreads),
               combine_kernel<Reducer, A, Out>, walk.outputs, walk.segments, output_lanes,
               static_cast<const A*>(partials), out, divisor);
}

/// y = the reduction of x over the axes of `mask`, divided by `divisor` (1 for all but means).
template <class Reducer, class T, class Out>
void reduce_view(const Stream& stream, const TensorView& x, const TensorView& y, const AxisMask& mask,
                 void* workspace, double divisor) {
  if (y.numel() == 0) return;
  if (x.numel() == 0) {  // only sums and means get here
    const auto value = static_cast<compute_type<Out>>(divisor == 1.0 ? 0.0 : 0.0 / divisor);
    launch_elementwise(stream, y.numel(), Constant<compute_type<Out>>{value}, y.as<Out>());
    return;
  }
  const ReducePlan plan = plan_reduction(x.shape, mask);
  if constexpr (!std::is_integral_v<T>) {
    const ResidentReduction<Reducer, T, Out> rows{x.as<const T>(), y.as<Out>(), divisor};
    const bool is_even = packs_fit(plan, cuda::kPackSize<T>) && cuda::is_aligned(x.data, 16);
    if (!is_even && suits_resident_rows(plan, cuda::kPackSize<T>) &&
        launch_resident_rows<T>(stream, plan.outputs(), plan.rows, rows, {x.data})) {
      return;
    }
  }
  constexpr int pack = std::is_integral_v<T> ? 1 : cuda::kPackSize<T>;
  if (pack > 1 && packs_fit(plan, pack) && cuda::is_aligned(x.data, 16)) {
    launch_reduce<Reducer, pack>(stream, plan, x.as<const T>(), workspace, y.as<Out>(), divisor);
  } else {
    launch_reduce<Reducer, 1>(stream, plan, x.as<const T>(), workspace, y.as<Out>(), divisor);
  }
}

template <class Reducer, class T, class Out>
void reduce_view(const KernelContext& context, const AxisMask& mask, double divisor) {
  reduce_view<Reducer, T, Out>(context.stream(), context.input(0), context.output(0), mask,
                               context.workspace(), divisor);
}

/// Whether packs are used depends on where x lies, so the scratch is enough for both. No accumulator is wider
/// than 8 bytes.
size_t partials_bytes(const TensorSpec& x, const AxisMask& mask) {
  if (x.shape.numel() == 0) return 0;
  const ReducePlan plan = plan_reduction(x.shape, mask);
  const int pack = is_float(x.dtype) ? static_cast<int>(16 / size_of(x.dtype)) : 1;
  int64_t partials = ReduceSchedule(plan, 1).partials();
  if (packs_fit(plan, pack)) partials = std::max(partials, ReduceSchedule(plan, pack).partials());
  return static_cast<size_t>(partials) * sizeof(double);
}

size_t reduce_workspace(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  return partials_bytes(x, reduced_axes(query.attributes<ReduceAttributes>().axes, x.shape.rank(), "reduce"));
}

size_t sum_to_workspace(const KernelQuery& query) {
  return sum_to_workspace_cuda(query.input(0), query.output(0).shape);
}

AxisMask mask_of(const KernelContext& context) {
  return reduced_axes(context.attributes<ReduceAttributes>().axes, context.input(0).shape.rank(), "reduce");
}

void run_sum(const KernelContext& context) {
  dispatch_number(number_dtype(context.input(0).dtype), "sum", [&]<class T> {
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    reduce_view<SumReducer, T, Out>(context, mask_of(context), 1.0);
  });
}

void run_sum_to(const KernelContext& context) {
  sum_to_cuda(context.stream(), context.input(0), context.output(0), context.workspace());
}

void run_mean(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const double terms = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(y.numel(), 1));
  dispatch_float(x.dtype, "mean",
                 [&]<class T> { reduce_view<SumReducer, T, T>(context, mask_of(context), terms); });
}

template <class Reducer>
void run_extreme(const KernelContext& context) {
  dispatch_number(number_dtype(context.input(0).dtype), "reduce",
                  [&]<class T> { reduce_view<Reducer, T, T>(context, mask_of(context), 1.0); });
}

}  // namespace

void sum_to_cuda(const Stream& stream, const TensorView& x, const TensorView& y, void* workspace) {
  const AxisMask mask = repeated_axes(x.shape, y.shape);
  dispatch_float(x.dtype, "sum_to",
                 [&]<class T> { reduce_view<SumReducer, T, T>(stream, x, y, mask, workspace, 1.0); });
}

size_t sum_to_workspace_cuda(const TensorSpec& x, const Shape& y) {
  return partials_bytes(x, repeated_axes(x.shape, y));
}

void register_reduce_cuda(OpRegistry& registry);
void register_reduce_cuda(OpRegistry& registry) {
  const auto add = [&](const char* name, size_t (*workspace)(const KernelQuery&),
                       void (*run)(const KernelContext&)) {
    registry.add_kernel(name, {.device = DeviceType::kCuda, .workspace_bytes = workspace, .run = run});
  };
  add("sum", reduce_workspace, run_sum);
  add("mean", reduce_workspace, run_mean);
  add("max", reduce_workspace, run_extreme<MaxReducer>);
  add("min", reduce_workspace, run_extreme<MinReducer>);
  add("sum_to", sum_to_workspace, run_sum_to);
  add("broadcast_to", nullptr, run_broadcast_to_cuda);
  add("max_grad", extreme_grad_workspace_cuda, run_max_grad_cuda);
  add("min_grad", extreme_grad_workspace_cuda, run_min_grad_cuda);
}

}  // namespace sinter::ops
