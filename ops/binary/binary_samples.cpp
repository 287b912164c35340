#include <array>
#include <cmath>
#include <utility>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>

namespace sinter::ops {
namespace {

/// Two shapes that can be broadcast together: one full shape, of which each loses leading axes and extents
/// now and then.
std::pair<Shape, Shape> broadcastable_shapes(SampleMaker& maker) {
  const Shape full = maker.chance(0.1) ? Shape{maker.integer(1, 4), maker.integer(600, 1400)}
                                       : maker.shape(static_cast<int>(maker.integer(0, 4)), 7);
  const auto thinned = [&] {
    Shape shape = full;
    if (maker.chance(0.4)) return shape;
    for (int64_t drop = maker.chance(0.4) ? maker.integer(0, shape.rank()) : 0; drop > 0; --drop)
      shape = shape.without(0);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (maker.chance(0.4)) shape = shape.with(axis, 1);
    }
    return shape;
  };
  const Shape a = thinned();
  return {a, thinned()};
}

enum class Values { kAny, kNoZeroDivisor, kFew };

struct BinaryCase {
  const char* op;
  double (*function)(double a, double b);
  Values values;
};

constexpr std::array kCases = {
    BinaryCase{"add", [](double a, double b) { return a + b; }, Values::kAny},
    BinaryCase{"sub", [](double a, double b) { return a - b; }, Values::kAny},
    BinaryCase{"mul", [](double a, double b) { return a * b; }, Values::kAny},
    BinaryCase{"div", [](double a, double b) { return a / b; }, Values::kNoZeroDivisor},
    BinaryCase{"mul_no_nan", [](double a, double b) { return a * b; }, Values::kAny},
    BinaryCase{"maximum", [](double a, double b) { return std::fmax(a, b); }, Values::kAny},
    BinaryCase{"minimum", [](double a, double b) { return std::fmin(a, b); }, Values::kAny},
    BinaryCase{"equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"less", [](double a, double b) { return a < b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"not_equal", [](double a, double b) { return a != b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"less_equal", [](double a, double b) { return a <= b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"greater_equal", [](double a, double b) { return a >= b ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"logical_and", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"logical_or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, Values::kFew},
    BinaryCase{"logical_xor", [](double a, double b) { return (a != 0) != (b != 0) ? 1.0 : 0.0; },
               Values::kFew},
};

/// Values of which many are equal.
Tensor few_values(SampleMaker& maker, const Shape& shape) {
  Tensor made = maker.tensor(shape);
  dispatch_float(made.dtype(), "samples", [&]<class T> {
    for (int64_t i = 0; i < made.numel(); ++i) made.data<T>()[i] = static_cast<T>(maker.integer(-1, 1));
  });
  return made;
}

template <size_t kCase>
OpSample make_binary(SampleMaker& maker) {
  const auto [a, b] = broadcastable_shapes(maker);
  switch (kCases[kCase].values) {
    case Values::kNoZeroDivisor:
      return {{maker.tensor(a), maker.tensor_off(b, {0.0}, 0.3)}, {}};
    case Values::kFew:
      return {{few_values(maker, a), few_values(maker, b)}, {}};
    default:
      return {{maker.tensor(a), maker.tensor(b)}, {}};
  }
}

template <size_t kCase>
std::vector<ReferenceTensor> binary_reference(const OpSample& sample) {
  const ReferenceTensor a = reference_of(sample.inputs[0]), b = reference_of(sample.inputs[1]);
  ReferenceTensor y(broadcast_shapes(a.shape, b.shape, "reference"));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] = kCases[kCase].function(a[broadcast_index(y.shape, a.shape, i)],
                                  b[broadcast_index(y.shape, b.shape, i)]);
  }
  return {y};
}

OpSample make_gradient(SampleMaker& maker) {
  const auto [a, b] = broadcastable_shapes(maker);
  const Tensor dy = maker.tensor(broadcast_shapes(a, b, "samples"));
  // Finite differences, in float64, need some distance from ties, where the gradient jumps.
  if (maker.dtype() == DType::kFloat64) return {{maker.tensor(a), maker.tensor(b), dy}, {}};
  return {{few_values(maker, a), few_values(maker, b), dy}, {}};
}

template <int kSign>
std::vector<ReferenceTensor> extreme_grad_reference(const OpSample& sample) {
  const ReferenceTensor a = reference_of(sample.inputs[0]), b = reference_of(sample.inputs[1]);
  ReferenceTensor da = reference_of(sample.inputs[2]);
  for (int64_t i = 0; i < da.shape.numel(); ++i) {
    const double lead =
        kSign * (a[broadcast_index(da.shape, a.shape, i)] - b[broadcast_index(da.shape, b.shape, i)]);
    da[i] *= lead > 0 ? 1.0 : lead == 0 ? 0.5 : 0.0;
  }
  return {da};
}

std::vector<ReferenceTensor> mul_no_nan_grad_reference(const OpSample& sample) {
  const ReferenceTensor b = reference_of(sample.inputs[1]);
  ReferenceTensor da = reference_of(sample.inputs[2]);
  for (int64_t i = 0; i < da.shape.numel(); ++i) da[i] *= b[broadcast_index(da.shape, b.shape, i)];
  return {da};
}

}  // namespace

void register_binary_samples(SampleRegistry& registry);
void register_binary_samples(SampleRegistry& registry) {
  [&]<size_t... kCase>(std::index_sequence<kCase...>) {
    (registry.add({.op = kCases[kCase].op,
                   .make = make_binary<kCase>,
                   .reference = binary_reference<kCase>,
                   .check_gradient = kCases[kCase].values != Values::kFew}),
     ...);
  }
  (std::make_index_sequence<kCases.size()>());
  registry.add({.op = "maximum_grad", .make = make_gradient, .reference = extreme_grad_reference<1>});
  registry.add({.op = "minimum_grad", .make = make_gradient, .reference = extreme_grad_reference<-1>});
  // Beside infinities: tests/ops/zero_weight_test.cpp.
  registry.add({.op = "mul_no_nan_grad", .make = make_gradient, .reference = mul_no_nan_grad_reference});
}

}  // namespace sinter::ops
