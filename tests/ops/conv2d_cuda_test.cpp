// What the random samples leave out: convolutions of the sizes of real networks, views that are not aligned,
// and the settings. Each is compared with the CPU in float32, and needs a GPU.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using testing_gpu::on_gpu;

/// Sets the settings back when it ends.
class Settings {
 public:
  ~Settings() {
    settings::set_allow_tf32(tf32_);
    settings::set_deterministic(deterministic_);
    settings::set_autotune(autotune_);
    settings::set_plan_limit(plan_limit_);
  }

 private:
  bool tf32_ = settings::allow_tf32(), deterministic_ = settings::deterministic(),
       autotune_ = settings::autotune();
  size_t plan_limit_ = settings::plan_limit();
};

class Conv2dCuda : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("SINTER_CACHE_DIR", "", 1); }  // nothing on disk, and nothing from it
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
    settings::set_autotune(false);  // timing every problem would take minutes
  }

  Settings restore_;
};

/// One convolution: x (n, c, size, size), weight (o, c / groups, kernel, kernel).
struct Case {
  int64_t n, c, size, o, kernel, stride, padding, groups;
};

const Case kCases[] = {
    {2, 3, 64, 16, 7, 2, 3, 1},     // the first layer of ResNet
    {2, 64, 28, 64, 3, 1, 1, 1},    //
    {2, 128, 14, 128, 3, 2, 1, 1},  //
    {2, 256, 14, 64, 1, 1, 0, 1},   //
    {2, 32, 15, 32, 3, 1, 1, 32},   // depthwise
    {2, 36, 15, 36, 3, 2, 1, 18},   // two channels to a group
    {2, 30, 15, 30, 3, 1, 1, 30},   // depthwise, for cuDNN
    {3, 5, 9, 7, 3, 2, 0, 1},       // nothing divides
};

void expect_close(const Tensor& value, const Tensor& expected, double tolerance, const char* what) {
  ASSERT_TRUE(value.device().is_cuda()) << what;
  ASSERT_EQ(value.shape(), expected.shape()) << what;
  const std::vector<float> got = cast(value.to(Device::cpu()), DType::kFloat32).to_vector<float>();
  const std::vector<float> want = expected.to_vector<float>();
  float largest = 0;
  for (const float v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * (1.0 + largest)) << what << " element " << i;
  }
}

/// All three ops on the GPU, from inputs `offset` elements behind an aligned address, against the CPU.
void check(const Case& c, DType dtype, Layout layout, int64_t offset, double tolerance) {
  SCOPED_TRACE(fmt::format("x ({}, {}, {}, {}) kernel {} stride {} groups {} {} {} offset {}", c.n, c.c,
                           c.size, c.size, c.kernel, c.stride, c.groups, dtype, to_string(layout), offset));
  SampleMaker maker(17, dtype);
  const Conv2dAttributes options{.stride = {c.stride, c.stride},
                                 .padding = {c.padding, c.padding},
                                 .groups = c.groups,
                                 .layout = layout};
  const Tensor x = maker.tensor(image_shape(layout, c.n, c.c, c.size, c.size), -1, 1);
  const Tensor weight = maker.tensor(image_shape(layout, c.o, c.c / c.groups, c.kernel, c.kernel), -1, 1);
  const Tensor bias = maker.tensor({c.o}, -1, 1);
  const auto f32 = [](const Tensor& tensor) { return cast(tensor, DType::kFloat32); };
  const Tensor y = conv2d(f32(x), f32(weight), f32(bias), options);
  const Tensor dy = maker.tensor(y.shape(), -1, 1);

  const Tensor gpu_x = on_gpu(x, offset), gpu_weight = on_gpu(weight, offset), gpu_dy = on_gpu(dy, offset);
  expect_close(conv2d(gpu_x, gpu_weight, on_gpu(bias, offset), options), y, tolerance, "y");
  expect_close(vjp::conv2d_input(gpu_dy, gpu_weight, {c.size, c.size}, options),
               vjp::conv2d_input(f32(dy), f32(weight), {c.size, c.size}, options), tolerance, "dx");
  expect_close(vjp::conv2d_weight(gpu_dy, gpu_x, {c.kernel, c.kernel}, options),
               vjp::conv2d_weight(f32(dy), f32(x), {c.kernel, c.kernel}, options), tolerance, "dweight");
}

TEST_F(Conv2dCuda, AgreesWithTheCpu) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC})
        check(c, dtype, layout, 0, default_tolerance(dtype));
    }
  }
}

TEST_F(Conv2dCuda, TakesViewsThatAreNotAligned) {
  for (const Case& c : kCases) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      check(c, DType::kFloat32, layout, 1, default_tolerance(DType::kFloat32));
      check(c, DType::kFloat16, layout, 1, default_tolerance(DType::kFloat16));
    }
  }
}

TEST_F(Conv2dCuda, ViewsRunOnTheSamePlans) {
  settings::set_deterministic(true);
  SampleMaker maker(19, DType::kFloat16);
  const Tensor x = maker.tensor({2, 28, 28, 64}, -1, 1), weight = maker.tensor({32, 3, 3, 64}, -1, 1),
               dy = maker.tensor({2, 28, 28, 32}, -1, 1);
  const Conv2dAttributes options{.padding = {1, 1}, .layout = Layout::kNHWC};
  const auto run = [&](int64_t offset) {
    const Tensor gpu_x = on_gpu(x, offset), gpu_weight = on_gpu(weight, offset), gpu_dy = on_gpu(dy, offset);
    std::vector<std::vector<float>> results;
    for (const Tensor& result :
         {conv2d(gpu_x, gpu_weight, {}, options), vjp::conv2d_input(gpu_dy, gpu_weight, {28, 28}, options),
          vjp::conv2d_weight(gpu_dy, gpu_x, {3, 3}, options)}) {
      results.push_back(cast(result.to(Device::cpu()), DType::kFloat32).to_vector<float>());
    }
    return results;
  };
  EXPECT_EQ(run(1), run(0));
}

TEST_F(Conv2dCuda, FewChannelsAgreeWithTheCpuOnTimedPlans) {
  settings::set_autotune(true);
  for (const bool deterministic : {false, true}) {
    settings::set_deterministic(deterministic);
    check({8, 3, 64, 32, 7, 2, 3, 1}, DType::kFloat16, Layout::kNHWC, 0, default_tolerance(DType::kFloat16));
    check({8, 3, 32, 64, 3, 1, 1, 1}, DType::kBFloat16, Layout::kNHWC, 1,
          default_tolerance(DType::kBFloat16));
    check({4, 5, 33, 16, 5, 3, 1, 1}, DType::kFloat16, Layout::kNHWC, 0, default_tolerance(DType::kFloat16));
  }
  settings::set_allow_tf32(true);
  check({8, 3, 64, 32, 7, 2, 3, 1}, DType::kFloat32, Layout::kNHWC, 0, 4e-3);
}

TEST_F(Conv2dCuda, PlansThatWereLetGoAreMadeAgain) {
  settings::set_plan_limit(1);
  for (int round = 0; round < 3; ++round) {
    check(kCases[1], DType::kFloat16, Layout::kNHWC, 0, default_tolerance(DType::kFloat16));
    check(kCases[3], DType::kFloat32, Layout::kNCHW, 0, default_tolerance(DType::kFloat32));
  }
}

TEST_F(Conv2dCuda, AgreesWithTheCpuOnTimedPlans) {
  settings::set_autotune(true);
  check(kCases[1], DType::kFloat16, Layout::kNHWC, 0, default_tolerance(DType::kFloat16));
  check(kCases[2], DType::kFloat32, Layout::kNCHW, 0, default_tolerance(DType::kFloat32));
  for (const Case& depthwise : {kCases[4], kCases[5], kCases[6]}) {
    check(depthwise, DType::kFloat16, Layout::kNHWC, 0, default_tolerance(DType::kFloat16));
  }
}

TEST_F(Conv2dCuda, Tf32IsCloseAndMustBeAllowed) {
  settings::set_allow_tf32(true);
  for (const Case& c : kCases) check(c, DType::kFloat32, Layout::kNHWC, 0, 4e-3);
}

TEST_F(Conv2dCuda, IsRepeatableWhenDeterministic) {
  settings::set_deterministic(true);
  settings::set_autotune(true);
  SampleMaker maker(3, DType::kFloat32);
  const Tensor x = maker.tensor({16, 64, 28, 28}).to(Device::cuda());
  const Tensor dy = maker.tensor({16, 64, 28, 28}).to(Device::cuda());
  const Conv2dAttributes options{.padding = {1, 1}};
  const std::vector<float> first = vjp::conv2d_weight(dy, x, {3, 3}, options).to_vector<float>();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(vjp::conv2d_weight(dy, x, {3, 3}, options).to_vector<float>(), first);
  }
}

/// One problem whose outputs, taps or strides may pass the image by; the batch is one.
struct SparseCase {
  Shape x, weight;
  Conv2dAttributes options;
};

std::string to_string(const SparseCase& c) {
  return fmt::format("x {} weight {} stride {},{} padding {},{} dilation {},{} {}", c.x, c.weight,
                     c.options.stride[0], c.options.stride[1], c.options.padding[0], c.options.padding[1],
                     c.options.dilation[0], c.options.dilation[1], to_string(c.options.layout));
}

/// The three ops and, through conv2d_grad_weight, the gradients of a gradient, against the CPU in float32.
void check_gradients_of_gradients(const SparseCase& c, DType dtype, uint64_t seed) {
  SCOPED_TRACE(fmt::format("seed {}: {} {}", seed, to_string(c), dtype));
  SampleMaker maker(seed, dtype);
  const Conv2dGeometry g = conv2d_geometry("test", c.x, c.weight, c.options);
  const std::vector<Tensor> inputs = {maker.tensor(c.x, -1, 1), maker.tensor(c.weight, -1, 1),
                                      maker.tensor(g.y_shape(), -1, 1)};
  const auto run = [&](const std::function<Tensor(const Tensor&)>& place) {
    const Tensor x = place(inputs[0]).set_requires_grad(true), weight = place(inputs[1]);
    const Tensor dz = place(inputs[2]).set_requires_grad(true);
    const Tensor dweight = vjp::conv2d_weight(dz, x, {g.height.kernel, g.width.kernel}, c.options);
    backward(dweight, {.gradient = weight});  // with the filters' values for a gradient
    return std::vector<Tensor>{dweight.detach(), x.grad(), dz.grad(),
                               conv2d(x.detach(), weight, {}, c.options)};
  };
  const auto got = run([](const Tensor& t) { return on_gpu(t); });
  const auto expected = run([](const Tensor& t) { return cast(t, DType::kFloat32).detach(); });
  const char* names[] = {"dweight", "the gradient of x", "the gradient of dz", "y"};
  for (size_t i = 0; i < got.size(); ++i) {
    expect_close(got[i], expected[i], default_tolerance(dtype), names[i]);
  }
}

// cuDNN's heuristics divided by zero here, which ends the process.
TEST_F(Conv2dCuda, OutputsThatLieInThePaddingAreNoFault) {
  const SparseCase seen{
      {1, 13, 14, 13}, {7, 13, 1, 3}, {.stride = {3, 4}, .padding = {3, 3}, .dilation = {3, 1}}};
  for (const bool autotune : {false, true}) {
    settings::set_autotune(autotune);
    check_gradients_of_gradients(seen, DType::kFloat16, 1);
  }
  settings::set_autotune(false);
  SparseCase channels_last = seen;
  channels_last.x = {1, 14, 13, 13};
  channels_last.weight = {7, 1, 3, 13};
  channels_last.options.layout = Layout::kNHWC;
  check_gradients_of_gradients(channels_last, DType::kFloat16, 2);
}

TEST_F(Conv2dCuda, NeighboursOfThatProblemAreNoFault) {
  const uint64_t first = test::random_seed(20261122);
  const auto count = static_cast<uint64_t>(test::random_cases(100));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SampleMaker maker(seed, DType::kFloat32);
    SparseCase c{{}, {}, {.layout = maker.pick({Layout::kNCHW, Layout::kNCHW, Layout::kNHWC})}};
    std::array<int64_t, 2> size{}, kernel{};
    for (size_t axis = 0; axis < 2; ++axis) {
      kernel[axis] = maker.integer(1, 4);
      c.options.stride[axis] = maker.integer(1, 5);
      c.options.padding[axis] = maker.integer(0, 5);
      c.options.dilation[axis] = maker.integer(1, 4);
      const int64_t reach = c.options.dilation[axis] * (kernel[axis] - 1);
      const int64_t least = std::max<int64_t>(1, reach + 1 - 2 * c.options.padding[axis]);
      size[axis] = least + maker.integer(0, 14);
    }
    const int64_t batch = maker.integer(1, 2), in = maker.integer(1, 16), out = maker.integer(1, 9);
    c.x = image_shape(c.options.layout, batch, in, size[0], size[1]);
    c.weight = image_shape(c.options.layout, out, in, kernel[0], kernel[1]);
    const DType dtype = maker.pick({DType::kFloat16, DType::kFloat16, DType::kBFloat16, DType::kFloat32});
    fmt::print(stderr, "seed {}: {} {}\n", seed, to_string(c), dtype);  // a fault leaves no other trace
    check_gradients_of_gradients(c, dtype, seed);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Conv2dCuda, GivesTheBiasWhereEveryPixelIsPadding) {
  const Tensor x = Tensor::empty({2, 3, 0, 0}, DType::kFloat32, Device::cuda());
  const Tensor weight = Tensor::full({2, 3, 1, 1}, 1.0).to(Device::cuda());
  const Tensor bias = Tensor::from_values<float>({5.0f, 7.0f}, {2}).to(Device::cuda());
  const Tensor y = conv2d(x, weight, bias, {.padding = {1, 1}});
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{5, 5, 5, 5, 7, 7, 7, 7, 5, 5, 5, 5, 7, 7, 7, 7}));
}

/// The sums over y of its elements and of their squares, channels as in its layout.
std::vector<double> sums_of(const Tensor& y, Layout layout, int64_t channels) {
  std::vector<double> sums(static_cast<size_t>(2 * channels));
  const std::vector<double> values = testing_gpu::as_double(y).to_vector<double>();
  const int64_t inner = layout == Layout::kNHWC ? 1 : y.shape()[2] * y.shape()[3];
  for (size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<size_t>(static_cast<int64_t>(i) / inner % channels);
    sums[c] += values[i];
    sums[static_cast<size_t>(channels) + c] += values[i] * values[i];
  }
  return sums;
}

TEST_F(Conv2dCuda, SumsUpWhatItHasComputed) {
  for (const char* kernel : {"cudnn_then_sums", "direct"}) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
        for (const bool biased : {false, true}) {
          SCOPED_TRACE(
              fmt::format("{} {} {}{}", kernel, to_string(layout), dtype, biased ? " with a bias" : ""));
          SampleMaker maker(5, dtype);
          const Tensor x = on_gpu(maker.tensor(image_shape(layout, 5, 19, 23, 17)), biased ? 1 : 0);
          const Tensor weight = on_gpu(maker.tensor(image_shape(layout, 67, 19, 3, 3)));
          const Tensor bias = biased ? on_gpu(maker.tensor({67})) : Tensor();
          const ForcedKernel forced("conv2d_sums", kernel);
          const Conv2dAttributes options{.padding = {1, 1}, .layout = layout};
          const auto [y, sums] = fused::conv2d_sums(x, weight, bias, options);
          const std::vector<double> wanted = sums_of(y, layout, 67);
          const std::vector<double> got = testing_gpu::as_double(sums).to_vector<double>();
          ASSERT_EQ(got.size(), wanted.size());
          const double count = static_cast<double>(y.numel()) / 67;
          for (size_t c = 0; c < 67; ++c) {
            // A sum may cancel; sqrt(count * squares) is as large as it could be.
            EXPECT_NEAR(got[c], wanted[c], 3e-5 * std::sqrt(count * wanted[67 + c])) << c;
            EXPECT_NEAR(got[67 + c], wanted[67 + c], 3e-5 * wanted[67 + c]) << c;
          }
        }
      }
    }
  }
}

TEST_F(Conv2dCuda, SumsOfNothingAreZero) {
  const Tensor x = Tensor::empty({0, 3, 8, 8}, DType::kFloat16, Device::cuda());
  const Tensor weight = Tensor::full({4, 3, 3, 3}, 1.0, DType::kFloat16).to(Device::cuda());
  const auto [y, sums] = fused::conv2d_sums(x, weight);
  EXPECT_EQ(y.numel(), 0);
  EXPECT_EQ(sums.to_vector<float>(), std::vector<float>(8, 0.0f));
}

}  // namespace
}  // namespace sinter::ops
