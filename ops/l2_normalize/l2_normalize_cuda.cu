#include <cmath>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/rows/lines_cuda.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>

namespace sinter::ops {
namespace {

template <class T>
struct NormalizeLines {
  static constexpr int kArrays = 1;
  using C = compute_type<T>;
  struct Partial {
    C sum = 0;
  };

  template <int pack>
  __device__ void add(Partial& partial, int64_t at) const {
    C values[pack];
    load_pack(x + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) partial.sum += values[j] * values[j];
  }
  template <class Reduce>
  __device__ C finish(const Partial& partial, int64_t line, bool lead, Reduce reduce) const {
    const C norm = std::sqrt(reduce(partial.sum, SumOf{}));
    if (lead) norms[line] = norm;
    return norm < epsilon ? epsilon : norm;  // a NaN stays
  }
  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(x + first, C{0}, values);
    Partial partial;
    row.each([&](int, C value) { partial.sum += value * value; }, values);
    const C scale = finish(partial, number, row.leads(), reduce);
    row.each([&](int, C& value) { value /= scale; }, values);
    row.store(y + first, values);
  }
  template <int pack>
  __device__ void store(int64_t at, C scale) const {
    C values[pack];
    load_pack(x + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] /= scale;
    store_pack(y + at, values);
  }

  const T* x;
  T* y;
  C* norms;
  C epsilon;
};

template <class T>
struct NormalizeGradLines {
  static constexpr int kArrays = 2;
  using C = compute_type<T>;
  struct Partial {
    C sum = 0;
  };
  struct Line {
    C along, scale;
  };

  template <int pack>
  __device__ void add(Partial& partial, int64_t at) const {
    C values[pack], gradients[pack];
    load_pack(y + at, values);
    load_pack(dy + at, gradients);
#pragma unroll
    for (int j = 0; j < pack; ++j) partial.sum += values[j] * gradients[j];
  }
  template <class Reduce>
  __device__ Line finish(const Partial& partial, int64_t line, bool, Reduce reduce) const {
    const C along = reduce(partial.sum, SumOf{});
    // Threads beside the last column take part in the sum but have no line.
    const C norm = line < lines ? norms[line] : C{1};
    const bool clamped = norm < epsilon;
    return {clamped ? C{0} : along, C{1} / (clamped ? epsilon : norm)};
  }
  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values, gradients;
    row.load(y + first, C{0}, values);
    row.load(dy + first, C{0}, gradients);
    Partial partial;
    row.each([&](int, C value, C gradient) { partial.sum += value * gradient; }, values, gradients);
    const Line line = finish(partial, number, row.leads(), reduce);
    row.each([&](int, C value, C& gradient) { gradient = (gradient - value * line.along) * line.scale; },
             values, gradients);
    row.store(dx + first, gradients);
  }
  template <int pack>
  __device__ void store(int64_t at, const Line& line) const {
    C values[pack], gradients[pack];
    load_pack(y + at, values);
    load_pack(dy + at, gradients);
#pragma unroll
    for (int j = 0; j < pack; ++j) gradients[j] = (gradients[j] - values[j] * line.along) * line.scale;
    store_pack(dx + at, gradients);
  }

  const T* y;
  const T* dy;
  T* dx;
  const C* norms;
  int64_t lines;
  C epsilon;
};

AxisSplit split_of(const KernelContext& context) {
  const Shape& shape = context.input(0).shape;
  return split_at(
      shape, normalize_axis(context.attributes<L2NormalizeAttributes>().axis, shape.rank(), "l2_normalize"));
}

void run_l2_normalize(const KernelContext& context) {
  const AxisSplit split = split_of(context);
  dispatch_float(context.input(0).dtype, "l2_normalize", [&]<class T> {
    using C = compute_type<T>;
    const C epsilon = static_cast<C>(context.attributes<L2NormalizeAttributes>().epsilon);
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    launch_lines<T>(context.stream(), split, NormalizeLines<T>{x, y, context.output(1).as<C>(), epsilon},
                    {x, y});
  });
}

void run_l2_normalize_grad(const KernelContext& context) {
  const AxisSplit split = split_of(context);
  dispatch_float(context.input(0).dtype, "l2_normalize_grad", [&]<class T> {
    using C = compute_type<T>;
    const C epsilon = static_cast<C>(context.attributes<L2NormalizeAttributes>().epsilon);
    const T* y = context.input(0).as<const T>();
    const T* dy = context.input(2).as<const T>();
    T* dx = context.output(0).as<T>();
    const NormalizeGradLines<T> lines{
        y, dy, dx, context.input(1).as<const C>(), split.outer * split.inner, epsilon};
    launch_lines<T>(context.stream(), split, lines, {y, dy, dx});
  });
}

}  // namespace

void register_l2_normalize_cuda(OpRegistry& registry);
void register_l2_normalize_cuda(OpRegistry& registry) {
  registry.add_kernel("l2_normalize", {.device = DeviceType::kCuda, .run = run_l2_normalize});
  registry.add_kernel("l2_normalize_grad", {.device = DeviceType::kCuda, .run = run_l2_normalize_grad});
}

}  // namespace sinter::ops
