// Normalisation, ReLU and max-pooling in one op, beside the three ops that it stands for: bits, gradients,
// NaN, equal elements, channels that are off. On the CPU and, where there is one, on a GPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::message_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor normal(Generator& generator, const Shape& shape, DType dtype, Device device) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = generator.normal();
  return cast(Tensor::from_values(values, shape), dtype).to(device);
}

std::vector<double> values_of(const Tensor& tensor) {
  return cast(tensor.detach().to(Device::cpu()), DType::kFloat64).to_vector<double>();
}

std::vector<Device> devices_here() {
  std::vector<Device> devices{Device::cpu()};
  if (is_available(Device::cuda())) devices.push_back(Device::cuda());
  return devices;
}

/// Windows of the usual kinds, for which there are kernels of their own, and others.
struct Windows {
  std::array<int64_t, 2> kernel, stride, padding;
  bool ceil_mode = false;
};
const Windows kWindows[] = {
    {{3, 3}, {2, 2}, {1, 1}},       {{3, 3}, {2, 2}, {0, 0}, true}, {{2, 2}, {2, 2}, {0, 0}},
    {{3, 3}, {1, 1}, {1, 1}},       {{2, 3}, {3, 2}, {1, 0}, true}, {{4, 4}, {2, 2}, {2, 1}},
    {{5, 4}, {1, 3}, {2, 2}, true}, {{1, 1}, {1, 1}, {0, 0}},       {{1, 1}, {2, 3}, {0, 0}},
};

/// One call, and everything that can be asked of it.
struct Problem {
  BatchNormReluMaxPoolOptions options;
  Tensor x, weight, bias, running_mean, running_var;

  Problem(Generator& generator, const Windows& windows, Layout layout, int64_t channels, DType dtype,
          Device device, int64_t batch = 3) {
    options = {.layout = layout,
               .kernel = windows.kernel,
               .stride = windows.stride,
               .padding = windows.padding,
               .ceil_mode = windows.ceil_mode};
    const Shape shape =
        layout == Layout::kNCHW ? Shape{batch, channels, 19, 23} : Shape{batch, 19, 23, channels};
    const DType wide = accumulate_dtype(dtype);
    x = normal(generator, shape, dtype, device);
    weight = normal(generator, Shape{channels}, wide, device);
    bias = normal(generator, Shape{channels}, wide, device);
    running_mean = Tensor::full(Shape{channels}, 0.25, wide, device);
    running_var = Tensor::full(Shape{channels}, 0.75, wide, device);
  }

  void require_grads() {
    for (Tensor* tensor : {&x, &weight, &bias}) *tensor = tensor->detach().set_requires_grad(true);
  }
  Tensor fused() const {
    return batch_norm_relu_max_pool(x,
                                    {.weight = weight,
                                     .bias = bias,
                                     .running_mean = running_mean,
                                     .running_var = running_var,
                                     .sums = {}},
                                    options);
  }
  Tensor one_by_one() const {
    const Tensor z =
        batch_norm(x, weight, bias, running_mean, running_var,
                   {.epsilon = options.epsilon, .momentum = options.momentum, .layout = options.layout});
    return max_pool2d(relu(z), options.pool());
  }
  /// All outputs.
  std::vector<Tensor> outputs() const {
    return call(builtin("batch_norm_relu_max_pool"), {x, weight, bias, running_mean, running_var, Tensor()},
                options);
  }
};

struct Gradients {
  std::vector<double> y, dx, dweight, dbias;
};

template <class Function>
Gradients gradients_of(Problem problem, const Function& function, const Tensor& dy) {
  problem.require_grads();
  const Tensor y = function(problem);
  backward(y, {.gradient = dy});
  return {values_of(y), values_of(problem.x.grad()), values_of(problem.weight.grad()),
          values_of(problem.bias.grad())};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_LE(std::abs(got[i] - expected[i]), tolerance * largest) << what << " " << i;
  }
}

void expect_same(const Problem& problem, Generator& generator, double tolerance) {
  const Shape pooled = problem.fused().shape();
  const Tensor dy = normal(generator, pooled, problem.x.dtype(), problem.x.device());
  const Gradients got = gradients_of(
      problem, [](const Problem& p) { return p.fused(); }, dy);
  const Gradients expected = gradients_of(
      problem, [](const Problem& p) { return p.one_by_one(); }, dy);
  expect_near(got.y, expected.y, tolerance, "y");
  expect_near(got.dx, expected.dx, tolerance, "dx");
  expect_near(got.dweight, expected.dweight, tolerance, "dweight");
  expect_near(got.dbias, expected.dbias, tolerance, "dbias");
}

template <class Check>
void for_problems(std::initializer_list<DType> dtypes, const Check& check) {
  Generator generator(20261122);
  for (const Device device : devices_here()) {
    for (const DType dtype : dtypes) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
        for (const int64_t channels : {5, 8, 24}) {
          for (const Windows& windows : kWindows) {
            SCOPED_TRACE(fmt::format("{} {} {} {} channels, kernel {} x {}, stride {} x {}", device, dtype,
                                     to_string(layout), channels, windows.kernel[0], windows.kernel[1],
                                     windows.stride[0], windows.stride[1]));
            check(Problem(generator, windows, layout, channels, dtype, device), generator);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(BatchNormReluMaxPool, GivesWhatTheOpsGiveOneByOne) {
  for_problems({DType::kFloat32, DType::kFloat64}, [](const Problem& problem, Generator& generator) {
    expect_same(problem, generator, problem.x.dtype() == DType::kFloat64 ? 1e-11 : 1e-4);
  });
}

TEST(BatchNormReluMaxPool, HasTheirMaximaIn16Bit) {
  for_problems({DType::kFloat16, DType::kBFloat16}, [](const Problem& problem, Generator&) {
    const bool is_exact = problem.x.device() == Device::cpu();  // else statistics may be summed otherwise
    const double step = problem.x.dtype() == DType::kFloat16 ? 1.0 / 1024 : 1.0 / 128;
    expect_near(values_of(problem.fused()), values_of(problem.one_by_one()), is_exact ? 0.0 : step, "y");
  });
}

TEST(BatchNormReluMaxPool, MovesRunningStatisticsAsBatchNormDoes) {
  Generator generator(7);
  const Problem fused(generator, kWindows[0], Layout::kNHWC, 8, DType::kFloat32, Device::cpu());
  Problem plain = fused;
  plain.running_mean = cast(cast(fused.running_mean, DType::kFloat64), DType::kFloat32);
  plain.running_var = cast(cast(fused.running_var, DType::kFloat64), DType::kFloat32);
  (void)fused.fused();
  (void)plain.one_by_one();
  EXPECT_EQ(values_of(fused.running_mean), values_of(plain.running_mean));
  EXPECT_EQ(values_of(fused.running_var), values_of(plain.running_var));
  EXPECT_NE(values_of(fused.running_mean)[0], 0.25);
}

TEST(BatchNormReluMaxPool, GoesByTheFirstOfEqualElements) {
  Generator generator(8);
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      Problem problem(generator, kWindows[0], layout, 8, DType::kFloat32, device);
      problem.weight = Tensor::zeros(Shape{8}, DType::kFloat32, device);  // all are as large as the bias
      problem.bias = Tensor::full(Shape{8}, 0.5, DType::kFloat32, device);
      expect_same(problem, generator, 1e-4);
    }
  }
}

TEST(BatchNormReluMaxPool, LetsNoGradientThroughWhereNothingIsPositive) {
  Generator generator(9);
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      Problem problem(generator, kWindows[0], layout, 8, DType::kFloat32, device);
      problem.bias = Tensor::full(Shape{8}, -100.0, DType::kFloat32, device);
      problem.require_grads();
      const std::vector<double> indices = values_of(problem.outputs().at(3));
      EXPECT_TRUE(std::ranges::all_of(indices, [](double index) { return index == 255.0; }));
      const Tensor y = problem.fused();
      backward(y, {.gradient = Tensor::full(y.shape(), 1.0, DType::kFloat32, device)});
      for (const Tensor& zero : {y, problem.x.grad(), problem.weight.grad(), problem.bias.grad()}) {
        for (const double value : values_of(zero)) ASSERT_EQ(value, 0.0);
      }
    }
  }
}

TEST(BatchNormReluMaxPool, SendsNanTheWayOfTheOpsOneByOne) {
  Generator generator(10);
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      for (const Windows& windows : kWindows) {
        Problem problem(generator, windows, layout, 8, DType::kFloat32, Device::cpu());
        problem.x.data<float>()[40] = static_cast<float>(kNan);  // its channel's statistics are NaN too
        for (Tensor* tensor :
             {&problem.x, &problem.weight, &problem.bias, &problem.running_mean, &problem.running_var}) {
          *tensor = tensor->to(device);
        }
        const Tensor z =
            relu(batch_norm(problem.x, problem.weight, problem.bias, {}, {}, {.layout = layout}));
        const std::vector<Tensor> pooled = call(builtin("max_pool2d"), {z}, problem.options.pool());
        const std::vector<Tensor> got = problem.outputs();
        const std::vector<double> indices = values_of(got[3]), places = values_of(pooled[1]),
                                  maxima = values_of(pooled[0]);
        int64_t nans = 0;
        for (size_t i = 0; i < indices.size(); ++i) {
          ASSERT_EQ(indices[i], maxima[i] == 0.0 ? 255.0 : places[i]) << i;
          nans += std::isnan(maxima[i]);
        }
        EXPECT_GT(nans, 0);
        expect_same(problem, generator, 1e-4);
      }
    }
  }
}

TEST(BatchNormReluMaxPool, AnEmptyBatchMovesNothing) {
  Generator generator(11);
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      Problem problem(generator, kWindows[0], layout, 8, DType::kFloat16, device, /*batch=*/0);
      problem.require_grads();
      const Tensor y = problem.fused();
      backward(y, {.gradient = Tensor::zeros(y.shape(), DType::kFloat16, device)});
      EXPECT_EQ(y.numel(), 0);
      EXPECT_EQ(values_of(problem.running_mean), std::vector<double>(8, 0.25));
      EXPECT_EQ(values_of(problem.bias.grad()), std::vector<double>(8, 0.0));
    }
  }
}

TEST(BatchNormReluMaxPool, NeedsItsIndicesForAGradient) {
  Generator generator(12);
  Problem problem(generator, kWindows[0], Layout::kNCHW, 3, DType::kFloat32, Device::cpu());
  problem.options.save_indices = false;
  EXPECT_EQ(problem.outputs().size(), 3U);
  problem.require_grads();
  const std::vector<Tensor> outputs = problem.outputs();
  EXPECT_EQ(message_of<InvalidArgument>([&] { backward(outputs[0], {.gradient = outputs[0].detach()}); }),
            "[batch_norm_relu_max_pool] expected save_indices for a gradient but it is off");
}

TEST(BatchNormReluMaxPool, RefusesOtherCalls) {
  const auto refused = [](const Shape& shape, const BatchNormReluMaxPoolOptions& options,
                          const NormParameters& norm = {}) {
    return message_of<InvalidArgument>(
        [&] { batch_norm_relu_max_pool(Tensor::zeros(shape), norm, options); });
  };
  EXPECT_EQ(refused({4, 4}, {}), "[batch_norm_relu_max_pool] expected x of rank 4 but got shape (4, 4)");
  EXPECT_EQ(refused({1, 2, 40, 40}, {.kernel = {16, 16}}),
            "[batch_norm_relu_max_pool] expected a window of at most 255 elements but got 16 x 16");
  EXPECT_EQ(refused({1, 2, 1, 1}, {.kernel = {1, 1}}),
            "[batch_norm_relu_max_pool] expected more than 1 value per channel in training but got shape (1, "
            "2, 1, 1)");
  EXPECT_NE(refused({1, 2, 4, 4}, {.epsilon = -1.0}), "");
  EXPECT_NE(refused({1, 2, 4, 4}, {.kernel = {5, 5}}), "");
  EXPECT_NE(refused({1, 2, 4, 4}, {}, {.sums = Tensor::zeros({2, 3})}), "");
  EXPECT_NE(refused({1, 2, 4, 4}, {}, {.running_mean = Tensor::zeros({2})}), "");
}

}  // namespace
}  // namespace sinter::ops
