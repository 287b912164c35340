// Batch normalisation on a GPU beyond its samples: tensors that fill it, hard statistics, the same bits in
// every run. The CPU's results, or exact ones, are the reference.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_act.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_samples.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

const Device kGpu = Device::cuda();

/// On the GPU; with an offset, one element into its memory, so that wide accesses are not aligned.
Tensor on_gpu(const Tensor& tensor, bool offset = false) {
  if (!tensor.defined() || !offset) return tensor.defined() ? tensor.to(kGpu) : tensor;
  const TensorSpec spec{tensor.shape(), tensor.dtype(), kGpu};
  const Tensor memory = Tensor::empty(Shape{tensor.numel() + 1}, spec.dtype, kGpu);
  const Tensor view = Tensor::over(memory.storage(), size_of(spec.dtype), spec);
  copy_bytes(view.raw_data(), kGpu, tensor.raw_data(), tensor.device(), spec.bytes());
  return view;
}

Tensor normal(const Shape& shape, double mean, double deviation, uint64_t seed = 7) {
  Generator generator(seed);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(mean + deviation * generator.normal());
  return Tensor::from_values(values, shape);
}

struct Case {
  Shape shape;
  Layout layout;
};

/// Every way through a tensor: columns in packs and one by one, planes likewise, images as rows, one channel.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{16, 12, 24, 24}, Layout::kNCHW},  {{40, 16, 7, 7}, Layout::kNCHW},  {{40, 12, 14, 14}, Layout::kNCHW},
      {{2, 3, 75, 77}, Layout::kNCHW},    {{9, 24, 24, 64}, Layout::kNHWC}, {{33, 5, 5, 96}, Layout::kNHWC},
      {{7, 13, 11, 2056}, Layout::kNHWC}, {{16, 32, 32, 3}, Layout::kNHWC}, {{64, 5, 3, 3}, Layout::kNCHW},
      {{4099, 3}, Layout::kNCHW},         {{4099, 40}, Layout::kNCHW},      {{100, 1, 20, 20}, Layout::kNCHW},
      {{100, 20, 20, 1}, Layout::kNHWC},  {{2, 50000}, Layout::kNCHW},      {{3, 4000, 2, 2}, Layout::kNCHW}};
  return all;
}

int axis_of(const Case& c) {
  return c.layout == Layout::kNCHW ? 1 : 3;
}

/// Mean and biased variance of every channel.
struct Exact {
  std::vector<double> mean, variance;

  Exact(const Tensor& x, const Case& c) {
    const int64_t channels = c.shape[axis_of(c)], stride = c.shape.stride(axis_of(c));
    const double count = static_cast<double>(c.shape.numel() / channels);
    const ReferenceTensor values = reference_of(x);
    mean.resize(static_cast<size_t>(channels));
    variance.resize(mean.size());
    const auto channel = [&](int64_t i) { return static_cast<size_t>(i / stride % channels); };
    for (int64_t i = 0; i < x.numel(); ++i) mean[channel(i)] += values[i] / count;
    for (int64_t i = 0; i < x.numel(); ++i)
      variance[channel(i)] += std::pow(values[i] - mean[channel(i)], 2) / count;
  }
};

class BatchNormOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(kGpu)) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(BatchNormOnCuda, KeepsItsDigitsUnderALargeMean) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(to_string(c.shape));
    const Tensor x = normal(c.shape, 1000.0, 0.01);
    const Exact exact(x, c);
    const BatchNormOptions options{.epsilon = 1e-12, .layout = c.layout};
    const std::vector<Tensor> outputs = call(builtin("batch_norm"), {on_gpu(x), {}, {}, {}, {}}, options);
    const auto mean = outputs[1].to_vector<float>(), inv_std = outputs[2].to_vector<float>();
    const auto y = outputs[0].to_vector<float>();
    const int64_t channels = c.shape[axis_of(c)], stride = c.shape.stride(axis_of(c));
    for (size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NEAR(mean[i], exact.mean[i], 3.06e-5);  // half a unit in the last place
      EXPECT_NEAR(double{inv_std[i]} * std::sqrt(exact.variance[i] + options.epsilon), 1.0, 1e-5);
    }
    for (int64_t i = 0; i < x.numel(); i += 7) {
      const auto channel = static_cast<size_t>(i / stride % channels);
      const double expected = (double{x.data<float>()[i]} - exact.mean[channel]) /
                              std::sqrt(exact.variance[channel] + options.epsilon);
      ASSERT_NEAR(y[static_cast<size_t>(i)], expected, 1e-4);
    }
  }
}

TEST_F(BatchNormOnCuda, SurvivesOutliersWhereverTheyLie) {
  const Case c{{8, 2, 20, 20}, Layout::kNCHW};
  for (const int64_t place : {0, 1, 399, 3 * 800 + 130, 7 * 800 + 399}) {
    Tensor x = normal(c.shape, 0.0, 0.01);
    x.data<float>()[place] = 1e4F;
    const Exact exact(x, c);
    const std::vector<Tensor> outputs =
        call(builtin("batch_norm"), {on_gpu(x), {}, {}, {}, {}}, BatchNormOptions{});
    EXPECT_NEAR(outputs[1].to_vector<float>()[0] / exact.mean[0], 1.0, 1e-6) << place;
    EXPECT_NEAR(double{outputs[2].to_vector<float>()[0]} * std::sqrt(exact.variance[0]), 1.0, 1e-6) << place;
  }
}

TEST_F(BatchNormOnCuda, GivesTheBiasForAConstantChannel) {
  for (const Case& c : cases()) {
    for (const double value : {0.1, -65504.0}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
        const int64_t channels = c.shape[axis_of(c)];
        const Tensor x = Tensor::full(c.shape, value, dtype, kGpu);
        const Tensor weight = Tensor::full({channels}, 2.0, DType::kFloat32, kGpu);
        const Tensor bias = Tensor::full({channels}, 3.0, DType::kFloat32, kGpu);
        const Tensor y = batch_norm(x, weight, bias, {}, {}, {.layout = c.layout});
        for (const float result : cast(y, DType::kFloat32).to_vector<float>()) ASSERT_EQ(result, 3.0F);
      }
    }
  }
}

TEST_F(BatchNormOnCuda, NormalizesTheExtremesOfFloat16) {
  for (const Case& c : cases()) {
    std::vector<float> values(static_cast<size_t>(c.shape.numel()));
    const int64_t channels = c.shape[axis_of(c)], stride = c.shape.stride(axis_of(c));
    for (int64_t i = 0; i < c.shape.numel(); ++i) {
      // By turns within every channel, so that the mean of an even number of values is 0.
      const int64_t within = i / (stride * channels) * stride + i % stride;
      values[static_cast<size_t>(i)] = within % 2 == 0 ? 65504.0F : -65504.0F;
    }
    const Tensor x = cast(Tensor::from_values(values, c.shape), DType::kFloat16);
    const Exact exact(x, c);
    const std::vector<Tensor> outputs =
        call(builtin("batch_norm"), {on_gpu(x), {}, {}, {}, {}}, BatchNormOptions{.layout = c.layout});
    const auto inv_std = outputs[2].to_vector<float>();
    for (size_t i = 0; i < inv_std.size(); ++i)
      EXPECT_NEAR(inv_std[i] * std::sqrt(exact.variance[i]), 1.0, 1e-5);
    for (const float y : cast(outputs[0], DType::kFloat32).to_vector<float>())
      ASSERT_NEAR(std::abs(y), 1.0F, 2e-2F);
  }
}

/// All inputs of a fused call, on the CPU.
struct Call {
  std::vector<Tensor> inputs = std::vector<Tensor>(13);
  BatchNormActOptions options;
  Tensor dy, dy2;

  Call(const Case& c, DType dtype, Activation activation, bool adds, bool normalizes, uint64_t seed) {
    const int64_t channels = c.shape[axis_of(c)];
    options = {.layout = c.layout, .activation = activation, .normalize_addend = normalizes};
    const auto image = [&](uint64_t i) { return cast(normal(c.shape, 0.3, 1.0, seed * 10 + i), dtype); };
    const auto vector = [&](uint64_t i, double mean) {
      return normal(Shape{channels}, mean, 0.2, seed * 10 + i);
    };
    inputs[0] = image(0);
    inputs[1] = vector(1, 1.0);
    inputs[2] = vector(2, 0.0);
    if (activation == Activation::kPRelu)
      inputs[6] = seed % 2 == 0 ? vector(3, 0.25) : Tensor::full({1}, 0.25);
    if (adds || normalizes) inputs[7] = image(4);
    if (normalizes) inputs[8] = vector(5, 1.0), inputs[9] = vector(6, 0.0);
    dy = image(7);
    if (seed % 3 == 0) dy2 = image(8);
  }

  struct Results {
    std::vector<Tensor> outputs;
    BatchNormActGrads grads;

    std::vector<Tensor> all() const {
      std::vector<Tensor> tensors = outputs;
      for (const Tensor& grad : {grads.dx, grads.daddend, grads.dweight, grads.dbias, grads.dalpha,
                                 grads.daddend_weight, grads.daddend_bias}) {
        if (grad.defined()) tensors.push_back(grad);
      }
      return tensors;
    }
  };

  /// Forward and gradient on a device. The gradient takes the mask and statistics of `forward`, if given:
  /// else an argument close to 0 could fall on another side.
  Results run(bool gpu, bool offset, const std::vector<Tensor>* forward = nullptr) const {
    const auto there = [&](const Tensor& tensor) { return gpu ? on_gpu(tensor, offset) : tensor; };
    std::vector<Tensor> moved;
    for (const Tensor& input : inputs) moved.push_back(there(input));
    Results results{call(builtin("batch_norm_act"), moved, options), {}};
    std::vector<Tensor> saved = results.outputs;
    if (forward != nullptr) {
      for (size_t i = 0; i < saved.size(); ++i) saved[i] = there((*forward)[i]);
    }
    saved.resize(6);
    const bool masked = options.activation != Activation::kNone, two = options.normalize_addend;
    const BatchNormActGradOptions grad_options{.addend_grad = moved[7].defined(),
                                               .layout = options.layout,
                                               .activation = options.activation,
                                               .normalize_addend = two};
    results.grads =
        batch_norm_act_grad(moved[0], {moved[1], moved[2], saved[1], saved[2]}, there(dy), there(dy2),
                            masked ? saved[3] : Tensor(), grad_options, moved[6], moved[7],
                            two ? NormState{moved[8], moved[9], saved[4], saved[5]} : NormState{});
    return results;
  }
};

void expect_close(const Tensor& there, const Tensor& here, const std::string& what) {
  ASSERT_EQ(there.shape(), here.shape()) << what;
  const ReferenceTensor got = reference_of(there.to(Device::cpu())), expected = reference_of(here);
  if (here.dtype() == DType::kUInt8) {
    // Bits may differ where the argument is within rounding of 0.
    int64_t differing = 0;
    for (int64_t i = 0; i < here.numel(); ++i) differing += got[i] != expected[i] ? 1 : 0;
    ASSERT_LE(differing, 1 + here.numel() / 10000) << what;
    return;
  }
  double largest = 0.0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  const double tolerance = default_tolerance(here.dtype()) * (1.0 + largest);
  for (int64_t i = 0; i < here.numel(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance) << what << " element " << i;
}

/// One test for each case, so that a sanitizer can take them side by side.
class BatchNormCases : public BatchNormOnCuda, public testing::WithParamInterface<size_t> {};

TEST_P(BatchNormCases, AgreeWithTheCpu) {
  const Case& c = cases()[GetParam()];
  uint64_t seed = 9 * GetParam();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kPRelu}) {
      ++seed;
      const bool adds = seed % 2 == 0, normalizes = seed % 4 == 1, offset = seed % 5 == 0;
      const Call call(c, dtype, activation, adds, normalizes, seed);
      SCOPED_TRACE(fmt::format("{} {} {} {}{}{}", c.shape, dtype, to_string(activation), adds ? "adds " : "",
                               normalizes ? "normalizes " : "", offset ? "offset" : ""));
      const Call::Results here = call.run(false, false);
      const std::vector<Tensor> expected = here.all(), got = call.run(true, offset, &here.outputs).all();
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_close(got[i], expected[i], "result " + std::to_string(i));
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormCases, testing::Range(size_t{0}, cases().size()));

TEST_F(BatchNormOnCuda, AgreesWithTheCpuOnTensorsThatGoThroughTheChipInRounds) {
  uint64_t seed = 2;
  for (const Case& c : {Case{{64, 264, 26, 26}, Layout::kNCHW},
                        {{16, 40, 112, 112}, Layout::kNCHW},
                        {{64, 28, 28, 256}, Layout::kNHWC}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const Call call(c, dtype, Activation::kRelu, seed % 4 != 2, false, seed);
      ++seed;
      SCOPED_TRACE(fmt::format("{} {}", c.shape, dtype));
      const Call::Results here = call.run(false, false);
      const std::vector<Tensor> expected = here.all(), got = call.run(true, false, &here.outputs).all();
      for (size_t i = 0; i < got.size(); ++i) {
        expect_close(got[i], expected[i], "result " + std::to_string(i));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Blocks that wait for each other must all find a place on the GPU, whatever runs beside them.
TEST_F(BatchNormOnCuda, EndsOnTwoStreamsAtOnce) {
  const Case c{{32, 28, 28, 256}, Layout::kNHWC};
  const Tensor x = on_gpu(normal(c.shape, 0.3, 1.0)), y = on_gpu(normal(c.shape, -0.3, 1.0, 8));
  const BatchNormOptions options{.layout = c.layout};
  const auto run = [&](const Tensor& input) {
    return batch_norm(input, {}, {}, {}, {}, options).to(Device::cpu());
  };
  const Tensor expected_x = run(x), expected_y = run(y);
  backend_of(kGpu).synchronize(backend_of(kGpu).default_stream(0));
  const Stream streams[] = {backend_of(kGpu).create_stream(0), backend_of(kGpu).create_stream(0)};
  std::vector<Tensor> results[2];
  for (int i = 0; i < 40; ++i) {
    for (size_t k = 0; k < 2; ++k) {
      const StreamGuard guard(streams[k]);
      results[k].push_back(batch_norm(k == 0 ? x : y, {}, {}, {}, {}, options));
    }
  }
  for (const Stream& stream : streams) backend_of(kGpu).synchronize(stream);
  for (size_t k = 0; k < 2; ++k) {
    const Tensor& expected = k == 0 ? expected_x : expected_y;
    for (const Tensor& result : results[k]) {
      const Tensor got = result.to(Device::cpu());
      ASSERT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), got.spec().bytes()), 0);
    }
  }
}

TEST_F(BatchNormOnCuda, AgreesWithCudnn) {
  const Case c{{9, 24, 24, 64}, Layout::kNHWC};
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    for (const bool adds : {false, true}) {
      if (adds && activation == Activation::kNone) continue;
      const Call call(c, DType::kFloat16, activation, adds, false, 5);
      SCOPED_TRACE(fmt::format("{} {}", to_string(activation), adds));
      const auto run = [&](NormBackend backend) {
        const auto leaf = [&](size_t i) {
          return call.inputs[i].defined() ? on_gpu(call.inputs[i]).set_requires_grad(true) : Tensor();
        };
        const Tensor x = leaf(0), weight = leaf(1), bias = leaf(2), addend = leaf(7);
        const Tensor mean = Tensor::zeros({64}, DType::kFloat32, kGpu);
        const Tensor var = Tensor::full({64}, 1.0, DType::kFloat32, kGpu);
        BatchNormActOptions options = call.options;
        options.backend = backend;
        const Tensor y = batch_norm_act(x, {weight, bias, mean, var, {}}, options, {}, addend);
        backward(y, {.gradient = on_gpu(call.dy)});
        std::vector<Tensor> results = {y, x.grad(), weight.grad(), bias.grad(), mean, var};
        if (adds) results.push_back(addend.grad());
        return results;
      };
      const std::vector<Tensor> own = run(NormBackend::kSinter), theirs = run(NormBackend::kCudnn);
      for (size_t i = 0; i < own.size(); ++i) {
        const ReferenceTensor a = reference_of(own[i].detach().to(Device::cpu()));
        const ReferenceTensor b = reference_of(theirs[i].detach().to(Device::cpu()));
        double largest = 0.0;
        int64_t differing = 0;
        for (const double value : b.values) largest = std::max(largest, std::abs(value));
        for (int64_t j = 0; j < own[i].numel(); ++j)
          differing += std::abs(a[j] - b[j]) > 4e-3 * (1.0 + largest) ? 1 : 0;
        // A bit of the mask may differ where the argument is within rounding of 0.
        EXPECT_LE(differing, own[i].numel() / 10000) << "result " << i;
      }
    }
  }
}

TEST_F(BatchNormOnCuda, RefusesWhatCudnnCannotDo) {
  const Tensor x = Tensor::zeros({4, 3, 3, 8}, DType::kFloat32, kGpu),
               ones = Tensor::full({8}, 1.0, DType::kFloat32, kGpu);
  EXPECT_THROW(batch_norm_act(x, {.weight = ones, .bias = ones},
                              {.layout = Layout::kNHWC, .backend = NormBackend::kCudnn}),
               Unsupported);
}

TEST_F(BatchNormOnCuda, GivesTheSameBitsInEveryRun) {
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    const Activation activation = seed % 2 == 0 ? Activation::kRelu : Activation::kPRelu;
    const Call call(c, DType::kFloat16, activation, true, seed % 3 == 0, seed);
    ++seed;
    const std::vector<Tensor> first = call.run(true, false).all();
    for (int i = 0; i < 3; ++i) {
      const std::vector<Tensor> again = call.run(true, false).all();
      for (size_t j = 0; j < first.size(); ++j) {
        const Tensor a = first[j].to(Device::cpu()), b = again[j].to(Device::cpu());
        EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()), 0)
            << to_string(c.shape) << " result " << j;
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
