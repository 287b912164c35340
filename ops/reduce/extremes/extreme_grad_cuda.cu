// The gradients of max and min: dy at the first extreme element of every group, 0 elsewhere.
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/reduce/arg_reduce_cuda.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_cuda.h>

namespace sinter::ops {
namespace {

template <class T>
struct ScatterGradient {
  const T* dy;
  T* dx;
  __device__ void operator()(const ReduceWalk& walk, int64_t output, int64_t term) const {
    dx[walk.output_offset(output) + walk.term_offset(term)] = dy[output];
  }
};

/// A row of x in registers becomes one of dx.
template <class Reducer, class T>
struct ResidentExtremeGrad {
  static constexpr int kArrays = 1;
  using C = compute_type<T>;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(x + first, Reducer::template identity<C>(), values);
    const C gradient = cuda::load_as_compute(dy[number]);
    const int extreme = first_extreme_column<Reducer>(row, values, reduce);
    row.each([&](int column, C& value) { value = column == extreme ? gradient : C{0}; }, values);
    row.store(dx + first, values);
  }

  const T* x;
  const T* dy;
  T* dx;
};

/// False if the reduction is not one of rows that fit.
template <class Reducer>
bool run_on_rows(const KernelContext& context, const ReducePlan& plan) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  bool done = false;
  dispatch_float(x.dtype, "reduce", [&]<class T> {
    const ResidentExtremeGrad<Reducer, T> rows{x.as<const T>(), dy.as<const T>(), dx.as<T>()};
    done = suits_resident_rows(plan, cuda::kPackSize<T>) &&
           launch_resident_rows<T>(context.stream(), plan.outputs(), plan.rows, rows, {x.data, dx.data});
  });
  return done;
}

template <class Reducer>
void run_extreme_grad(const KernelContext& context) {
  const TensorView &x = context.input(0), &dy = context.input(1), &dx = context.output(0);
  if (x.numel() == 0) return;
  const AxisMask mask = reduced_axes(context.attributes<ReduceAttributes>().axes, x.shape.rank(), "reduce");
  const ReducePlan plan = plan_reduction(x.shape, mask);
  if (run_on_rows<Reducer>(context, plan)) return;
  // Zero is all bits zero in every floating-point dtype.
  SINTER_CUDA_CHECK(cudaMemsetAsync(dx.data, 0, static_cast<size_t>(dx.numel()) * size_of(dx.dtype),
                                    static_cast<cudaStream_t>(context.stream().native)));
  dispatch_float(x.dtype, "reduce", [&]<class T> {
    launch_arg_reduce<Reducer>(context.stream(), x.shape, mask, x.as<const T>(), context.workspace(),
                               ScatterGradient<T>{dy.as<const T>(), dx.as<T>()});
  });
}

}  // namespace

void run_max_grad_cuda(const KernelContext& context) {
  run_extreme_grad<MaxReducer>(context);
}

void run_min_grad_cuda(const KernelContext& context) {
  run_extreme_grad<MinReducer>(context);
}

size_t extreme_grad_workspace_cuda(const KernelQuery& query) {
  const Shape& x = query.input(0).shape;
  return arg_reduce_workspace(x, reduced_axes(query.attributes<ReduceAttributes>().axes, x.rank(), "reduce"));
}

}  // namespace sinter::ops
