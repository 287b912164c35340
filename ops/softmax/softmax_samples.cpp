#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/softmax/softmax.h>

namespace sinter::ops {
namespace {

/// A shape and an axis of it; now and then rows longer than one block.
Shape make_shape(SampleMaker& maker, int64_t& axis) {
  const int rank = static_cast<int>(maker.integer(1, 4));
  axis = maker.integer(-rank, rank - 1);
  if (maker.chance(0.2)) {
    axis = -1;
    return {maker.integer(1, 3), maker.integer(200, 700)};
  }
  return maker.shape(rank);
}

OpSample make_softmax(SampleMaker& maker) {
  int64_t axis = 0;
  const Shape shape = make_shape(maker, axis);
  return {{maker.tensor(shape, -4.0, 4.0)}, SoftmaxAttributes{axis}};
}

OpSample make_softmax_grad(SampleMaker& maker) {
  int64_t axis = 0;
  const Shape shape = make_shape(maker, axis);
  return {{maker.tensor(shape), maker.tensor(shape)}, SoftmaxAttributes{axis}};
}

/// sums_i: over the elements j on the line of i along the axis of the attributes, of term(j).
template <class F>
std::vector<double> line_sums(const Shape& shape, const OpSample& sample, F term) {
  int64_t axis = sample.attributes.as<SoftmaxAttributes>().axis;
  axis = axis < 0 ? axis + shape.rank() : axis;
  const int64_t extent = shape[static_cast<int>(axis)], stride = shape.stride(static_cast<int>(axis));
  std::vector<double> sums;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const int64_t start = i - i / stride % extent * stride;
    double sum = 0;
    for (int64_t k = 0; k < extent; ++k) sum += term(start + k * stride);
    sums.push_back(sum);
  }
  return sums;
}

std::vector<ReferenceTensor> softmax_reference(const OpSample& sample) {
  ReferenceTensor x = reference_of(sample.inputs[0]);
  const auto sums = line_sums(x.shape, sample, [&](int64_t j) { return std::exp(x[j]); });
  for (size_t i = 0; i < sums.size(); ++i) x.values[i] = std::exp(x.values[i]) / sums[i];
  return {x};
}

std::vector<ReferenceTensor> log_softmax_reference(const OpSample& sample) {
  ReferenceTensor x = reference_of(sample.inputs[0]);
  const auto sums = line_sums(x.shape, sample, [&](int64_t j) { return std::exp(x[j]); });
  for (size_t i = 0; i < sums.size(); ++i) x.values[i] -= std::log(sums[i]);
  return {x};
}

/// y (dy + sign * sum(y dy)): the gradient with sign -1, and the size of its terms with sign 1 and absolute
/// values.
ReferenceTensor softmax_gradient(const Tensor& saved, const Tensor& gradient, const OpSample& sample,
                                 double sign) {
  const ReferenceTensor y = reference_of(saved);
  ReferenceTensor dy = reference_of(gradient);
  const auto sums = line_sums(y.shape, sample, [&](int64_t j) { return y[j] * dy[j]; });
  for (size_t i = 0; i < sums.size(); ++i) dy.values[i] = y.values[i] * (dy.values[i] + sign * sums[i]);
  return dy;
}

std::vector<ReferenceTensor> softmax_grad_reference(const OpSample& sample) {
  return {softmax_gradient(sample.inputs[0], sample.inputs[1], sample, -1.0)};
}

double softmax_grad_terms(const OpSample& sample, size_t) {
  return largest_of(softmax_gradient(absolute(sample.inputs[0]), absolute(sample.inputs[1]), sample, 1.0));
}

/// dy + sign * exp(y) sum(dy), likewise.
ReferenceTensor log_softmax_gradient(const Tensor& saved, const Tensor& gradient, const OpSample& sample,
                                     double sign) {
  const ReferenceTensor y = reference_of(saved);
  ReferenceTensor dy = reference_of(gradient);
  const auto sums = line_sums(y.shape, sample, [&](int64_t j) { return dy[j]; });
  for (size_t i = 0; i < sums.size(); ++i) dy.values[i] += sign * std::exp(y.values[i]) * sums[i];
  return dy;
}

std::vector<ReferenceTensor> log_softmax_grad_reference(const OpSample& sample) {
  return {log_softmax_gradient(sample.inputs[0], sample.inputs[1], sample, -1.0)};
}

double log_softmax_grad_terms(const OpSample& sample, size_t) {
  return largest_of(log_softmax_gradient(sample.inputs[0], absolute(sample.inputs[1]), sample, 1.0));
}

}  // namespace

void register_softmax_samples(SampleRegistry& registry);
void register_softmax_samples(SampleRegistry& registry) {
  registry.add({.op = "softmax", .make = make_softmax, .reference = softmax_reference});
  // The logarithm of a likely class is what is left of two numbers of a few units.
  registry.add({.op = "log_softmax",
                .make = make_softmax,
                .reference = log_softmax_reference,
                .term_size = unit_terms});
  registry.add({.op = "softmax_grad",
                .make = make_softmax_grad,
                .reference = softmax_grad_reference,
                .term_size = softmax_grad_terms});
  registry.add({.op = "log_softmax_grad",
                .make = make_softmax_grad,
                .reference = log_softmax_grad_reference,
                .term_size = log_softmax_grad_terms});
}

}  // namespace sinter::ops
