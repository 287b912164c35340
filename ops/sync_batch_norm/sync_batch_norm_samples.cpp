// Random calls of rank_statistics, of a process alone, and their results by plain loops. With other
// processes: tests/processes.
#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {

void register_sync_batch_norm_samples(SampleRegistry& registry);

namespace {

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

}  // namespace

void register_sync_batch_norm_samples(SampleRegistry& registry) {
  registry.add({.op = "rank_statistics",
                .make = make_statistics,
                .reference = statistics,
                .term_size = [](const OpSample& sample,
                                size_t output) { return output == 2 ? statistics(sample)[2][0] : 1.0; },
                .check_gradient = false});
}

}  // namespace sinter::ops
