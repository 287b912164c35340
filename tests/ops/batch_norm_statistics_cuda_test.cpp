// The statistics of batch normalisation on a GPU where they are hard: large means, outliers, constants, the
// ends of float16. Exact ones are the reference.
#include <cmath>

#include <sinter/core/op/call.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "ops/batch_norm_cuda_support.h"

namespace sinter::ops {
namespace {

using namespace testing_batch_norm;

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

}  // namespace
}  // namespace sinter::ops
