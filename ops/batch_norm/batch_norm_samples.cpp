// Random calls of batch_norm and its gradient, and their results by plain loops.
#include <algorithm>
#include <cmath>

#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {

namespace {

/// Random parameters in the dtype that goes with images of the maker's dtype.
Tensor parameter(SampleMaker& maker, int64_t channels, double low, double high) {
  std::vector<double> values(static_cast<size_t>(channels));
  for (double& value : values) value = maker.uniform(low, high);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{channels});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{channels});
}

/// Images of rank 2 or 4 with at least two values per channel, short and long runs of one channel.
Shape image_shape(SampleMaker& maker, Layout layout, int64_t channels) {
  const int64_t batch = maker.integer(2, 6);
  if (maker.chance(0.25)) return {batch, channels};
  const int64_t most = maker.chance(0.04) ? 100 : 9;  // beyond one block of the kernels now and then
  const int64_t height = maker.integer(1, most), width = maker.integer(most / 2, most);
  return layout == Layout::kNCHW ? Shape{batch, channels, height, width}
                                 : Shape{batch, height, width, channels};
}

OpSample make_batch_norm(SampleMaker& maker) {
  const int64_t channels = maker.chance(0.05) ? 0 : maker.integer(1, 7);
  BatchNormOptions options{.epsilon = maker.pick({1e-5, 1e-3, 0.1}),
                           .momentum = maker.pick({0.0, 0.1, 1.0}),
                           .training = maker.chance(0.7),
                           .layout = maker.pick({Layout::kNCHW, Layout::kNHWC})};
  OpSample sample{{maker.tensor(image_shape(maker, options.layout, channels)), {}, {}, {}, {}}, options};
  if (maker.chance(0.8)) sample.inputs[1] = parameter(maker, channels, -2.0, 2.0);
  if (maker.chance(0.8)) sample.inputs[2] = parameter(maker, channels, -2.0, 2.0);
  if (!options.training || maker.chance(0.8)) {
    sample.inputs[3] = parameter(maker, channels, -1.0, 1.0);
    sample.inputs[4] = parameter(maker, channels, 0.5, 2.0);
  }
  return sample;
}

/// Which channel every element belongs to.
std::vector<int64_t> channels_of(const Shape& shape, Layout layout) {
  const int axis = shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1;
  std::vector<int64_t> channels(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < channels.size(); ++i) {
    channels[i] = static_cast<int64_t>(i) / shape.stride(axis) % shape[axis];
  }
  return channels;
}

ReferenceTensor parameter_or(const Tensor& parameter, int64_t channels, double otherwise) {
  if (parameter.defined()) return reference_of(parameter);
  ReferenceTensor values(Shape{channels});
  std::fill(values.values.begin(), values.values.end(), otherwise);
  return values;
}

std::vector<ReferenceTensor> batch_norm_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<BatchNormOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const std::vector<int64_t> channel = channels_of(x.shape, options.layout);
  const int64_t channels = x.shape[x.shape.rank() == 4 && options.layout == Layout::kNHWC ? 3 : 1];
  const bool running = sample.inputs[3].defined();
  ReferenceTensor running_mean, running_var;
  if (running) running_mean = reference_of(sample.inputs[3]), running_var = reference_of(sample.inputs[4]);
  ReferenceTensor y(x.shape), mean(Shape{channels}), inv_std(Shape{channels});
  for (int64_t c = 0; c < channels; ++c) {
    double count = 0.0, sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < channel.size(); ++i) {
      if (channel[i] == c) count += 1.0, sum += x.values[i];
    }
    mean[c] = options.training ? sum / count : running_mean[c];
    for (size_t i = 0; i < channel.size(); ++i) {
      if (channel[i] == c) squares += (x.values[i] - mean[c]) * (x.values[i] - mean[c]);
    }
    inv_std[c] = 1.0 / std::sqrt((options.training ? squares / count : running_var[c]) + options.epsilon);
    if (options.training && running) {
      running_mean[c] += options.momentum * (mean[c] - running_mean[c]);
      running_var[c] += options.momentum * (squares / (count - 1.0) - running_var[c]);
    }
  }
  const ReferenceTensor weight = parameter_or(sample.inputs[1], channels, 1.0);
  const ReferenceTensor bias = parameter_or(sample.inputs[2], channels, 0.0);
  for (size_t i = 0; i < channel.size(); ++i) {
    const int64_t c = channel[i];
    y.values[i] = (x.values[i] - mean[c]) * inv_std[c] * weight[c] + bias[c];
  }
  if (running) return {y, mean, inv_std, running_mean, running_var};
  return {y, mean, inv_std};
}

OpSample make_batch_norm_grad(SampleMaker& maker) {
  const int64_t channels = maker.integer(1, 7);
  const BatchNormGradOptions options{.training = maker.chance(0.7),
                                     .parameter_grads = maker.chance(0.8),
                                     .layout = maker.pick({Layout::kNCHW, Layout::kNHWC})};
  const Shape shape = image_shape(maker, options.layout, channels);
  OpSample sample{{maker.tensor(shape), maker.tensor(shape), {}, {}, {}}, options};
  if (maker.chance(0.8)) sample.inputs[2] = parameter(maker, channels, -2.0, 2.0);
  sample.inputs[3] = parameter(maker, channels, -1.0, 1.0);
  sample.inputs[4] = parameter(maker, channels, 0.5, 2.0);
  return sample;
}

/// In training, dx = w s (dy - mean(dy) - xhat mean(dy xhat)) with xhat = (x - mean) s (Ioffe and Szegedy,
/// section 3).
std::vector<ReferenceTensor> batch_norm_grad_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<BatchNormGradOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[1]);
  const ReferenceTensor mean = reference_of(sample.inputs[3]), inv_std = reference_of(sample.inputs[4]);
  const std::vector<int64_t> channel = channels_of(x.shape, options.layout);
  const ReferenceTensor weight = parameter_or(sample.inputs[2], mean.shape.numel(), 1.0);
  ReferenceTensor dx(x.shape), dweight(mean.shape), dbias(mean.shape);
  std::vector<double> counts(mean.values.size());
  const auto normalized = [&](size_t i) { return (x.values[i] - mean[channel[i]]) * inv_std[channel[i]]; };
  for (size_t i = 0; i < channel.size(); ++i) {
    counts[static_cast<size_t>(channel[i])] += 1.0;
    dweight[channel[i]] += dy.values[i] * normalized(i);
    dbias[channel[i]] += dy.values[i];
  }
  for (size_t i = 0; i < channel.size(); ++i) {
    const int64_t c = channel[i];
    const double count = counts[static_cast<size_t>(c)];
    const double scale = inv_std[c] * weight[c];
    const double through_statistics =
        options.training ? dbias[c] / count + normalized(i) * dweight[c] / count : 0.0;
    dx.values[i] = scale * (dy.values[i] - through_statistics);
  }
  if (options.parameter_grads) return {dx, dweight, dbias};
  return {dx};
}

/// Of dweight and dbias: terms of a few units from every pixel of a channel.
double sums_over_images(const OpSample& sample, size_t) {
  const auto pixels = static_cast<double>(sample.inputs[0].numel() / sample.inputs[3].numel());
  return std::sqrt(pixels);
}

}  // namespace

void register_batch_norm_act_samples(SampleRegistry& registry);  // batch_norm_act_samples.cpp
void register_batch_norm_samples(SampleRegistry& registry);
void register_batch_norm_samples(SampleRegistry& registry) {
  register_batch_norm_act_samples(registry);
  // A mean of values of either sign, and y where the bias cancels.
  registry.add({.op = "batch_norm",
                .make = make_batch_norm,
                .reference = batch_norm_reference,
                .term_size = unit_terms});
  registry.add({.op = "batch_norm_grad",
                .make = make_batch_norm_grad,
                .reference = batch_norm_grad_reference,
                .term_size = sums_over_images,
                .check_gradient = false});
}

}  // namespace sinter::ops
