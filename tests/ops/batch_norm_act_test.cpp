// Fused batch normalisation beyond its samples: what it shares with the plain ops, NaN, and what its
// attributes decide.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu.h>

namespace sinter::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor normal(Generator& generator, const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = generator.normal();
  return cast(Tensor::from_values(values, shape), dtype);
}

void expect_same_bits(const Tensor& got, const Tensor& expected, const char* what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), got.spec().bytes()), 0) << what;
}

TEST(BatchNormAct, GivesThePlainOpsBitsWithoutAddendAndActivation) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Generator generator(seed);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      for (const bool training : {true, false}) {
        const Shape shape = layout == Layout::kNCHW ? Shape{9, 5, 7, 13} : Shape{9, 7, 13, 5};
        const DType wide = accumulate_dtype(dtype);
        const auto vector = [&] { return normal(generator, Shape{5}, wide); };
        const Tensor x = normal(generator, shape, dtype), dy = normal(generator, shape, dtype);
        const Tensor weight = vector(), bias = vector(), mean = vector();
        const Tensor var = Tensor::full({5}, 0.7, wide);
        const Tensor own_mean = cast(mean, DType::kFloat64), own_var = cast(var, DType::kFloat64);
        const std::vector<Tensor> plain = call(builtin("batch_norm"), {x, weight, bias, mean, var},
                                               BatchNormOptions{.training = training, .layout = layout});
        std::vector<Tensor> inputs(18);
        inputs[0] = x, inputs[1] = weight, inputs[2] = bias;
        inputs[3] = cast(own_mean, wide), inputs[4] = cast(own_var, wide);
        const std::vector<Tensor> fused =
            call(builtin("batch_norm_act"), inputs,
                 BatchNormActOptions{
                     .training = training, .layout = layout, .activation = fused::Activation::kNone});
        ASSERT_EQ(fused.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i) expect_same_bits(fused[i], plain[i], "forward");
        expect_same_bits(inputs[3], mean, "running_mean");
        expect_same_bits(inputs[4], var, "running_var");
        const BatchNormGrads grads =
            vjp::batch_norm(dy, x, weight, plain[1], plain[2], {.training = training, .layout = layout});
        const BatchNormActGrads fused_grads = vjp::batch_norm_act(
            dy, {}, x, {weight, bias, plain[1], plain[2]}, {}, {}, {}, {},
            {.training = training, .layout = layout, .activation = fused::Activation::kNone});
        expect_same_bits(fused_grads.dx, grads.dx, "dx");
        expect_same_bits(fused_grads.dweight, grads.dweight, "dweight");
        expect_same_bits(fused_grads.dbias, grads.dbias, "dbias");
      }
    }
  }
}

/// Normalisation that changes nothing but for its parameters: mean 0, variance 1, epsilon 0.
NormTensors identity(int64_t channels) {
  return {.running_mean = Tensor::zeros({channels}), .running_var = Tensor::full({channels}, 1.0)};
}

TEST(BatchNormAct, LetsNanPassReluWithItsGradient) {
  const Tensor x = Tensor::from_values<float>({-1, kNan, 2, kNan, 0, 3}, Shape{3, 2}).set_requires_grad(true);
  const Tensor y = fused::batch_norm_act(x, identity(2), {}, {}, {}, {.epsilon = 0.0, .training = false});
  const std::vector<float> values = y.to_vector<float>();
  EXPECT_EQ(values[0], 0.0F);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_EQ(values[2], 2.0F);
  EXPECT_TRUE(std::isnan(values[3]));
  EXPECT_EQ(values[4], 0.0F);
  backward(y, {.gradient = Tensor::from_values<float>({5, 6, 7, 8, 9, 10}, Shape{3, 2})});
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 6, 7, 8, 0, 10}));
}

TEST(BatchNormAct, SendsNanThroughPReluAsThatOpDoes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = cast(Tensor::from_values<double>({-1, kNan, 2, 0, 0.5, 3}, Shape{3, 2}), dtype);
    const Tensor dy = cast(Tensor::from_values<double>({5, 6, 7, 8, 9, 10}, Shape{3, 2}), dtype);
    const DType wide = accumulate_dtype(dtype);
    const Tensor slopes = Tensor::from_values<double>({0.25, -0.5}, Shape{2});
    const Tensor expected = prelu(x, cast(slopes, dtype));
    const PReluGrads expected_grads = vjp::prelu(dy, x, cast(slopes, dtype));
    std::vector<Tensor> inputs(18);
    inputs[0] = x, inputs[6] = cast(slopes, wide);
    inputs[3] = Tensor::zeros({2}, wide), inputs[4] = Tensor::full({2}, 1.0, wide);
    const std::vector<Tensor> outputs =
        call(builtin("batch_norm_act"), inputs,
             BatchNormActOptions{.epsilon = 0.0, .training = false, .activation = fused::Activation::kPRelu});
    EXPECT_EQ(outputs[3].to_vector<uint8_t>(), (std::vector<uint8_t>{0b110100}));
    const BatchNormActGrads grads =
        vjp::batch_norm_act(dy, {}, x, {{}, {}, outputs[1], outputs[2]}, {}, {}, inputs[6], outputs[3],
                            {.training = false, .activation = fused::Activation::kPRelu});
    const auto as_doubles = [](const Tensor& tensor) {
      return cast(tensor, DType::kFloat64).to_vector<double>();
    };
    const auto expect_same = [&](const Tensor& got, const Tensor& wanted) {
      const std::vector<double> a = as_doubles(got), b = as_doubles(wanted);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
            << to_string(dtype) << " " << i << ": " << a[i] << ", expected " << b[i];
      }
    };
    expect_same(outputs[0], expected);
    expect_same(grads.dx, expected_grads.dx);
    expect_same(grads.dalpha, expected_grads.dalpha);
    EXPECT_EQ(as_doubles(grads.dx)[1], -3.0) << "alpha * dy";
    EXPECT_TRUE(std::isnan(as_doubles(grads.dalpha)[1]));
  }
}

/// What infer says of a call on a device that need not be there.
std::vector<TensorSpec> infer(const Shape& x, Device device, const BatchNormActOptions& options) {
  const OpDef& definition = builtin("batch_norm_act").definition;
  const int64_t channels = x[options.layout == Layout::kNHWC ? 3 : 1];
  const TensorSpec image{x, DType::kFloat16, device}, vector{Shape{channels}, DType::kFloat32, device};
  std::vector<const TensorSpec*> inputs(18);
  inputs[0] = &image, inputs[1] = inputs[2] = &vector;
  const Attributes attributes(options);
  return definition.infer(InferContext(definition, inputs, attributes));
}

TEST(BatchNormAct, InfersFromSpecsAndAttributesAlone) {
  const Shape x{4, 3, 3, 8};
  const Device gpu = Device::cuda(5);  // there need not be one
  const auto mask_of = [&](const BatchNormActOptions& options) {
    const std::vector<TensorSpec> outputs = infer(x, gpu, options);
    return outputs.size() < 4 ? int64_t{-1} : outputs[3].shape.numel();
  };
  EXPECT_EQ(mask_of({.layout = Layout::kNHWC, .backend = NormBackend::kCudnn, .reserve_bytes = 12345}),
            12345);
  EXPECT_EQ(mask_of({.layout = Layout::kNHWC}), 4 * 3 * 3 * 8 / 8);
  EXPECT_EQ(mask_of({.layout = Layout::kNHWC, .save_mask = false}), -1);
  const NoGrad no_grad;
  EXPECT_EQ(mask_of({.layout = Layout::kNHWC}), 4 * 3 * 3 * 8 / 8) << "whatever is being recorded";
  EXPECT_THROW(mask_of({.layout = Layout::kNHWC, .reserve_bytes = 8}), InvalidArgument);
  EXPECT_THROW(mask_of({.layout = Layout::kNHWC, .backend = NormBackend::kCudnn, .reserve_bytes = -1}),
               InvalidArgument);
}

/// Without it, PReLU's argument would be another, and alpha's gradient wrong.
TEST(BatchNormAct, AsksForTheAddendBesideItsGradientUnderPRelu) {
  const Tensor x = Tensor::full({4, 2}, 0.5), ones = Tensor::full({2}, 1.0),
               mask = Tensor::zeros({1}, DType::kUInt8);
  const auto grads = [&](const Tensor& addend) {
    return vjp::batch_norm_act(x, {}, x, {.mean = ones, .inv_std = ones}, addend, {}, ones, mask,
                               {.addend_grad = true, .activation = fused::Activation::kPRelu});
  };
  EXPECT_TRUE(grads(x).daddend.defined());
  EXPECT_THROW(grads({}), InvalidArgument);
}

TEST(BatchNormAct, RefusesABackendThatIsNotThere) {
  EXPECT_THROW(fused::batch_norm_act(Tensor::zeros({4, 3, 3, 8}), {}, {}, {}, {},
                                     {.layout = Layout::kNHWC, .backend = NormBackend::kCudnn}),
               Unsupported);
}

TEST(BatchNormAct, NeedsNoReserveSpaceWithoutCudnn) {
  const TensorSpec x{Shape{4, 3, 3, 8}, DType::kFloat16, Device::cpu()};
  std::vector<const TensorSpec*> inputs(18);
  inputs[0] = &x;
  EXPECT_EQ(norm_reserve_bytes(inputs, {.layout = Layout::kNHWC}), 0);
  EXPECT_THROW(norm_reserve_bytes(inputs, {.layout = Layout::kNHWC, .backend = NormBackend::kCudnn}),
               Unsupported);
}

TEST(BatchNormAct, NeedsItsMaskForAGradient) {
  const Tensor x = Tensor::full({4, 2}, 1.0).set_requires_grad(true);
  NormTensors norm = identity(2);
  const BatchNormActOptions options{.training = false, .save_mask = false};
  const Tensor y = fused::batch_norm_act(x, norm, {}, {}, {}, options);
  EXPECT_THROW(backward(y, {.gradient = Tensor::full({4, 2}, 1.0)}), InvalidArgument);
}

}  // namespace
}  // namespace sinter::ops
