// Batch normalisation beyond its samples: hard statistics, running statistics, errors, independence of
// threads.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/op_support.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

/// y, mean and inv_std.
std::vector<Tensor> run(const Tensor& x, const BatchNormOptions& options = {}) {
  return call(builtin("batch_norm"), {x, {}, {}, {}, {}}, options);
}

Tensor normal(const Shape& shape, double mean, double deviation) {
  Generator generator(7);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(mean + deviation * generator.normal());
  return Tensor::from_values(values, shape);
}

TEST(BatchNorm, KeepsItsDigitsUnderALargeMean) {
  struct Case {
    Shape shape;
    Layout layout;
  };
  const Case cases[] = {{{16, 3, 32, 32}, Layout::kNCHW}, {{2, 3, 150, 151}, Layout::kNCHW},
                        {{16, 32, 32, 3}, Layout::kNHWC}, {{64, 5, 3, 3}, Layout::kNCHW},
                        {{4099, 3}, Layout::kNCHW},       {{40, 300, 6, 6}, Layout::kNCHW},
                        {{40, 6, 6, 300}, Layout::kNHWC}};
  for (const auto& [shape, layout] : cases) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = normal(shape, 1000.0, 0.01);
    const std::vector<Tensor> outputs = run(x, {.epsilon = 1e-12, .layout = layout});
    const int axis = layout == Layout::kNCHW ? 1 : shape.rank() - 1;
    const int64_t channels = shape[axis], stride = shape.stride(axis);
    const double count = static_cast<double>(shape.numel() / channels);
    std::vector<double> mean(static_cast<size_t>(channels)), variance(mean.size());
    for (int64_t i = 0; i < x.numel(); ++i)
      mean[static_cast<size_t>(i / stride % channels)] += double{x.data<float>()[i]} / count;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto c = static_cast<size_t>(i / stride % channels);
      variance[c] += std::pow(double{x.data<float>()[i]} - mean[c], 2) / count;
    }
    for (int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<size_t>(c);
      EXPECT_EQ(outputs[1].data<float>()[c], static_cast<float>(mean[at]));
      EXPECT_NEAR(double{outputs[2].data<float>()[c]} * std::sqrt(variance[at]), 1.0, 1e-5);
    }
    for (int64_t i = 0; i < x.numel(); i += 7) {
      const auto c = static_cast<size_t>(i / stride % channels);
      ASSERT_NEAR(outputs[0].data<float>()[i],
                  (double{x.data<float>()[i]} - mean[c]) / std::sqrt(variance[c]), 1e-4);
    }
  }
}

TEST(BatchNorm, SurvivesAnOutlierInFront) {
  Tensor x = normal({8, 2, 10, 10}, 0.0, 0.01);
  x.data<float>()[0] = 1e4F;
  const std::vector<Tensor> outputs = run(x);
  double sum = 0.0, squares = 0.0;
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t i = 0; i < 100; ++i) sum += double{x.data<float>()[n * 200 + i]};
  }
  for (int64_t n = 0; n < 8; ++n) {
    for (int64_t i = 0; i < 100; ++i)
      squares += std::pow(double{x.data<float>()[n * 200 + i]} - sum / 800, 2);
  }
  EXPECT_NEAR(outputs[1].data<float>()[0], sum / 800, 1e-6 * std::abs(sum / 800));
  EXPECT_NEAR(double{outputs[2].data<float>()[0]} * std::sqrt(squares / 800), 1.0, 1e-6);
}

TEST(BatchNorm, GivesTheBiasForAConstantChannel) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Tensor x = Tensor::full({5, 9, 9, 9}, 0.1);
    const Tensor bias = Tensor::full({9}, 3.0), weight = Tensor::full({9}, 2.0);
    const Tensor y = batch_norm(x, weight, bias, {}, {}, {.layout = layout});
    for (float value : y.to_vector<float>()) ASSERT_NEAR(value, 3.0F, 1e-5F);
    EXPECT_NEAR(run(x, {.layout = layout})[2].data<float>()[8], 1.0 / std::sqrt(1e-5), 1e-3);
  }
}

TEST(BatchNorm, MovesRunningStatisticsAsComputedByHand) {
  // Channel 0: 1, 2, 3, 6: mean 3, unbiased variance (4 + 1 + 0 + 9) / 3. Channel 1: 0, 0, 0, 4: mean 1,
  // variance 12 / 3.
  const Tensor x = Tensor::from_values<double>({1, 0, 2, 0, 3, 0, 6, 4}, Shape{4, 2});
  const Tensor mean = Tensor::from_values<double>({10, -1}, Shape{2}),
               var = Tensor::from_values<double>({1, 2}, Shape{2});
  batch_norm(x, {}, {}, mean, var, {.momentum = 0.25});
  EXPECT_DOUBLE_EQ(mean.data<double>()[0], 0.75 * 10 + 0.25 * 3);
  EXPECT_DOUBLE_EQ(mean.data<double>()[1], 0.75 * -1 + 0.25 * 1);
  EXPECT_DOUBLE_EQ(var.data<double>()[0], 0.75 * 1 + 0.25 * 14 / 3);
  EXPECT_DOUBLE_EQ(var.data<double>()[1], 0.75 * 2 + 0.25 * 4);
  const std::vector<double> before = var.to_vector<double>();
  batch_norm(x, {}, {}, mean, var, {.training = false});
  EXPECT_EQ(var.to_vector<double>(), before);
  batch_norm(Tensor::empty({0, 2}, DType::kFloat64), {}, {}, mean, var);
  EXPECT_EQ(var.to_vector<double>(), before);
}

TEST(BatchNorm, TakesAnEpsilonOfZero) {
  // Channel 0: mean 2, variance 4. Channel 1 has no variance, so that its values are 0 / 0.
  const Tensor x = Tensor::from_values<double>({0, 3, 4, 3, 0, 3, 4, 3}, Shape{4, 2});
  const std::vector<Tensor> outputs = run(x, {.epsilon = 0.0});
  EXPECT_EQ(outputs[2].data<double>()[0], 0.5);
  for (int64_t i = 0; i < 8; i += 2) EXPECT_EQ(outputs[0].data<double>()[i], i % 4 == 0 ? -1.0 : 1.0);
  for (int64_t i = 1; i < 8; i += 2) EXPECT_TRUE(std::isnan(outputs[0].data<double>()[i]));
}

TEST(BatchNorm, KeepsFloat32StatisticsForHalves) {
  const Tensor x = Tensor::full({4, 3}, 300.0, DType::kFloat16);
  const Tensor mean = Tensor::zeros({3}), var = Tensor::full({3}, 1.0);
  const std::vector<Tensor> outputs = call(builtin("batch_norm"), {x, {}, {}, mean, var}, BatchNormOptions{});
  EXPECT_EQ(outputs[0].dtype(), DType::kFloat16);
  EXPECT_EQ(outputs[1].dtype(), DType::kFloat32);
  EXPECT_FLOAT_EQ(mean.data<float>()[2], 30.0F);
  EXPECT_FLOAT_EQ(var.data<float>()[2], 0.9F);
}

TEST(BatchNorm, DoesNotDependOnTheNumberOfThreads) {
  const int threads = num_threads();
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Tensor x = normal({31, 17, 13, 19}, 1.0, 2.0), dy = normal({31, 17, 13, 19}, 0.1, 1.0);
    std::vector<std::vector<float>> results[2];
    for (int i = 0; i < 2; ++i) {
      set_num_threads(i + 1);
      const std::vector<Tensor> outputs = run(x, {.layout = layout});
      const BatchNormGrads grads = vjp::batch_norm(dy, x, {}, outputs[1], outputs[2], {.layout = layout});
      for (const Tensor& result :
           {outputs[0], outputs[1], outputs[2], grads.dx, grads.dweight, grads.dbias}) {
        results[i].push_back(result.to_vector<float>());
      }
    }
    EXPECT_EQ(results[0], results[1]);
  }
  set_num_threads(threads);
}

TEST(BatchNorm, SaysWhatIsWrong) {
  const Tensor x = Tensor::zeros({1, 3, 1, 1}), two = Tensor::zeros({2}), three = Tensor::zeros({3});
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, {}, {}); }),
            "[batch_norm] expected more than 1 value per channel in training but got shape (1, 3, 1, 1)");
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, {}, {}, {.training = false}); }),
            "[batch_norm] expected running_mean and running_var in inference but got none");
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, three, {}); }),
            "[batch_norm] expected both running_mean and running_var or neither but got only running_mean");
  EXPECT_EQ(message_of([&] { batch_norm(x, two, {}, {}, {}); }),
            "[batch_norm] expected weight of shape (3,) but got (2,)");
  EXPECT_EQ(
      message_of([&] {
        batch_norm(Tensor::zeros({2, 3}, DType::kFloat16), Tensor::zeros({3}, DType::kFloat16), {}, {}, {});
      }),
      "[batch_norm] expected weight of dtype float32 but got float16");
  EXPECT_EQ(message_of([&] {
              batch_norm(Tensor::zeros({2, 3, 4}), {}, {}, {}, {});
            }),
            "[batch_norm] expected x of rank 2 or 4 but got shape (2, 3, 4)");
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, three, three, {.epsilon = -0.5}); }),
            "[batch_norm] expected epsilon >= 0 but got -0.5");
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, three, three, {.epsilon = std::nan("")}); }),
            "[batch_norm] expected epsilon >= 0 but got nan");
  EXPECT_EQ(message_of([&] { batch_norm(x, {}, {}, three, three, {.momentum = 1.5}); }),
            "[batch_norm] expected momentum in [0, 1] but got 1.5");
}

}  // namespace
}  // namespace sinter::ops
