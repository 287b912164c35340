#include <cmath>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/rows/lines_cuda.h>
#include <sinter/ops/softmax/softmax.h>

namespace sinter::ops {
namespace {

/// softmax, or with `logarithm` log_softmax.
template <class T>
struct SoftmaxLines {
  static constexpr int kArrays = 1;
  using C = compute_type<T>;
  using Partial = LogSumExp<C>;
  struct Line {
    C largest, rest;  // rest: the logarithm or the reciprocal of the sum
  };

  template <int pack>
  __device__ void add(Partial& partial, int64_t at) const {
    C values[pack];
    load_pack(x + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) partial.add(values[j]);
  }
  template <class Reduce>
  __device__ Line finish(const Partial& partial, int64_t, bool, Reduce reduce) const {
    const Partial total = partial.reduced(reduce);
    return {total.largest, logarithm ? std::log(total.sum) : C{1} / total.sum};
  }
  template <int pack>
  __device__ void store(int64_t at, const Line& line) const {
    C values[pack];
    load_pack(x + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const C shifted = values[j] - line.largest;
      values[j] = logarithm ? shifted - line.rest : std::exp(shifted) * line.rest;
    }
    store_pack(y + at, values);
  }

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(x + first, -std::numeric_limits<C>::infinity(), values);
    C largest = -std::numeric_limits<C>::infinity(), sum = 0;
    row.each([&](int, C value) { largest = MaxOf{}(largest, value); }, values);
    largest = reduce(largest, MaxOf{});
    // A row of infinities, and one with a NaN, gives NaN.
    row.each(
        [&](int, C& value) {
          const C shifted = value - largest, power = std::exp(shifted);
          sum += power;
          value = logarithm ? shifted : power;
        },
        values);
    sum = reduce(sum, SumOf{});
    const C rest = logarithm ? std::log(sum) : C{1} / sum;
    row.each([&](int, C& value) { value = logarithm ? value - rest : value * rest; }, values);
    row.store(y + first, values);
  }

  const T* x;
  T* y;
  bool logarithm;
};

template <class T>
struct SoftmaxGradLines {
  static constexpr int kArrays = 2;
  using C = compute_type<T>;
  struct Partial {
    C sum = 0;
  };

  template <int pack>
  __device__ void add(Partial& partial, int64_t at) const {
    C values[pack] = {}, gradients[pack];
    load_pack(dy + at, gradients);
    if (!logarithm) load_pack(y + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) add_term(partial.sum, values[j], gradients[j]);
  }
  template <class Reduce>
  __device__ C finish(const Partial& partial, int64_t, bool, Reduce reduce) const {
    return reduce(partial.sum, SumOf{});
  }
  template <int pack>
  __device__ void store(int64_t at, C sum) const {
    C values[pack], gradients[pack];
    load_pack(y + at, values);
    load_pack(dy + at, gradients);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      gradients[j] = logarithm ? gradients[j] - std::exp(values[j]) * sum : values[j] * (gradients[j] - sum);
    }
    store_pack(dx + at, gradients);
  }

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t, int64_t first, Reduce reduce) const {
    typename Row::Values values, gradients;
    row.load(y + first, C{0}, values);
    row.load(dy + first, C{0}, gradients);
    C sum = 0;
    row.each([&](int, C value, C gradient) { add_term(sum, value, gradient); }, values, gradients);
    sum = reduce(sum, SumOf{});
    row.each(
        [&](int, C value, C& gradient) {
          gradient = logarithm ? gradient - std::exp(value) * sum : value * (gradient - sum);
        },
        values, gradients);
    row.store(dx + first, gradients);
  }

  __device__ void add_term(C& sum, C value, C gradient) const {
    sum = logarithm ? sum + gradient : std::fma(value, gradient, sum);
  }

  const T* y;
  const T* dy;
  T* dx;
  bool logarithm;
};

AxisSplit split_of(const KernelContext& context, const char* tag) {
  const Shape& shape = context.input(0).shape;
  return split_at(shape, normalize_axis(context.attributes<SoftmaxAttributes>().axis, shape.rank(), tag));
}

template <bool logarithm>
void run_softmax(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const AxisSplit split = split_of(context, "softmax");
  dispatch_float(context.input(0).dtype, "softmax", [&]<class T> {
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    launch_lines<T>(context.stream(), split, SoftmaxLines<T>{x, y, logarithm}, {x, y});
  });
}

template <bool logarithm>
void run_softmax_grad(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const AxisSplit split = split_of(context, "softmax_grad");
  dispatch_float(context.input(0).dtype, "softmax_grad", [&]<class T> {
    const T* y = context.input(0).as<const T>();
    const T* dy = context.input(1).as<const T>();
    T* dx = context.output(0).as<T>();
    launch_lines<T>(context.stream(), split, SoftmaxGradLines<T>{y, dy, dx, logarithm}, {y, dy, dx});
  });
}

}  // namespace

void register_softmax_cuda(OpRegistry& registry);
void register_softmax_cuda(OpRegistry& registry) {
  registry.add_kernel("softmax", {.device = DeviceType::kCuda, .run = run_softmax<false>});
  registry.add_kernel("log_softmax", {.device = DeviceType::kCuda, .run = run_softmax<true>});
  registry.add_kernel("softmax_grad", {.device = DeviceType::kCuda, .run = run_softmax_grad<false>});
  registry.add_kernel("log_softmax_grad", {.device = DeviceType::kCuda, .run = run_softmax_grad<true>});
}

}  // namespace sinter::ops
