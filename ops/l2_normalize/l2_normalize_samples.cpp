#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>

namespace sinter::ops {
namespace {

/// The lines of a shape along the axis of the attributes: the line of an element, and how many there are.
struct Lines {
  Lines(const Shape& shape, const OpSample& sample) {
    int64_t axis = sample.attributes.as<L2NormalizeAttributes>().axis;
    axis = axis < 0 ? axis + shape.rank() : axis;
    stride = shape.stride(static_cast<int>(axis));
    extent = shape[static_cast<int>(axis)];
    reduced = shape.without(static_cast<int>(axis));
  }
  int64_t of(int64_t element) const { return element / (stride * extent) * stride + element % stride; }

  int64_t stride = 1, extent = 1;
  Shape reduced;
};

OpSample make_l2_normalize(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(1, 4));
  const Shape shape =
      maker.chance(0.2) ? Shape{maker.integer(1, 3), maker.integer(60, 300)} : maker.shape(rank);
  const double epsilon = maker.pick({1e-12, 0.05, 50.0});  // the last one is larger than any norm here
  return {{maker.tensor_off(shape, {0.0}, 0.1)},
          L2NormalizeAttributes{maker.integer(-shape.rank(), shape.rank() - 1), epsilon}};
}

std::vector<ReferenceTensor> l2_normalize_reference(const OpSample& sample) {
  ReferenceTensor x = reference_of(sample.inputs[0]);
  const Lines lines(x.shape, sample);
  ReferenceTensor norm(lines.reduced);
  for (int64_t i = 0; i < x.shape.numel(); ++i) norm[lines.of(i)] += x[i] * x[i];
  for (double& value : norm.values) value = std::sqrt(value);
  const double epsilon = sample.attributes.as<L2NormalizeAttributes>().epsilon;
  for (int64_t i = 0; i < x.shape.numel(); ++i) x[i] /= std::max(norm[lines.of(i)], epsilon);
  return {x, norm};
}

OpSample make_l2_normalize_grad(SampleMaker& maker) {
  OpSample sample = make_l2_normalize(maker);
  const Tensor y = sample.inputs[0];
  const Lines lines(y.shape(), sample);
  // The rule is algebra in y and norm, whatever they are. Norms on both sides of an epsilon of 0.5.
  const double epsilon = maker.pick({1e-12, 0.5});
  SampleMaker norms(maker.generator().below(1u << 30), accumulate_dtype(maker.dtype()));
  const Tensor norm =
      norms.chance(0.5) ? norms.tensor(lines.reduced, 0.1, 0.4) : norms.tensor(lines.reduced, 0.6, 2.0);
  sample.inputs = {y, norm, maker.tensor(y.shape())};
  sample.attributes = L2NormalizeAttributes{sample.attributes.as<L2NormalizeAttributes>().axis, epsilon};
  return sample;
}

/// (dy + sign * y sum(y dy)) / norm: the gradient with sign -1, and the size of its terms with sign 1 and a
/// sample of absolute values.
ReferenceTensor l2_normalize_gradient(const OpSample& sample, double sign) {
  const ReferenceTensor y = reference_of(sample.inputs[0]);
  const ReferenceTensor norm = reference_of(sample.inputs[1]);
  ReferenceTensor dx = reference_of(sample.inputs[2]);
  const Lines lines(y.shape, sample);
  const double epsilon = sample.attributes.as<L2NormalizeAttributes>().epsilon;
  std::vector<double> along(norm.values.size());
  for (int64_t i = 0; i < y.shape.numel(); ++i) along[static_cast<size_t>(lines.of(i))] += y[i] * dx[i];
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t line = lines.of(i);
    const double n = norm[line];
    dx[i] = n < epsilon ? dx[i] / epsilon : (dx[i] + sign * y[i] * along[static_cast<size_t>(line)]) / n;
  }
  return dx;
}

std::vector<ReferenceTensor> l2_normalize_grad_reference(const OpSample& sample) {
  return {l2_normalize_gradient(sample, -1.0)};
}

double l2_normalize_grad_terms(const OpSample& sample, size_t) {
  return largest_of(l2_normalize_gradient(absolute(sample), 1.0));
}

}  // namespace

void register_l2_normalize_samples(SampleRegistry& registry);
void register_l2_normalize_samples(SampleRegistry& registry) {
  registry.add({.op = "l2_normalize", .make = make_l2_normalize, .reference = l2_normalize_reference});
  registry.add({.op = "l2_normalize_grad",
                .make = make_l2_normalize_grad,
                .reference = l2_normalize_grad_reference,
                .term_size = l2_normalize_grad_terms});
}

}  // namespace sinter::ops
