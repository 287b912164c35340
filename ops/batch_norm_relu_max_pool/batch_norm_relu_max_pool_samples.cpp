// Random calls of batch_norm_relu_max_pool and its gradient, and their results by plain loops.
#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {

void register_batch_norm_relu_max_pool_samples(SampleRegistry& registry);

namespace {

constexpr int64_t kNowhere = 255;

/// Random values in the dtype that goes with images of the maker's dtype.
Tensor vector_of(SampleMaker& maker, int64_t size, double low, double high) {
  std::vector<double> values(static_cast<size_t>(size));
  for (double& value : values) value = maker.uniform(low, high);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{size});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{size});
}

/// A weight that is not so near 0 that it would bring neighbouring elements together.
Tensor weight_of(SampleMaker& maker, int64_t channels) {
  std::vector<double> values(static_cast<size_t>(channels));
  for (double& value : values) value = maker.uniform(0.3, 2.0) * (maker.chance(0.3) ? -1.0 : 1.0);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{channels});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{channels});
}

double at_or(const Tensor& tensor, int64_t i, double otherwise) {
  return tensor.defined() ? reference_of(tensor)[i] : otherwise;
}

/// The extents of a call, counted out, and where its elements lie.
struct Extents {
  int64_t batch, channels, height, width, out_height = 0, out_width = 0;
  PoolOptions pool;

  Extents(const Shape& x, const PoolOptions& options) : pool(options) {
    const bool first = options.layout == Layout::kNCHW;
    batch = x[0];
    channels = x[first ? 1 : 3];
    height = x[first ? 2 : 1];
    width = x[first ? 3 : 2];
    out_height = windows(height, 0);
    out_width = windows(width, 1);
  }

  int64_t stride(size_t axis) const { return pool.stride[axis] == 0 ? pool.kernel[axis] : pool.stride[axis]; }
  int64_t after(size_t axis) const {
    return pool.padding_after[axis] < 0 ? pool.padding[axis] : pool.padding_after[axis];
  }
  /// Windows that fit; with ceil_mode also one that overhangs, if it starts in the image or before.
  int64_t windows(int64_t extent, size_t axis) const {
    const int64_t padded = extent + pool.padding[axis] + after(axis), kernel = pool.kernel[axis];
    int64_t count = 0;
    for (int64_t start = 0; start < extent + pool.padding[axis]; start += stride(axis)) {
      const bool overhangs = pool.ceil_mode && start - stride(axis) + kernel < padded;
      count += start + kernel <= padded || overhangs ? 1 : 0;
    }
    return count;
  }
  Shape shape(int64_t rows, int64_t columns) const {
    return pool.layout == Layout::kNCHW ? Shape{batch, channels, rows, columns}
                                        : Shape{batch, rows, columns, channels};
  }
  Shape pooled() const { return shape(out_height, out_width); }
  int64_t at(int64_t n, int64_t c, int64_t y, int64_t x, int64_t rows, int64_t columns) const {
    return pool.layout == Layout::kNCHW ? ((n * channels + c) * rows + y) * columns + x
                                        : ((n * rows + y) * columns + x) * channels + c;
  }
  int64_t channel(int64_t i) const {
    return pool.layout == Layout::kNCHW ? i / (height * width) % channels : i % channels;
  }
  double count() const { return static_cast<double>(batch * height * width); }

  /// Calls visit(element of x, element of y, place) for every element of every window, windows one by one.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t oy = 0; oy < out_height; ++oy) {
          for (int64_t ox = 0; ox < out_width; ++ox) {
            for (int64_t place = 0; place < pool.kernel[0] * pool.kernel[1]; ++place) {
              const int64_t y = oy * stride(0) - pool.padding[0] + place / pool.kernel[1];
              const int64_t x = ox * stride(1) - pool.padding[1] + place % pool.kernel[1];
              if (y < 0 || y >= height || x < 0 || x >= width) continue;
              visit(at(n, c, y, x, height, width), at(n, c, oy, ox, out_height, out_width), place);
            }
          }
        }
      }
    }
  }
};

/// Windows of images with at least two pixels: of the usual kinds, for which there are kernels of their own,
/// or of any.
Extents draw_extents(SampleMaker& maker) {
  PoolOptions pool{.layout = maker.pick({Layout::kNCHW, Layout::kNHWC}), .ceil_mode = maker.chance(0.3)};
  const bool usual = maker.chance(0.5), padded = maker.chance(0.7);
  const auto [kernel, stride] = maker.pick<std::pair<int64_t, int64_t>>({{3, 2}, {2, 2}, {3, 1}});
  std::array<int64_t, 2> extent{};
  for (size_t axis = 0; axis < 2; ++axis) {
    pool.kernel[axis] = usual ? kernel : maker.integer(1, 5);
    pool.stride[axis] = usual ? stride : maker.integer(0, 4);
    if (padded) pool.padding[axis] = maker.integer(0, pool.kernel[axis] / 2);
    if (maker.chance(0.2)) pool.padding_after[axis] = maker.integer(0, pool.kernel[axis] / 2);
    extent[axis] = std::max<int64_t>(pool.kernel[axis], 2) + maker.integer(0, usual ? 7 : 4);
  }
  const int64_t batch = maker.chance(0.05) ? 0 : maker.chance(0.05) ? 33 : maker.integer(1, 3);
  const int64_t channels = maker.chance(0.05)  ? 0
                           : maker.chance(0.4) ? maker.pick<int64_t>({8, 16})
                                               : maker.integer(1, 5);
  const bool first = pool.layout == Layout::kNCHW;
  return Extents(
      first ? Shape{batch, channels, extent[0], extent[1]} : Shape{batch, extent[0], extent[1], channels},
      pool);
}

// ---- forward; the order of inputs is that of the op

constexpr size_t kSums = 5;

Extents extents_of(const OpSample& sample) {
  return Extents(sample.inputs[0].shape(), sample.attributes.as<BatchNormReluMaxPoolOptions>().pool());
}

struct Statistics {
  ReferenceTensor mean, variance;
};

Statistics statistics_of(const OpSample& sample, const Extents& extents) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const int64_t channels = extents.channels;
  Statistics result{ReferenceTensor(Shape{channels}), ReferenceTensor(Shape{channels})};
  if (sample.inputs[kSums].defined()) {
    const ReferenceTensor sums = reference_of(sample.inputs[kSums]);
    for (int64_t c = 0; c < channels; ++c) {
      result.mean[c] = sums[c] / extents.count();
      result.variance[c] = sums[channels + c] / extents.count() - result.mean[c] * result.mean[c];
    }
    return result;
  }
  for (int64_t i = 0; i < x.shape.numel(); ++i) result.mean[extents.channel(i)] += x[i] / extents.count();
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const double deviation = x[i] - result.mean[extents.channel(i)];
    result.variance[extents.channel(i)] += deviation * deviation / extents.count();
  }
  return result;
}

/// The elements normalised; or, to learn the size of the terms, the sum of the terms' absolute values.
std::vector<double> normalized(const OpSample& sample, const Extents& extents, bool is_absolute = false) {
  const auto& options = sample.attributes.as<BatchNormReluMaxPoolOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const Statistics statistics = statistics_of(sample, extents);
  std::vector<double> z = x.values;
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t c = extents.channel(i);
    const double mean = statistics.mean[c], weight = at_or(sample.inputs[1], c, 1.0),
                 bias = at_or(sample.inputs[2], c, 0.0);
    const double scale = weight / std::sqrt(statistics.variance[c] + options.epsilon);
    z[static_cast<size_t>(i)] = is_absolute
                                    ? (std::abs(x[i]) + std::abs(mean)) * std::abs(scale) + std::abs(bias)
                                    : (x[i] - mean) * scale + bias;
  }
  return z;
}

OpSample draw(SampleMaker& maker) {
  const Extents extents = draw_extents(maker);
  const PoolOptions& pool = extents.pool;
  const int64_t channels = extents.channels;
  std::vector<Tensor> inputs(6);
  inputs[0] = maker.distinct(extents.shape(extents.height, extents.width));
  if (maker.chance(0.8)) inputs[1] = weight_of(maker, channels);
  if (maker.chance(0.8)) inputs[2] = vector_of(maker, channels, -2.0, 2.0);
  if (maker.chance(0.8)) {
    inputs[3] = vector_of(maker, channels, -1.0, 1.0);
    inputs[4] = vector_of(maker, channels, 0.5, 2.0);
  }
  const BatchNormReluMaxPoolOptions options{.epsilon = maker.pick({1e-5, 1e-3, 0.1}),
                                            .momentum = maker.pick({0.0, 0.1, 1.0}),
                                            .layout = pool.layout,
                                            .kernel = pool.kernel,
                                            .stride = pool.stride,
                                            .padding = pool.padding,
                                            .padding_after = pool.padding_after,
                                            .ceil_mode = pool.ceil_mode};
  // float64 samples are for finite differences, which would vary the tensor under fixed sums.
  if (maker.dtype() != DType::kFloat64 && maker.chance(0.2)) {
    const ReferenceTensor x = reference_of(inputs[0]);
    std::vector<float> sums(static_cast<size_t>(2 * channels));
    for (int64_t i = 0; i < x.shape.numel(); ++i) {
      const auto c = static_cast<size_t>(extents.channel(i));
      sums[c] += static_cast<float>(x[i]);
      sums[static_cast<size_t>(channels) + c] += static_cast<float>(x[i] * x[i]);
    }
    inputs[kSums] = Tensor::from_values(sums, Shape{2, channels});
  }
  return {inputs, options};
}

/// The largest of every window, its place, and how far behind the next one lies that differs.
struct Maxima {
  std::vector<double> values, gaps;
  std::vector<int64_t> places;

  Maxima(const Extents& extents, const std::vector<double>& z) {
    const auto size = static_cast<size_t>(extents.pooled().numel());
    constexpr double kLowest = -std::numeric_limits<double>::infinity();
    values.assign(size, kLowest);
    gaps.assign(size, std::numeric_limits<double>::infinity());
    places.assign(size, 0);
    extents.each([&](int64_t in, int64_t out, int64_t place) {
      const auto o = static_cast<size_t>(out);
      const double value = z[static_cast<size_t>(in)], distance = std::abs(value - values[o]);
      if (value > values[o]) {
        gaps[o] = distance;
        values[o] = value;
        places[o] = place;
      } else if (distance > 0.0) {
        gaps[o] = std::min(gaps[o], distance);
      }
    });
  }
};

/// No maximum is so near 0, or another element, that rounding or a finite difference could change the places.
OpSample make_forward(SampleMaker& maker) {
  constexpr double kGap = 1e-4;
  for (;;) {
    OpSample sample = draw(maker);
    const Extents extents = extents_of(sample);
    const Maxima maxima(extents, normalized(sample, extents));
    bool is_clear = true;
    for (size_t i = 0; i < maxima.values.size(); ++i) {
      is_clear = is_clear && std::abs(maxima.values[i]) > kGap && maxima.gaps[i] > kGap;
    }
    if (is_clear) return sample;
  }
}

std::vector<ReferenceTensor> forward_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<BatchNormReluMaxPoolOptions>();
  const Extents extents = extents_of(sample);
  const Statistics statistics = statistics_of(sample, extents);
  const Maxima maxima(extents, normalized(sample, extents));
  ReferenceTensor y(extents.pooled()), indices(extents.pooled()), inv_std(Shape{extents.channels});
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const auto o = static_cast<size_t>(i);
    y[i] = std::max(maxima.values[o], 0.0);
    indices[i] = static_cast<double>(maxima.values[o] > 0.0 ? maxima.places[o] : kNowhere);
  }
  ReferenceTensor mean(Shape{extents.channels});
  for (int64_t c = 0; c < extents.channels; ++c) {
    mean[c] = extents.count() > 0 ? statistics.mean[c] : 0.0;
    inv_std[c] = 1.0 / std::sqrt((extents.count() > 0 ? statistics.variance[c] : 0.0) + options.epsilon);
  }
  std::vector<ReferenceTensor> outputs = {y, mean, inv_std, indices};
  if (!sample.inputs[3].defined()) return outputs;
  ReferenceTensor running_mean = reference_of(sample.inputs[3]), running_var = reference_of(sample.inputs[4]);
  for (int64_t c = 0; extents.count() > 0 && c < extents.channels; ++c) {
    const double unbiased = statistics.variance[c] * extents.count() / (extents.count() - 1.0);
    running_mean[c] += options.momentum * (statistics.mean[c] - running_mean[c]);
    running_var[c] += options.momentum * (unbiased - running_var[c]);
  }
  outputs.push_back(running_mean);
  outputs.push_back(running_var);
  return outputs;
}

/// Of y what the normalisation subtracts and adds; the statistics are of numbers as large as x.
double forward_terms(const OpSample& sample, size_t output) {
  if (output > 0) return std::max(2.0, largest_of(reference_of(sample.inputs[0])));
  double largest = 0.0;
  for (const double value : normalized(sample, extents_of(sample), /*is_absolute=*/true)) {
    largest = std::max(largest, value);
  }
  return largest;
}

// ---- gradient; again in the order of the op's inputs

constexpr size_t kDy = 1, kIndices = 2, kWeight = 3, kMean = 4, kInvStd = 5;

OpSample make_grad(SampleMaker& maker) {
  const Extents extents = draw_extents(maker);
  const Shape pooled = extents.pooled();
  std::vector<std::vector<int64_t>> inside(static_cast<size_t>(pooled.numel()));
  extents.each(
      [&](int64_t, int64_t out, int64_t place) { inside[static_cast<size_t>(out)].push_back(place); });
  std::vector<uint8_t> indices;
  for (const auto& places : inside) {
    const auto last = static_cast<int64_t>(places.size()) - 1;
    const int64_t chosen = maker.chance(0.3) ? kNowhere : places[static_cast<size_t>(maker.integer(0, last))];
    indices.push_back(static_cast<uint8_t>(chosen));
  }
  std::vector<Tensor> inputs(6);
  inputs[0] = maker.tensor(extents.shape(extents.height, extents.width));
  inputs[kDy] = maker.tensor(pooled);
  inputs[kIndices] = Tensor::from_values(indices, pooled);
  if (maker.chance(0.8)) inputs[kWeight] = vector_of(maker, extents.channels, -2.0, 2.0);
  inputs[kMean] = vector_of(maker, extents.channels, -1.0, 1.0);
  inputs[kInvStd] = vector_of(maker, extents.channels, 0.5, 2.0);
  return {inputs,
          BatchNormReluMaxPoolGradOptions{.parameter_grads = maker.chance(0.8), .pool = extents.pool}};
}

/// The gradients; or, to learn the size of the terms, the sums of their absolute values.
std::vector<ReferenceTensor> gradients(const OpSample& sample, bool is_absolute) {
  const auto& options = sample.attributes.as<BatchNormReluMaxPoolGradOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[kDy]),
                        indices = reference_of(sample.inputs[kIndices]),
                        mean = reference_of(sample.inputs[kMean]),
                        inv_std = reference_of(sample.inputs[kInvStd]);
  const Extents extents(x.shape, options.pool);
  const auto size_of = [=](double value) { return is_absolute ? std::abs(value) : value; };
  const auto difference = [=](double a, double b) { return is_absolute ? std::abs(a) + std::abs(b) : a - b; };
  std::vector<double> dz(x.values.size());
  extents.each([&](int64_t in, int64_t out, int64_t place) {
    if (indices[out] == static_cast<double>(place)) dz[static_cast<size_t>(in)] += size_of(dy[out]);
  });
  const Shape channels{extents.channels};
  ReferenceTensor dx(x.shape), dweight(channels), dbias(channels);
  const auto x_hat = [&](int64_t i) {
    return difference(x[i], mean[extents.channel(i)]) * inv_std[extents.channel(i)];
  };
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    dweight[extents.channel(i)] += dz[static_cast<size_t>(i)] * x_hat(i);
    dbias[extents.channel(i)] += dz[static_cast<size_t>(i)];
  }
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t c = extents.channel(i);
    const double through = (dbias[c] + x_hat(i) * dweight[c]) / extents.count();
    dx[i] = size_of(at_or(sample.inputs[kWeight], c, 1.0)) * inv_std[c] *
            difference(dz[static_cast<size_t>(i)], through);
  }
  if (!options.parameter_grads) return {dx};
  return {dx, dweight, dbias};
}

std::vector<ReferenceTensor> grad_reference(const OpSample& sample) {
  return gradients(sample, false);
}
/// GPUs round what was pooled to x's dtype before dx is made of it, as between the two ops.
double grad_terms(const OpSample& sample, size_t output) {
  const double terms = largest_of(gradients(sample, true)[output]);
  const DType dtype = sample.inputs[0].dtype();
  if (output > 0 || !is_half(dtype)) return terms;
  const double rounding = dtype == DType::kFloat16 ? 0x1p-12 : 0x1p-9;
  return terms * (1.0 + rounding / default_tolerance(DType::kFloat32));
}

}  // namespace

void register_batch_norm_relu_max_pool_samples(SampleRegistry& registry) {
  registry.add({.op = "batch_norm_relu_max_pool",
                .make = make_forward,
                .reference = forward_reference,
                .term_size = forward_terms});
  registry.add({.op = "batch_norm_relu_max_pool_grad",
                .make = make_grad,
                .reference = grad_reference,
                .term_size = grad_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
