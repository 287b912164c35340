// Random calls of the ops of batch normalisation over ranks, of a process alone, and their results by plain
// loops. With other processes: tests/processes.
#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_call.h>

namespace sinter::ops {

void register_sync_batch_norm_samples(SampleRegistry& registry);

namespace {

using In = SyncNormInput;

/// Random values in the dtype that goes with images of the maker's dtype.
Tensor vector_of(SampleMaker& maker, int64_t count, double low, double high) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = maker.uniform(low, high);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{count});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{count});
}

Shape make_shape(SampleMaker& maker, Layout layout, int64_t least_images) {
  const int64_t channels = maker.chance(0.4) ? maker.pick<int64_t>({8, 16, 24}) : maker.integer(1, 7);
  const int64_t images = maker.chance(0.1) ? 40 : maker.integer(least_images, 4);
  const int64_t height = maker.integer(1, 5), width = maker.chance(0.3) ? 8 : maker.integer(1, 5);
  return maker.chance(0.2)         ? Shape{images, channels}
         : layout == Layout::kNCHW ? Shape{images, channels, height, width}
                                   : Shape{images, height, width, channels};
}

int64_t channels_of(const Shape& shape, Layout layout) {
  return shape[norm_axis(shape, layout)];
}

OpSample make_statistics(SampleMaker& maker) {
  const RankStatisticsAttributes options{.epsilon = maker.pick({1e-5, 1e-3}),
                                         .momentum = maker.pick({0.1, 0.5, 1.0}),
                                         .layout = maker.pick({Layout::kNCHW, Layout::kNHWC})};
  const Shape shape = make_shape(maker, options.layout, 2);
  std::vector<Tensor> inputs = {maker.tensor(shape), {}, {}};
  if (maker.chance(0.7)) {
    inputs[1] = vector_of(maker, channels_of(shape, options.layout), -1.0, 1.0);
    inputs[2] = vector_of(maker, channels_of(shape, options.layout), 0.5, 2.0);
  }
  return {inputs, options};
}

std::vector<ReferenceTensor> statistics(const OpSample& sample) {
  const auto& options = sample.attributes.as<RankStatisticsAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const int axis = norm_axis(x.shape, options.layout);
  const int64_t stride = x.shape.stride(axis), channels = x.shape[axis];
  const auto count = static_cast<double>(x.shape.numel() / channels);
  std::vector<ReferenceTensor> results = {ReferenceTensor(Shape{channels}), ReferenceTensor(Shape{channels}),
                                          ReferenceTensor(Shape{1})};
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0.0, variance = 0.0;
    for (int64_t i = 0; i < x.shape.numel(); ++i) mean += i / stride % channels == c ? x[i] / count : 0.0;
    for (int64_t i = 0; i < x.shape.numel(); ++i)
      variance += i / stride % channels == c ? (x[i] - mean) * (x[i] - mean) / count : 0.0;
    results[0][c] = mean;
    results[1][c] = 1.0 / std::sqrt(variance + options.epsilon);
  }
  results[2][0] = 1.0 / count;
  if (!sample.inputs[1].defined()) return results;
  ReferenceTensor mean = reference_of(sample.inputs[1]), var = reference_of(sample.inputs[2]);
  for (int64_t c = 0; c < channels; ++c) {
    const double variance = 1.0 / (results[1][c] * results[1][c]) - options.epsilon;
    mean[c] += options.momentum * (results[0][c] - mean[c]);
    var[c] += options.momentum * (variance * count / (count - 1.0) - var[c]);
  }
  results.push_back(mean);
  results.push_back(var);
  return results;
}

OpSample make_map(SampleMaker& maker) {
  const SyncBatchNormAttributes options{
      .layout = maker.pick({Layout::kNCHW, Layout::kNHWC}),
      .activation = maker.pick({Activation::kNone, Activation::kRelu, Activation::kPRelu}),
      .normalize_addend = maker.chance(0.3),
      .save_mask = false};
  const Shape shape = make_shape(maker, options.layout, 0);
  const int64_t channels = channels_of(shape, options.layout);
  std::vector<Tensor> inputs(In::kCount);
  inputs[In::kX] = maker.tensor(shape);
  if (options.normalize_addend || maker.chance(0.5)) inputs[In::kAddend] = maker.tensor(shape);
  const auto fill = [&](size_t first) {
    for (size_t i = first; i < first + 2; ++i) {
      if (maker.chance(0.8)) inputs[i] = vector_of(maker, channels, -2.0, 2.0);
    }
    inputs[first + 2] = vector_of(maker, channels, -1.0, 1.0);
    inputs[first + 3] = vector_of(maker, channels, 0.5, 2.0);
  };
  fill(In::kWeight);
  if (options.normalize_addend) fill(In::kAddendWeight);
  inputs[In::kShare] = vector_of(maker, 1, 0.1, 0.2);
  if (options.activation == Activation::kPRelu)
    inputs[In::kAlpha] = vector_of(maker, maker.chance(0.3) ? 1 : channels, -0.5, 0.5);
  return {inputs, options};
}

/// Element c of a vector of one element or one per channel.
double at_or(const Tensor& tensor, int64_t c, double otherwise) {
  return tensor.defined() ? reference_of(tensor)[tensor.numel() == 1 ? 0 : c] : otherwise;
}

/// The largest sum of absolute terms of an element goes to `terms`.
ReferenceTensor map(const OpSample& sample, double& terms) {
  const auto& options = sample.attributes.as<SyncBatchNormAttributes>();
  const std::vector<Tensor>& in = sample.inputs;
  ReferenceTensor y = reference_of(in[In::kX]);
  const int axis = norm_axis(y.shape, options.layout);
  const int64_t stride = y.shape.stride(axis), channels = y.shape[axis];
  const ReferenceTensor addend =
      in[In::kAddend].defined() ? reference_of(in[In::kAddend]) : ReferenceTensor(y.shape);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t c = i / stride % channels;
    const auto apply = [&](double value, size_t weight) {
      const double mean = at_or(in[weight + 2], c, 0.0);
      const double scale = at_or(in[weight + 3], c, 1.0) * at_or(in[weight], c, 1.0);
      const double bias = at_or(in[weight + 1], c, 0.0);
      terms = std::max(terms, 2.0 * ((std::abs(value) + std::abs(mean)) * std::abs(scale) + std::abs(bias)));
      return (value - mean) * scale + bias;
    };
    double z = apply(y[i], In::kWeight);
    z += options.normalize_addend ? apply(addend[i], In::kAddendWeight) : addend[i];
    if (z < 0.0 && options.activation == Activation::kRelu) z = 0.0;
    if (z < 0.0 && options.activation == Activation::kPRelu) z *= at_or(in[In::kAlpha], c, 0.0);
    y[i] = z;
  }
  return y;
}

}  // namespace

void register_sync_batch_norm_samples(SampleRegistry& registry) {
  registry.add({.op = "rank_statistics",
                .make = make_statistics,
                .reference = statistics,
                .term_size = [](const OpSample& sample,
                                size_t output) { return output == 2 ? statistics(sample)[2][0] : 1.0; },
                .check_gradient = false});
  // Its gradient is that of the statistics, too: tests/ops/sync_batch_norm_test.cpp.
  registry.add({.op = "sync_batch_norm",
                .make = make_map,
                .reference =
                    [](const OpSample& sample) {
                      double terms = 0.0;
                      return std::vector<ReferenceTensor>{map(sample, terms)};
                    },
                .term_size =
                    [](const OpSample& sample, size_t) {
                      double terms = 0.0;
                      map(sample, terms);
                      return terms;
                    },
                .check_gradient = false});
}

}  // namespace sinter::ops
