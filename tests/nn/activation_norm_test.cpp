// Activations, layer and group normalisation, upsampling and transposed convolution, against plain loops in
// double precision, with gradients by finite differences.
#include <functional>
#include <random>

#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::floats;
using testing::message_of;
using testing::pattern;

uint64_t fresh_seed() {
  static const uint64_t seed = std::random_device()();
  return seed;
}

/// Fresh numbers in [-1, 1); the seed stands in the trace of a failure.
Tensor random_tensor(const Shape& shape, uint64_t stream) {
  Generator generator(fresh_seed() + stream);
  const Tensor made = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < made.numel(); ++i) made.data<double>()[i] = 2.0 * double{generator.uniform()} - 1.0;
  return made;
}

/// Checks the gradients with respect to the input and to every parameter of a float64 module.
void expect_gradients(const Module& module, const Tensor& x) {
  module.to(DType::kFloat64);
  const Tensor leaf = x.detach().set_requires_grad(true);
  const GradcheckResult of_input =
      gradcheck([&](const auto& in) { return std::vector<Tensor>{module(in[0])}; }, {leaf});
  EXPECT_TRUE(of_input) << of_input.message;
  // gradcheck makes leaves of its own, which the module does not see: parameters are checked here.
  const std::vector<Parameter> parameters = module.parameters();
  module.zero_grad();
  const Tensor weights = pattern(module(x).shape(), 99);
  const auto loss = [&] { return ops::sum(module(x) * weights); };
  backward(loss());
  for (const Parameter& parameter : parameters) {
    const Tensor grad = parameter.grad();
    ASSERT_TRUE(grad.defined()) << parameter.name();
    double* values = parameter.tensor().data<double>();
    const NoGrad no_grad;
    for (int64_t i = 0; i < grad.numel(); ++i) {
      const double saved = values[i];
      values[i] = saved + 1e-6;
      const double above = loss().item();
      values[i] = saved - 1e-6;
      const double below = loss().item();
      values[i] = saved;
      const double numeric = (above - below) / 2e-6;
      EXPECT_NEAR(grad.data<double>()[i], numeric, 1e-6 * (1.0 + std::abs(numeric)))
          << parameter.name() << " element " << i;
    }
  }
}

TEST(ActivationTest, ModulesAreTheOps) {
  const Tensor x = Tensor::from_values<double>({-2.0, -0.5, 0.0, 0.5, 2.0}, {5});
  const auto expect = [&](const Module& module, const std::function<double(double)>& function) {
    std::vector<double> expected;
    for (const double value : x.to_vector<double>()) expected.push_back(function(value));
    expect_near<double>(module(x), expected, 1e-14);
  };
  expect(GELU(), [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  expect(SiLU(), [](double v) { return v / (1 + std::exp(-v)); });
  expect(Sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(Hardswish(), [](double v) { return v * std::min(std::max(v + 3, 0.0), 6.0) / 6; });
  expect(Tanh(), [](double v) { return std::tanh(v); });
  expect(ReLU(), [](double v) { return std::max(v, 0.0); });
}

// ---- LayerNorm and GroupNorm

/// (x - mean) / sqrt(variance + epsilon) over `count` elements that begin at each multiple of `count`.
std::vector<double> normalized_rows(const std::vector<double>& x, size_t count, double epsilon) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += count) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < count; ++i) mean += x[row + i] / static_cast<double>(count);
    for (size_t i = 0; i < count; ++i)
      variance += std::pow(x[row + i] - mean, 2.0) / static_cast<double>(count);
    for (size_t i = 0; i < count; ++i) y[row + i] = (x[row + i] - mean) / std::sqrt(variance + epsilon);
  }
  return y;
}

TEST(LayerNormTest, NormalisesTheLastAxes) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor x = random_tensor({3, 4, 5}, 0);
  LayerNorm norm(Shape{4, 5}, {.epsilon = 1e-3});
  norm.to(DType::kFloat64);
  const Tensor weight = random_tensor({4, 5}, 1), bias = random_tensor({4, 5}, 2);
  norm.weight.assign(weight);
  norm.bias.assign(bias);
  std::vector<double> expected = normalized_rows(x.to_vector<double>(), 20, 1e-3);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = expected[i] * weight.data<double>()[i % 20] + bias.data<double>()[i % 20];
  }
  expect_near<double>(norm(x), expected, 1e-12);
  expect_gradients(norm, x);
  expect_near<double>(LayerNorm(5, {.affine = false})(x), normalized_rows(x.to_vector<double>(), 5, 1e-5),
                      1e-12);
  EXPECT_EQ(message_of([&] {
              norm(random_tensor({4, 4}, 3));
            }),
            "[layer_norm] expected an input whose last axes are (4, 5) but got shape (4, 4)");
  EXPECT_EQ(message_of([] { LayerNorm(Shape{}); }),
            "[layer_norm] expected a shape with at least one feature but got ()");
}

TEST(LayerNormTest, AGreatMeanCostsNoDigits) {
  // E[x^2] - E[x]^2 in float32 would be off by thousands here.
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(10000.0f + static_cast<float>(i % 4));
  const std::vector<float> y = LayerNorm(64)(Tensor::from_values(x, {1, 64})).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(y[i], (static_cast<double>(i % 4) - 1.5) / std::sqrt(1.25), 1e-4) << i;
  }
}

TEST(LayerNormTest, SixteenBitsAreRoundedOnce) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  LayerNorm norm(33);
  norm.to(DType::kFloat16);
  EXPECT_EQ(norm.weight.tensor().dtype(), DType::kFloat32);
  // Squares of these overflow float16.
  const Tensor x = ops::cast(random_tensor({7, 33}, 4) * 3000.0, DType::kFloat16);
  const Tensor y = norm(x);
  EXPECT_EQ(y.dtype(), DType::kFloat16);
  const Tensor exact = LayerNorm(33)(ops::cast(x, DType::kFloat32));
  expect_near<float>(ops::cast(y, DType::kFloat32), exact.to_vector<float>(), 0x1p-10);
}

TEST(GroupNormTest, NormalisesGroupsOfChannelsInBothLayouts) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor x = random_tensor({2, 6, 3, 5}, 5);
  const Tensor weight = random_tensor({6}, 6), bias = random_tensor({6}, 7);
  for (const int64_t groups : {1, 2, 6}) {
    std::vector<double> expected =
        normalized_rows(x.to_vector<double>(), static_cast<size_t>(6 / groups * 15), 1e-5);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = expected[i] * weight.data<double>()[i / 15 % 6] + bias.data<double>()[i / 15 % 6];
    }
    const GroupNorm first(groups, 6), last(groups, 6, {.layout = Layout::kNHWC});
    for (const GroupNorm* norm : {&first, &last}) {
      norm->to(DType::kFloat64);
      norm->weight.assign(weight);
      norm->bias.assign(bias);
    }
    expect_near<double>(first(x), expected, 1e-12);
    const Tensor channels_last = ops::permute(x, {0, 2, 3, 1});
    expect_near<double>(ops::permute(last(channels_last), {0, 3, 1, 2}), expected, 1e-12);
    expect_gradients(first, x);
    expect_gradients(last, channels_last);
  }
  EXPECT_EQ(message_of([] { GroupNorm(4, 6); }),
            "[group_norm] expected channels that are a positive multiple of the groups but got 6 and 4");
}

// ---- Upsample

TEST(UpsampleTest, NearestRepeatsAndBilinearMixes) {
  const Tensor x = Tensor::from_values<double>({1, 2, 3, 4}, {1, 1, 2, 2});
  expect_near<double>(Upsample()(x), {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, 0.0);
  // PyTorch's interpolate(scale_factor=2, mode="bilinear").
  expect_near<double>(Upsample({.mode = UpsampleMode::kBilinear})(x),
                      {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4},
                      1e-14);
  expect_near<double>(
      Upsample({.size = Size2d(3), .mode = UpsampleMode::kBilinear, .align_corners = true})(x),
      {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4}, 1e-14);
  EXPECT_EQ(Upsample({.scale = 1.5})(floats({1, 2, 3, 5}, 0)).shape(), (Shape{1, 2, 4, 7}));
  EXPECT_EQ(message_of([&] { Upsample({.align_corners = true})(x); }),
            "[upsample] align_corners has no meaning with the mode nearest");
  EXPECT_EQ(message_of([&] { Upsample({.scale = 0.25})(x); }),
            "[upsample] expected a size from 1 to 1073741824 but got (0, 0)");
}

TEST(UpsampleTest, NearestKeepsInfinityWhereItIs) {
  const Tensor x = Tensor::from_values<float>({1, INFINITY, 3, 4}, {1, 1, 2, 2});
  const std::vector<float> y = Upsample({.size = Size2d(2, 4)})(x).to_vector<float>();
  EXPECT_EQ(y, (std::vector<float>{1, 1, INFINITY, INFINITY, 3, 3, 4, 4}));
}

// ---- ConvTranspose2d

/// y[n, o, i * s - p + u * d, ...] += x[n, c, i, ...] * w[c, o, u, ...], written straight from the
/// definition.
std::vector<double> transposed_convolution(const Tensor& x, const Tensor& w, const Tensor& b, int64_t stride,
                                           int64_t padding, int64_t dilation, int64_t groups,
                                           const Shape& shape) {
  std::vector<double> y(static_cast<size_t>(shape.numel()));
  const int64_t out = shape[1], height = shape[2], width = shape[3];
  const int64_t share_in = x.shape()[1] / groups, share_out = w.shape()[1];
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = b.data<double>()[static_cast<int64_t>(i) / (height * width) % out];
  }
  for (int64_t n = 0; n < x.shape()[0]; ++n)
    for (int64_t c = 0; c < x.shape()[1]; ++c)
      for (int64_t i = 0; i < x.shape()[2]; ++i)
        for (int64_t j = 0; j < x.shape()[3]; ++j)
          for (int64_t o = 0; o < share_out; ++o)
            for (int64_t u = 0; u < w.shape()[2]; ++u)
              for (int64_t v = 0; v < w.shape()[3]; ++v) {
                const int64_t row = i * stride - padding + u * dilation,
                              column = j * stride - padding + v * dilation;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                const int64_t channel = c / share_in * share_out + o;
                const double value =
                    x.data<double>()[((n * x.shape()[1] + c) * x.shape()[2] + i) * x.shape()[3] + j] *
                    w.data<double>()[((c * share_out + o) * w.shape()[2] + u) * w.shape()[3] + v];
                y[static_cast<size_t>(((n * out + channel) * height + row) * width + column)] += value;
              }
  return y;
}

TEST(ConvTranspose2dTest, SpreadsInputsByTheFilter) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  struct Case {
    int64_t stride, padding, output_padding, dilation, groups;
  };
  for (const auto& [stride, padding, output_padding, dilation, groups] :
       {Case{1, 0, 0, 1, 1}, Case{2, 1, 1, 1, 1}, Case{3, 2, 2, 2, 2}, Case{2, 0, 0, 1, 2}}) {
    const ConvTranspose2dOptions options{.stride = stride,
                                         .padding = padding,
                                         .output_padding = output_padding,
                                         .dilation = dilation,
                                         .groups = groups};
    ConvTranspose2dOptions last = options;
    last.layout = Layout::kNHWC;
    const ConvTranspose2d layer(4, 6, {3, 2}, options), layer_last(4, 6, {3, 2}, last);
    EXPECT_EQ(layer.weight.shape(), (Shape{4, 6 / groups, 3, 2}));
    EXPECT_EQ(layer.bias.shape(), (Shape{6}));
    const Tensor x = random_tensor({2, 4, 3, 4}, 8);
    const Tensor w = random_tensor({4, 6 / groups, 3, 2}, 9), b = random_tensor({6}, 10);
    for (const ConvTranspose2d* module : {&layer, &layer_last}) {
      module->to(DType::kFloat64);
      module->weight.assign(w);
      module->bias.assign(b);
    }
    const Tensor y = layer(x);
    EXPECT_EQ(y.shape(), (Shape{2, 6, 2 * stride - 2 * padding + dilation * 2 + output_padding + 1,
                                3 * stride - 2 * padding + dilation + output_padding + 1}));
    const std::vector<double> expected =
        transposed_convolution(x, w, b, stride, padding, dilation, groups, y.shape());
    expect_near<double>(y, expected, 1e-12);
    const Tensor x_last = ops::permute(x, {0, 2, 3, 1});
    expect_near<double>(ops::permute(layer_last(x_last), {0, 3, 1, 2}), expected, 1e-12);
    expect_gradients(layer, x);
    expect_gradients(layer_last, x_last);
  }
  EXPECT_EQ(message_of([] { ConvTranspose2d(4, 6, 3, {.stride = 2, .output_padding = 2}); }),
            "[conv_transpose2d] expected an output padding less than the stride but got 2x2 for 2x2");
  EXPECT_EQ(
      message_of([] {
        ConvTranspose2d(4, 6, 1, {.padding = 4})(floats({1, 4, 3, 3}, 0));
      }),
      "[conv_transpose2d] a padding of 4x4 leaves nothing of the output for an input of shape (1, 4, 3, 3)");
}

// ---- BatchNorm's options

TEST(BatchNormOptionsTest, MomentumNoneGivesTheMeanOverAllBatches) {
  const BatchNorm1d norm(1, {.momentum = std::nullopt});
  double mean = 0, variance = 0;
  for (int i = 0; i < 4; ++i) {
    const double a = i * i, b = 3.0 + i;
    norm(Tensor::from_values<float>({static_cast<float>(a), static_cast<float>(b)}, {2, 1}));
    mean += (a + b) / 2 / 4;
    variance += (a - b) * (a - b) / 2 / 4;
  }
  expect_near<float>(norm.running_mean, {static_cast<float>(mean)}, 1e-6);
  expect_near<float>(norm.running_var, {static_cast<float>(variance)}, 1e-6);
}

TEST(BatchNormOptionsTest, EpsilonMayBeZero) {
  const BatchNorm1d norm(1, {.epsilon = 0.0});
  expect_near<float>(norm(Tensor::from_values<float>({1e-4f, 3e-4f}, {2, 1})), {-1, 1}, 1e-6);
}

}  // namespace
}  // namespace sinter::nn
