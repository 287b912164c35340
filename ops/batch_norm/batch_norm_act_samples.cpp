// Random calls of batch_norm_act and its gradient, and their results by plain loops.
#include <algorithm>
#include <cmath>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {

void register_batch_norm_act_samples(SampleRegistry& registry);

namespace {

/// Random values in the dtype that goes with images of the maker's dtype.
Tensor vector_of(SampleMaker& maker, const Shape& shape, double low, double high) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = maker.uniform(low, high);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, shape);
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), shape);
}

Tensor maybe(SampleMaker& maker, int64_t channels, double low, double high) {
  return maker.chance(0.8) ? vector_of(maker, Shape{channels}, low, high) : Tensor();
}

/// Images of rank 2 or 4 with at least two values per channel. A multiple of eight channels or pixels, or
/// enough images, lets the GPU's wide kernels come into play.
Shape image_shape(SampleMaker& maker, Layout layout, int64_t channels) {
  const int64_t batch = maker.chance(0.1) ? 40 : maker.integer(2, 6);
  if (maker.chance(0.25)) return {batch, channels};
  const int64_t height = maker.integer(1, 5);
  const int64_t width = maker.chance(0.3) ? 8 : maker.integer(1, 5);
  return layout == Layout::kNCHW ? Shape{batch, channels, height, width}
                                 : Shape{batch, height, width, channels};
}

int64_t some_channels(SampleMaker& maker) {
  if (maker.chance(0.05)) return 0;
  return maker.chance(0.3) ? maker.pick<int64_t>({8, 16, 24}) : maker.integer(1, 7);
}

/// One normalised tensor by plain loops.
struct Normalized {
  std::vector<double> values, x_hat;  // weighted and shifted; and before that
  ReferenceTensor mean, inv_std;
  std::vector<ReferenceTensor> running;
  double terms = 0.0;  // the largest sum of absolute terms that a value has
};

struct Geometry {
  int64_t stride, channels;
  double count;

  Geometry(const Shape& shape, Layout layout) {
    const int axis = shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1;
    stride = shape.stride(axis);
    channels = shape[axis];
    count = static_cast<double>(shape.without(axis).numel());
  }
  int64_t channel(int64_t i) const { return i / stride % channels; }
};

double at_or(const Tensor& tensor, int64_t i, double otherwise) {
  return tensor.defined() ? reference_of(tensor)[tensor.numel() == 1 ? 0 : i] : otherwise;
}

/// `parameters`: weight, bias, running mean and variance, and sums, which may be undefined; `given`: mean and
/// inverse deviation, which may be too.
Normalized normalize(const Tensor& tensor, const Tensor* parameters, const Tensor* given,
                     const BatchNormActOptions& options) {
  const Tensor& sums = parameters[4];
  const ReferenceTensor x = reference_of(tensor);
  const Geometry geometry(x.shape, options.layout);
  const int64_t channels = geometry.channels;
  Normalized result{.values = x.values,
                    .x_hat = x.values,
                    .mean = ReferenceTensor(Shape{channels}),
                    .inv_std = ReferenceTensor(Shape{channels}),
                    .running = {},
                    .terms = 0.0};
  ReferenceTensor variance(Shape{channels});
  if (given[0].defined()) {
    result.mean = reference_of(given[0]);
  } else if (!options.training) {
    result.mean = reference_of(parameters[2]);
    variance = reference_of(parameters[3]);
  } else if (sums.defined()) {
    const ReferenceTensor summed = reference_of(sums);
    for (int64_t c = 0; c < channels; ++c) {
      result.mean[c] = summed[c] / geometry.count;
      variance[c] = summed[channels + c] / geometry.count - result.mean[c] * result.mean[c];
    }
  } else {
    for (int64_t i = 0; i < x.shape.numel(); ++i) result.mean[geometry.channel(i)] += x[i] / geometry.count;
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      const double deviation = x[i] - result.mean[geometry.channel(i)];
      variance[geometry.channel(i)] += deviation * deviation / geometry.count;
    }
  }
  for (int64_t c = 0; c < channels; ++c) result.inv_std[c] = 1.0 / std::sqrt(variance[c] + options.epsilon);
  if (given[1].defined()) result.inv_std = reference_of(given[1]);
  if (parameters[2].defined()) {
    result.running = {reference_of(parameters[2]), reference_of(parameters[3])};
    for (int64_t c = 0; options.training && c < channels; ++c) {
      const double unbiased = variance[c] * geometry.count / (geometry.count - 1.0);
      result.running[0][c] += options.momentum * (result.mean[c] - result.running[0][c]);
      result.running[1][c] += options.momentum * (unbiased - result.running[1][c]);
    }
  }
  for (size_t i = 0; i < x.values.size(); ++i) {
    const int64_t c = geometry.channel(static_cast<int64_t>(i));
    const double weight = at_or(parameters[0], c, 1.0), bias = at_or(parameters[1], c, 0.0);
    result.x_hat[i] = (x.values[i] - result.mean[c]) * result.inv_std[c];
    result.values[i] = result.x_hat[i] * weight + bias;
    const double spread = (std::abs(x.values[i]) + std::abs(result.mean[c])) * result.inv_std[c];
    result.terms = std::max(result.terms, spread * std::abs(weight) + std::abs(bias));
  }
  return result;
}

// The order of inputs is that of the op.
constexpr size_t kSums = 5, kAlpha = 6, kAddend = 7, kAddendWeight = 8, kAddendSums = 12, kGivenMean = 13,
                 kGivenAddendMean = 15, kInputs = 18;

/// The sums that whatever computed `tensor` would have taken.
Tensor sums_of(const Tensor& tensor, Layout layout) {
  const ReferenceTensor x = reference_of(tensor);
  const Geometry geometry(x.shape, layout);
  std::vector<double> sums(static_cast<size_t>(2 * geometry.channels));
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const auto c = static_cast<size_t>(geometry.channel(i));
    sums[c] += x[i];
    sums[static_cast<size_t>(geometry.channels) + c] += x[i] * x[i];
  }
  const Shape shape{2, geometry.channels};
  if (tensor.dtype() == DType::kFloat64) return Tensor::from_values(sums, shape);
  return Tensor::from_values(std::vector<float>(sums.begin(), sums.end()), shape);
}

std::vector<double> activation_argument(const OpSample& sample, const Normalized& main,
                                        const Normalized& addend) {
  std::vector<double> z = main.values;
  if (!sample.inputs[kAddend].defined()) return z;
  for (size_t i = 0; i < z.size(); ++i) z[i] += addend.values[i];
  return z;
}

Normalized normalized_addend(const OpSample& sample) {
  const auto& options = sample.attributes.as<BatchNormActOptions>();
  if (!sample.inputs[kAddend].defined()) return {};
  if (!options.normalize_addend) {
    return {.values = reference_of(sample.inputs[kAddend]).values,
            .x_hat = {},
            .mean = {},
            .inv_std = {},
            .running = {},
            .terms = largest_of(reference_of(sample.inputs[kAddend]))};
  }
  return normalize(sample.inputs[kAddend], &sample.inputs[kAddendWeight], &sample.inputs[kGivenAddendMean],
                   options);
}

OpSample draw(SampleMaker& maker) {
  const int64_t channels = some_channels(maker);
  BatchNormActOptions options{.epsilon = maker.pick({1e-5, 1e-3, 0.1}),
                              .momentum = maker.pick({0.0, 0.1, 1.0}),
                              .training = maker.chance(0.7),
                              .layout = maker.pick({Layout::kNCHW, Layout::kNHWC}),
                              .activation = maker.pick({fused::Activation::kNone, fused::Activation::kRelu,
                                                        fused::Activation::kPRelu}),
                              .normalize_addend = maker.chance(0.3)};
  const Shape shape = image_shape(maker, options.layout, channels);
  std::vector<Tensor> inputs(kInputs);
  inputs[0] = maker.tensor(shape);
  if (options.normalize_addend || maker.chance(0.5)) inputs[kAddend] = maker.tensor(shape);
  // To given statistics flows no gradient, as finite differences, which are taken in float64, would tell.
  const bool given = !options.training && maker.dtype() != DType::kFloat64 && maker.chance(0.5);
  const auto fill = [&](size_t first, size_t sums, size_t mean, const Tensor& tensor) {
    inputs[first] = maybe(maker, channels, -2.0, 2.0);
    inputs[first + 1] = maybe(maker, channels, -2.0, 2.0);
    if (!options.training || maker.chance(0.8)) {
      inputs[given ? mean : first + 2] = vector_of(maker, Shape{channels}, -1.0, 1.0);
      inputs[given ? mean + 1 : first + 3] = vector_of(maker, Shape{channels}, 0.5, 2.0);
    }
    // float64 samples are for finite differences, which would vary the tensor under fixed sums.
    if (options.training && maker.dtype() != DType::kFloat64 && maker.chance(0.2)) {
      inputs[sums] = sums_of(tensor, options.layout);
    }
  };
  fill(1, kSums, kGivenMean, inputs[0]);
  if (options.normalize_addend) fill(kAddendWeight, kAddendSums, kGivenAddendMean, inputs[kAddend]);
  if (options.activation == fused::Activation::kPRelu) {
    inputs[kAlpha] = vector_of(maker, Shape{maker.chance(0.3) ? 1 : channels}, -0.5, 0.5);
  }
  return {inputs, options};
}

/// No argument of the activation is so near 0 that rounding, or a finite difference, could change its sign.
OpSample make_batch_norm_act(SampleMaker& maker) {
  constexpr double kGap = 1e-4;
  for (;;) {
    OpSample sample = draw(maker);
    const auto& options = sample.attributes.as<BatchNormActOptions>();
    if (options.activation == fused::Activation::kNone) return sample;
    const Normalized main =
        normalize(sample.inputs[0], &sample.inputs[1], &sample.inputs[kGivenMean], options);
    const std::vector<double> z = activation_argument(sample, main, normalized_addend(sample));
    if (std::none_of(z.begin(), z.end(), [](double value) { return std::abs(value) < kGap; })) return sample;
  }
}

ReferenceTensor mask_of(const std::vector<double>& z) {
  ReferenceTensor mask(Shape{(static_cast<int64_t>(z.size()) + 7) / 8});
  for (size_t i = 0; i < z.size(); ++i)
    mask.values[i / 8] += z[i] > 0.0 ? static_cast<double>(1 << i % 8) : 0.0;
  return mask;
}

std::vector<ReferenceTensor> batch_norm_act_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<BatchNormActOptions>();
  const Normalized main = normalize(sample.inputs[0], &sample.inputs[1], &sample.inputs[kGivenMean], options);
  const Normalized addend = normalized_addend(sample);
  const std::vector<double> z = activation_argument(sample, main, addend);
  const Geometry geometry(sample.inputs[0].shape(), options.layout);
  ReferenceTensor y(sample.inputs[0].shape());
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const double value = z[static_cast<size_t>(i)];
    const double slope = options.activation == fused::Activation::kNone ? 1.0
                         : options.activation == fused::Activation::kRelu
                             ? 0.0
                             : at_or(sample.inputs[kAlpha], geometry.channel(i), 0.0);
    y[i] = value > 0.0 ? value : slope * value;
  }
  const bool masked = options.activation != fused::Activation::kNone;
  if (sample.inputs[kGivenMean].defined()) {
    if (!masked) return {y};
    return {y, ReferenceTensor(Shape{0}), ReferenceTensor(Shape{0}), mask_of(z)};
  }
  std::vector<ReferenceTensor> outputs = {y, main.mean, main.inv_std};
  if (masked || options.normalize_addend) outputs.push_back(masked ? mask_of(z) : ReferenceTensor(Shape{0}));
  if (options.normalize_addend) {
    outputs.push_back(addend.mean);
    outputs.push_back(addend.inv_std);
  }
  outputs.insert(outputs.end(), main.running.begin(), main.running.end());
  outputs.insert(outputs.end(), addend.running.begin(), addend.running.end());
  return outputs;
}

/// Of y what the normalisations subtract and add; the statistics are of numbers of up to 2.
double batch_norm_act_terms(const OpSample& sample, size_t output) {
  if (output > 0) return 2.0;
  const auto& options = sample.attributes.as<BatchNormActOptions>();
  return normalize(sample.inputs[0], &sample.inputs[1], &sample.inputs[kGivenMean], options).terms +
         normalized_addend(sample).terms;
}

// ---- gradient; again in the order of the op's inputs

constexpr size_t kDy = 1, kDy2 = 2, kMask = 3, kWeight = 4, kMean = 6, kGradAlpha = 8, kGradAddend = 9,
                 kGradAddendWeight = 10, kAddendMean = 12;

OpSample make_batch_norm_act_grad(SampleMaker& maker) {
  const int64_t channels = some_channels(maker);
  BatchNormActGradOptions options{
      .training = maker.chance(0.7),
      .parameter_grads = maker.chance(0.8),
      .addend_grad = maker.chance(0.5),
      .layout = maker.pick({Layout::kNCHW, Layout::kNHWC}),
      .activation =
          maker.pick({fused::Activation::kNone, fused::Activation::kRelu, fused::Activation::kPRelu}),
      .normalize_addend = maker.chance(0.3)};
  const Shape shape = image_shape(maker, options.layout, channels);
  std::vector<Tensor> inputs(14);
  inputs[0] = maker.tensor(shape);
  inputs[kDy] = maker.tensor(shape);
  if (maker.chance(0.5)) inputs[kDy2] = maker.tensor(shape);
  const bool reads_addend =
      options.normalize_addend || (options.addend_grad && options.activation == fused::Activation::kPRelu);
  if (reads_addend || maker.chance(0.5)) inputs[kGradAddend] = maker.tensor(shape);
  const auto fill = [&](size_t weight, size_t mean) {
    inputs[weight] = maybe(maker, channels, -2.0, 2.0);
    inputs[weight + 1] = maybe(maker, channels, -2.0, 2.0);
    inputs[mean] = vector_of(maker, Shape{channels}, -1.0, 1.0);
    inputs[mean + 1] = vector_of(maker, Shape{channels}, 0.5, 2.0);
  };
  fill(kWeight, kMean);
  if (options.normalize_addend) fill(kGradAddendWeight, kAddendMean);
  if (options.activation != fused::Activation::kNone) {
    std::vector<uint8_t> bytes(static_cast<size_t>((shape.numel() + 7) / 8));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(maker.integer(0, 255));
    inputs[kMask] = Tensor::from_values(bytes, Shape{static_cast<int64_t>(bytes.size())});
  }
  if (options.activation == fused::Activation::kPRelu) {
    inputs[kGradAlpha] = vector_of(maker, Shape{maker.chance(0.3) ? 1 : channels}, -0.5, 0.5);
  }
  return {inputs, options};
}

/// What sums are made of: the terms, or to learn their size their absolute values, without subtraction.
struct Terms {
  bool is_absolute = false;

  double operator()(double value) const { return is_absolute ? std::abs(value) : value; }
  double difference(double a, double b) const { return is_absolute ? std::abs(a) + std::abs(b) : a - b; }
};

/// The gradients of one normalised tensor from g, that of the activation's argument (Ioffe and Szegedy,
/// section 3).
struct TensorGradient {
  ReferenceTensor dx, dweight, dbias;

  TensorGradient(const ReferenceTensor& x, const std::vector<double>& g, const Tensor* weight,
                 const Tensor* mean, const BatchNormActGradOptions& options, const Terms& terms)
      : dx(x.shape), dweight(mean->shape()), dbias(mean->shape()) {
    const Geometry geometry(x.shape, options.layout);
    const ReferenceTensor means = reference_of(mean[0]), inv_stds = reference_of(mean[1]);
    const auto x_hat = [&](int64_t i) {
      const int64_t c = geometry.channel(i);
      return terms.difference(x[i], means[c]) * inv_stds[c];
    };
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      dweight[geometry.channel(i)] += g[static_cast<size_t>(i)] * x_hat(i);
      dbias[geometry.channel(i)] += g[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      const int64_t c = geometry.channel(i);
      const double through = options.training ? (dbias[c] + x_hat(i) * dweight[c]) / geometry.count : 0.0;
      dx[i] = terms(at_or(weight[0], c, 1.0)) * inv_stds[c] *
              terms.difference(g[static_cast<size_t>(i)], through);
    }
  }
};

std::vector<ReferenceTensor> batch_norm_act_gradients(const OpSample& sample, const Terms& terms) {
  const auto& options = sample.attributes.as<BatchNormActGradOptions>();
  const std::vector<Tensor>& inputs = sample.inputs;
  const ReferenceTensor x = reference_of(inputs[0]), dy = reference_of(inputs[kDy]);
  const Geometry geometry(x.shape, options.layout);
  const ReferenceTensor addend =
      inputs[kGradAddend].defined() ? reference_of(inputs[kGradAddend]) : ReferenceTensor(x.shape);
  const auto normalized = [&](const ReferenceTensor& from, size_t weight, size_t mean, int64_t i) {
    const int64_t c = geometry.channel(i);
    return terms.difference(from[i], at_or(inputs[mean], c, 0.0)) * at_or(inputs[mean + 1], c, 1.0) *
               terms(at_or(inputs[weight], c, 1.0)) +
           terms(at_or(inputs[weight + 1], c, 0.0));
  };
  ReferenceTensor dalpha(inputs[kGradAlpha].defined() ? inputs[kGradAlpha].shape() : Shape{0});
  const ReferenceTensor dy2 = inputs[kDy2].defined() ? reference_of(inputs[kDy2]) : ReferenceTensor(x.shape);
  const ReferenceTensor mask = inputs[kMask].defined() ? reference_of(inputs[kMask]) : ReferenceTensor();
  std::vector<double> g = dy.values;
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    double& slope = g[static_cast<size_t>(i)];
    slope = terms(slope) + terms(dy2[i]);
    if (!inputs[kMask].defined()) continue;
    const auto byte = static_cast<unsigned>(mask[i / 8]);
    if ((byte >> (i % 8) & 1) != 0) continue;
    if (options.activation == fused::Activation::kRelu) {
      slope = 0.0;
      continue;
    }
    double z = normalized(x, kWeight, kMean, i);
    z += options.normalize_addend ? normalized(addend, kGradAddendWeight, kAddendMean, i) : terms(addend[i]);
    dalpha[dalpha.shape.numel() == 1 ? 0 : geometry.channel(i)] += slope * z;
    slope *= terms(at_or(inputs[kGradAlpha], geometry.channel(i), 0.0));
  }
  const ReferenceTensor none(Shape{0});
  const TensorGradient main(x, g, &inputs[kWeight], &inputs[kMean], options, terms);
  std::vector<ReferenceTensor> grads = {main.dx, main.dweight, main.dbias, none, dalpha, none, none};
  if (!options.parameter_grads) grads[1] = grads[2] = grads[4] = none;
  if (options.normalize_addend) {
    const TensorGradient of_addend(addend, g, &inputs[kGradAddendWeight], &inputs[kAddendMean], options,
                                   terms);
    if (options.addend_grad) grads[3] = of_addend.dx;
    if (options.parameter_grads) grads[5] = of_addend.dweight, grads[6] = of_addend.dbias;
  } else if (options.addend_grad) {
    grads[3] = ReferenceTensor(x.shape);
    grads[3].values = g;
  }
  return grads;
}

std::vector<ReferenceTensor> batch_norm_act_grad_reference(const OpSample& sample) {
  return batch_norm_act_gradients(sample, {});
}

double batch_norm_act_grad_terms(const OpSample& sample, size_t output) {
  return largest_of(batch_norm_act_gradients(sample, {.is_absolute = true})[output]);
}

}  // namespace

void register_batch_norm_act_samples(SampleRegistry& registry) {
  registry.add({.op = "batch_norm_act",
                .make = make_batch_norm_act,
                .reference = batch_norm_act_reference,
                .term_size = batch_norm_act_terms});
  registry.add({.op = "batch_norm_act_grad",
                .make = make_batch_norm_act_grad,
                .reference = batch_norm_act_grad_reference,
                .term_size = batch_norm_act_grad_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
