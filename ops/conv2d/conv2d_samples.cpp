#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops {
namespace {

struct RandomConvolution {
  Conv2dAttributes options;
  Conv2dGeometry geometry;
};

/// Mostly small; now and then with more channels than a vector has lanes.
RandomConvolution random_convolution(SampleMaker& maker) {
  RandomConvolution made;
  Conv2dAttributes& options = made.options;
  options.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  options.groups = maker.pick<int64_t>({1, 1, 1, 2, 3, 5});
  const bool wide = maker.chance(0.25);
  const bool depthwise = options.groups > 1 && maker.chance(0.3);
  const int64_t in = depthwise ? 1 : maker.integer(1, wide ? 40 : 5);
  const int64_t out = maker.integer(1, wide ? 70 : 5);
  std::array<int64_t, 2> size{}, kernel{};
  for (size_t axis = 0; axis < 2; ++axis) {
    kernel[axis] = maker.pick<int64_t>({1, 1, 2, 3, 3, 4});
    options.stride[axis] = maker.pick<int64_t>({1, 1, 2, 3});
    options.dilation[axis] = maker.pick<int64_t>({1, 1, 2});
    const int64_t reach = options.dilation[axis] * (kernel[axis] - 1);
    options.padding[axis] = maker.integer(0, reach + 1);
    const int64_t least = std::max<int64_t>(1, reach + 1 - 2 * options.padding[axis]);
    size[axis] = maker.integer(least, least + (wide && maker.chance(0.3) ? 30 : 5));
  }
  const int64_t batch = maker.chance(0.03) ? 0 : maker.integer(1, 3);
  made.geometry =
      conv2d_geometry("samples", image_shape(options.layout, batch, in * options.groups, size[0], size[1]),
                      image_shape(options.layout, out * options.groups, in, kernel[0], kernel[1]), options);
  return made;
}

/// Calls visit(x element, weight element, y element) for every product that the convolution sums.
template <class Visit>
void for_each_product(const Conv2dGeometry& g, Visit visit) {
  const auto element = [&](int64_t n, int64_t c, int64_t h, int64_t w, int64_t channels, int64_t height,
                           int64_t width) {
    return g.layout == Layout::kNCHW ? ((n * channels + c) * height + h) * width + w
                                     : ((n * height + h) * width + w) * channels + c;
  };
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t o = 0; o < g.out_channels; ++o) {
      for (int64_t c = 0; c < g.group_in(); ++c) {
        const int64_t channel = o / g.group_out() * g.group_in() + c;
        for (int64_t i = 0; i < g.height.output; ++i) {
          for (int64_t j = 0; j < g.width.output; ++j) {
            for (int64_t u = 0; u < g.height.kernel; ++u) {
              for (int64_t v = 0; v < g.width.kernel; ++v) {
                const int64_t h = i * g.height.stride - g.height.padding + u * g.height.dilation;
                const int64_t w = j * g.width.stride - g.width.padding + v * g.width.dilation;
                if (h < 0 || h >= g.height.input || w < 0 || w >= g.width.input) continue;
                visit(element(n, channel, h, w, g.in_channels, g.height.input, g.width.input),
                      element(o, c, u, v, g.group_in(), g.height.kernel, g.width.kernel),
                      element(n, o, i, j, g.out_channels, g.height.output, g.width.output));
              }
            }
          }
        }
      }
    }
  }
}

OpSample make_conv2d(SampleMaker& maker) {
  const auto [options, geometry] = random_convolution(maker);
  const Tensor bias = maker.chance(0.5) ? maker.tensor({geometry.out_channels}) : Tensor();
  return {{maker.tensor(geometry.x_shape()), maker.tensor(geometry.weight_shape()), bias}, options};
}

std::vector<ReferenceTensor> conv2d_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<Conv2dAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]), weight = reference_of(sample.inputs[1]);
  const Conv2dGeometry geometry = conv2d_geometry("reference", x.shape, weight.shape, options);
  ReferenceTensor y(geometry.y_shape());
  if (sample.inputs[2].defined()) {
    const ReferenceTensor bias = reference_of(sample.inputs[2]);
    const int64_t inner = options.layout == Layout::kNCHW ? geometry.out_pixels() : 1;
    for (int64_t i = 0; i < y.shape.numel(); ++i) y[i] = bias[i / inner % geometry.out_channels];
  }
  for_each_product(geometry,
                   [&](int64_t in, int64_t filter, int64_t out) { y[out] += x[in] * weight[filter]; });
  return {y};
}

/// Neighbouring elements of y that belong to one channel.
int64_t inner_of(const OpSample& sample, const ReferenceTensor& y) {
  return sample.attributes.as<Conv2dAttributes>().layout == Layout::kNCHW ? y.shape.count(2, 4) : 1;
}

std::vector<ReferenceTensor> conv2d_sums_reference(const OpSample& sample) {
  std::vector<ReferenceTensor> results = conv2d_reference(sample);
  const ReferenceTensor& y = results[0];
  const int64_t channels = sample.inputs[1].shape()[0], inner = inner_of(sample, y);
  ReferenceTensor sums(Shape{2, channels});
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t c = i / inner % channels;
    sums[c] += y[i];
    sums[channels + c] += y[i] * y[i];
  }
  results.push_back(std::move(sums));
  return results;
}

/// Sums may be taken of y as it was rounded, so that each of their terms has the error of y's dtype.
double conv2d_sums_terms(const OpSample& sample, size_t output) {
  const double terms = product_terms<conv2d_sums_reference>(sample, output);
  const DType dtype = sample.inputs[0].dtype();
  if (output == 0 || !is_half(dtype)) return terms;
  const std::vector<ReferenceTensor> results = conv2d_sums_reference(sample);
  const int64_t channels = results[1].shape[1], inner = inner_of(sample, results[0]);
  std::vector<double> absolute(static_cast<size_t>(channels));
  for (int64_t i = 0; i < results[0].shape.numel(); ++i)
    absolute[static_cast<size_t>(i / inner % channels)] += std::abs(results[0][i]);
  double largest = 0.0;
  for (int64_t c = 0; c < channels; ++c)
    largest = std::max({largest, absolute[static_cast<size_t>(c)], 2.0 * results[1][channels + c]});
  return terms + largest * default_tolerance(dtype) / default_tolerance(DType::kFloat32);
}

/// conv2d with each of what may follow it, or without. The addend is larger than the convolution's result,
/// which some kernels round to 16 bits before they add it: nothing cancels.
OpSample make_conv2d_bias_act(SampleMaker& maker) {
  OpSample sample = make_conv2d(maker);
  Conv2dActOptions options{sample.attributes.as<Conv2dAttributes>(), {}};
  const Shape& x = sample.inputs[0].shape();
  const Conv2dGeometry geometry = conv2d_geometry("samples", x, sample.inputs[1].shape(), options);
  options.activation =
      maker.pick({fused::Activation::kNone, fused::Activation::kRelu, fused::Activation::kPRelu});
  const double size = std::max(0.1, largest_of(conv2d_reference(sample)[0]));
  const Shape addend = maker.chance(0.5) ? geometry.y_shape() : one_image(geometry.y_shape());
  sample.inputs.push_back(maker.chance(0.6) ? maker.tensor_off(addend, {0.0}, 2 * size, -3 * size, 3 * size)
                                            : Tensor());
  sample.inputs.emplace_back();
  if (options.activation == fused::Activation::kPRelu) {
    const DType own = maker.dtype(), wide = accumulate_dtype(own);
    const Shape channels{geometry.out_channels};
    sample.inputs[4] =
        maker.chance(0.5)
            ? maker.tensor(channels)
            : SampleMaker(static_cast<uint64_t>(maker.integer(0, 1 << 20)), wide).tensor(channels);
  }
  sample.attributes = options;
  return sample;
}

std::vector<ReferenceTensor> conv2d_bias_act_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<Conv2dActOptions>();
  OpSample convolution = sample;
  convolution.attributes = static_cast<const Conv2dAttributes&>(options);
  ReferenceTensor y = conv2d_reference(convolution)[0];
  const int64_t channels = sample.inputs[1].shape()[0], inner = inner_of(convolution, y);
  ReferenceTensor addend(y.shape), slope(Shape{channels});
  if (sample.inputs[3].defined()) addend = reference_of(sample.inputs[3]);
  if (sample.inputs[4].defined()) slope = reference_of(sample.inputs[4]);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] += addend[i % addend.shape.numel()];
    if (options.activation != fused::Activation::kNone && y[i] < 0) y[i] *= slope[i / inner % channels];
  }
  return {y};
}

/// A slope may make the terms larger.
double conv2d_bias_act_terms(const OpSample& sample, size_t output) {
  const Tensor& slope = sample.inputs[4];
  const double most = slope.defined() ? largest_of(reference_of(slope)) : 0.0;
  return std::max(1.0, most) * product_terms<conv2d_bias_act_reference>(sample, output);
}

OpSample make_grad_input(SampleMaker& maker) {
  const auto [options, geometry] = random_convolution(maker);
  return {{maker.tensor(geometry.y_shape()), maker.tensor(geometry.weight_shape())},
          Conv2dGradInputAttributes{options, {geometry.height.input, geometry.width.input}}};
}

std::vector<ReferenceTensor> grad_input_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<Conv2dGradInputAttributes>();
  const ReferenceTensor dy = reference_of(sample.inputs[0]), weight = reference_of(sample.inputs[1]);
  const int channel = attributes.layout == Layout::kNCHW ? 1 : 3;
  ReferenceTensor dx(image_shape(attributes.layout, dy.shape[0], weight.shape[channel] * attributes.groups,
                                 attributes.input_size[0], attributes.input_size[1]));
  const Conv2dGeometry geometry = conv2d_geometry("reference", dx.shape, weight.shape, attributes);
  for_each_product(geometry,
                   [&](int64_t in, int64_t filter, int64_t out) { dx[in] += dy[out] * weight[filter]; });
  return {dx};
}

OpSample make_grad_weight(SampleMaker& maker) {
  const auto [options, geometry] = random_convolution(maker);
  return {{maker.tensor(geometry.x_shape()), maker.tensor(geometry.y_shape())},
          Conv2dGradWeightAttributes{options, {geometry.height.kernel, geometry.width.kernel}}};
}

std::vector<ReferenceTensor> grad_weight_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<Conv2dGradWeightAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[1]);
  const int channel = attributes.layout == Layout::kNCHW ? 1 : 3;
  ReferenceTensor dweight(image_shape(attributes.layout, dy.shape[channel],
                                      x.shape[channel] / attributes.groups, attributes.kernel_size[0],
                                      attributes.kernel_size[1]));
  const Conv2dGeometry geometry = conv2d_geometry("reference", x.shape, dweight.shape, attributes);
  for_each_product(geometry,
                   [&](int64_t in, int64_t filter, int64_t out) { dweight[filter] += x[in] * dy[out]; });
  return {dweight};
}

}  // namespace

void register_conv2d_samples(SampleRegistry& registry);
void register_conv2d_samples(SampleRegistry& registry) {
  registry.add({.op = "conv2d",
                .make = make_conv2d,
                .reference = conv2d_reference,
                .term_size = product_terms<conv2d_reference>});
  registry.add({.op = "conv2d_sums",
                .make = make_conv2d,
                .reference = conv2d_sums_reference,
                .term_size = conv2d_sums_terms});
  registry.add({.op = "conv2d_bias_act",
                .make = make_conv2d_bias_act,
                .reference = conv2d_bias_act_reference,
                .term_size = conv2d_bias_act_terms,
                .check_gradient = false});
  registry.add({.op = "conv2d_grad_input",
                .make = make_grad_input,
                .reference = grad_input_reference,
                .term_size = product_terms<grad_input_reference>});
  registry.add({.op = "conv2d_grad_weight",
                .make = make_grad_weight,
                .reference = grad_weight_reference,
                .term_size = product_terms<grad_weight_reference>});
}

}  // namespace sinter::ops
