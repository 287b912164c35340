// Random calls of normalize_act, and their results by plain loops.
#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/normalize_act/normalize_act.h>

namespace sinter::ops {

void register_normalize_act_samples(SampleRegistry& registry);

namespace {

// In the order of the op's inputs.
constexpr size_t kWeight = 1, kAlpha = 5, kAddend = 6, kAddendWeight = 7, kInputs = 11;

/// Random values in the dtype that goes with images of the maker's dtype.
Tensor vector_of(SampleMaker& maker, int64_t count, double low, double high) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = maker.uniform(low, high);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{count});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{count});
}

OpSample make_normalize_act(SampleMaker& maker) {
  const int64_t channels = maker.chance(0.05)  ? 0
                           : maker.chance(0.4) ? maker.pick<int64_t>({8, 16, 24})
                                               : maker.integer(1, 7);
  const NormalizeActOptions options{
      .layout = maker.pick({Layout::kNCHW, Layout::kNHWC}),
      .activation = maker.pick({Activation::kNone, Activation::kRelu, Activation::kPRelu}),
      .normalize_addend = maker.chance(0.3)};
  const int64_t images = maker.chance(0.1) ? 40 : maker.integer(0, 4);
  const int64_t height = maker.integer(1, 5), width = maker.chance(0.3) ? 8 : maker.integer(1, 5);
  const Shape shape = maker.chance(0.2)                 ? Shape{images, channels}
                      : options.layout == Layout::kNCHW ? Shape{images, channels, height, width}
                                                        : Shape{images, height, width, channels};
  std::vector<Tensor> inputs(kInputs);
  inputs[0] = maker.tensor(shape);
  if (options.normalize_addend || maker.chance(0.5)) inputs[kAddend] = maker.tensor(shape);
  const auto fill = [&](size_t first) {
    for (size_t i = first; i < first + 2; ++i) {
      if (maker.chance(0.8)) inputs[i] = vector_of(maker, channels, -2.0, 2.0);
    }
    inputs[first + 2] = vector_of(maker, channels, -1.0, 1.0);
    inputs[first + 3] = vector_of(maker, channels, 0.5, 2.0);
  };
  fill(kWeight);
  if (options.normalize_addend) fill(kAddendWeight);
  if (options.activation == Activation::kPRelu)
    inputs[kAlpha] = vector_of(maker, maker.chance(0.3) ? 1 : channels, -0.5, 0.5);
  return {inputs, options};
}

/// Element c of a vector of one element or one per channel.
double at_or(const Tensor& tensor, int64_t c, double otherwise) {
  return tensor.defined() ? reference_of(tensor)[tensor.numel() == 1 ? 0 : c] : otherwise;
}

/// The largest sum of absolute terms of an element goes to `terms`.
ReferenceTensor results(const OpSample& sample, double& terms) {
  const auto& options = sample.attributes.as<NormalizeActOptions>();
  const std::vector<Tensor>& in = sample.inputs;
  ReferenceTensor y = reference_of(in[0]);
  const bool last = y.shape.rank() == 4 && options.layout == Layout::kNHWC;
  const int64_t stride = y.shape.stride(last ? 3 : 1), channels = y.shape[last ? 3 : 1];
  const ReferenceTensor addend = in[kAddend].defined() ? reference_of(in[kAddend]) : ReferenceTensor(y.shape);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t c = i / stride % channels;
    const auto apply = [&](double value, size_t weight) {
      const double mean = at_or(in[weight + 2], c, 0.0);
      const double scale = at_or(in[weight + 3], c, 1.0) * at_or(in[weight], c, 1.0);
      const double bias = at_or(in[weight + 1], c, 0.0);
      terms = std::max(terms, (std::abs(value) + std::abs(mean)) * std::abs(scale) + std::abs(bias));
      return (value - mean) * scale + bias;
    };
    double z = apply(y[i], kWeight);
    z += options.normalize_addend ? apply(addend[i], kAddendWeight) : addend[i];
    if (z < 0.0 && options.activation == Activation::kRelu) z = 0.0;
    if (z < 0.0 && options.activation == Activation::kPRelu) z *= at_or(in[kAlpha], c, 0.0);
    y[i] = z;
  }
  terms *= 2.0;  // of x and of the addend
  return y;
}

std::vector<ReferenceTensor> normalize_act_reference(const OpSample& sample) {
  double terms = 0.0;
  return {results(sample, terms)};
}

double normalize_act_terms(const OpSample& sample, size_t) {
  double terms = 0.0;
  results(sample, terms);
  return terms;
}

}  // namespace

void register_normalize_act_samples(SampleRegistry& registry) {
  registry.add({.op = "normalize_act",
                .make = make_normalize_act,
                .reference = normalize_act_reference,
                .term_size = normalize_act_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
