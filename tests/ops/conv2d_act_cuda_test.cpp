// conv2d_bias_act on a GPU: each of its kernels on convolutions of the sizes of real networks, against the
// CPU in float64; what cuDNN fuses where tensor cores compute; infinities and NaNs; and the measured choice.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

#include "common/error_message.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using test::message_of;
using testing_gpu::as_double;
using testing_gpu::on_gpu;

constexpr fused::Activation kActivations[] = {fused::Activation::kNone, fused::Activation::kRelu,
                                              fused::Activation::kPRelu};

class Conv2dActCuda : public testing_gpu::GpuTest {
 protected:
  static void SetUpTestSuite() { setenv("SINTER_CACHE_DIR", "", 1); }  // nothing on disk, and nothing from it
  void SetUp() override {
    GpuTest::SetUp();
    settings::set_autotune(false);  // timing every problem would take minutes
  }
  void TearDown() override {
    settings::set_autotune(autotune_);
    settings::set_allow_tf32(tf32_);
  }

  bool autotune_ = settings::autotune(), tf32_ = settings::allow_tf32();
};

/// One call; n images of size x size.
struct Case {
  int64_t n, c, size, o, kernel, stride, padding, groups;
  fused::Activation activation = fused::Activation::kRelu;
  bool bias = true, addend = true, one_addend = false;
  Layout layout = Layout::kNHWC;
  DType dtype = DType::kFloat16;
};

std::string to_string(const Case& c) {
  return fmt::format("x ({}, {}, {}, {}) to {} kernel {} stride {} groups {} {} {} {}{}{}", c.n, c.c, c.size,
                     c.size, c.o, c.kernel, c.stride, c.groups, c.dtype, to_string(c.layout),
                     to_string(c.activation), c.bias ? " bias" : "",
                     c.one_addend ? " one addend"
                     : c.addend   ? " addend"
                                  : "");
}

struct Call {
  std::vector<Tensor> inputs;  // on the CPU
  Conv2dActOptions options;

  explicit Call(const Case& c) {
    SampleMaker maker(static_cast<uint64_t>(c.c * 31 + c.o), c.dtype);
    options.stride = {c.stride, c.stride};
    options.padding = {c.padding, c.padding};
    options.groups = c.groups;
    options.layout = c.layout;
    options.activation = c.activation;
    const Shape x = image_shape(c.layout, c.n, c.c, c.size, c.size);
    const Shape weight = image_shape(c.layout, c.o, c.c / c.groups, c.kernel, c.kernel);
    const Shape y = conv2d_geometry("test", x, weight, options).y_shape();
    inputs = {maker.tensor(x, -1, 1), maker.tensor(weight, -1, 1),
              c.bias ? maker.tensor({c.o}, -4, 4) : Tensor(),
              c.addend ? maker.tensor(c.one_addend ? one_image(y) : y, -8, 8) : Tensor(),
              c.activation == fused::Activation::kPRelu ? maker.tensor({c.o}, -1, 1) : Tensor()};
  }

  Tensor run(const std::vector<Tensor>& on) const {
    return conv2d_bias_act(on[0], on[1], on[2], on[3], on[4], options);
  }
  Tensor run_on_gpu(int64_t offset = 0) const {
    std::vector<Tensor> placed;
    for (const Tensor& input : inputs) placed.push_back(input.defined() ? on_gpu(input, offset) : Tensor());
    return run(placed);
  }
  std::vector<double> expected() const {
    std::vector<Tensor> wide;
    for (const Tensor& input : inputs)
      wide.push_back(input.defined() ? cast(input, DType::kFloat64) : Tensor());
    return run(wide).to_vector<double>();
  }
};

void expect_close(const Tensor& y, const std::vector<double>& expected, double tolerance) {
  ASSERT_TRUE(y.device().is_cuda());
  const std::vector<double> got = as_double(y).to_vector<double>();
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0;
  for (const double v : expected) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * (1.0 + largest)) << "element " << i;
}

/// Whether the kernel can run the call; then it is compared.
bool check(const Case& c, const char* kernel, double tolerance, int64_t offset = 0) {
  SCOPED_TRACE(fmt::format("{} {} offset {}", to_string(c), kernel, offset));
  const Call call(c);
  const std::vector<double> expected = call.expected();  // on the CPU, which has other kernels
  const ForcedKernel forced("conv2d_bias_act", kernel);
  Tensor y;
  try {
    y = call.run_on_gpu(offset);
  } catch (const Unsupported&) {
    return false;
  }
  EXPECT_EQ(forced.runs(), 1);
  expect_close(y, expected, tolerance);
  return true;
}

const Case kShapes[] = {
    {2, 3, 64, 16, 7, 2, 3, 1},      // the first layer of ResNet
    {2, 64, 28, 64, 3, 1, 1, 1},     //
    {2, 128, 14, 128, 3, 2, 1, 1},   //
    {2, 64, 14, 256, 1, 1, 0, 1},    // the end of a block
    {2, 256, 14, 512, 1, 2, 0, 1},   // its shortcut
    {2, 128, 14, 128, 3, 1, 1, 32},  // of ResNeXt
    {2, 32, 15, 32, 3, 1, 1, 32},    // depthwise
    {3, 5, 9, 7, 3, 2, 0, 1},        // nothing divides
};

template <class Visit>
void for_each_case(Visit visit) {
  for (Case c : kShapes) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
        for (const fused::Activation activation : kActivations) {
          for (const bool addend : {false, true}) {
            c.dtype = dtype, c.layout = layout, c.activation = activation, c.addend = addend;
            visit(c);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(Conv2dActCuda, EachKernelAgreesWithTheCpu) {
  for_each_case([](const Case& c) {
    const double tolerance = default_tolerance(c.dtype);
    EXPECT_TRUE(check(c, "direct", tolerance));
    EXPECT_TRUE(check(c, "cudnn_then_act", tolerance));
    check(c, "cudnn", tolerance);
  });
}

TEST_F(Conv2dActCuda, AddsOneImageToAll) {
  for (Case c : kShapes) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      c.layout = layout, c.one_addend = true;
      for (const char* kernel : {"direct", "cudnn_then_act"})
        EXPECT_TRUE(check(c, kernel, default_tolerance(c.dtype)));
      EXPECT_FALSE(check(c, "cudnn", default_tolerance(c.dtype)));  // which is not asked for it
    }
  }
}

TEST_F(Conv2dActCuda, CudnnFusesWhatTensorCoresCompute) {
  std::string missing;
  for_each_case([&](const Case& c) {
    const bool fits = c.layout == Layout::kNHWC && is_half(c.dtype) && c.groups == 1 && c.c % 8 == 0;
    if (!fits || check(c, "cudnn", default_tolerance(c.dtype))) return;
    // A slope of each channel takes five operations more.
    if (c.activation == fused::Activation::kPRelu)
      fmt::print(stderr, "no plan with PReLU: {}\n", to_string(c));
    else
      missing += to_string(c) + "\n";
  });
  EXPECT_EQ(missing, "");
}

TEST_F(Conv2dActCuda, FusesInTf32WhereThatIsAllowed) {
  settings::set_allow_tf32(true);
  for (Case c : kShapes) {
    c.dtype = DType::kFloat32;
    if (!check(c, "cudnn", 4e-3)) fmt::print(stderr, "no plan in TF32: {}\n", to_string(c));
    EXPECT_TRUE(check(c, "cudnn_then_act", 4e-3));
  }
}

TEST_F(Conv2dActCuda, TakesViewsThatAreNotAlignedAndNoBias) {
  for (Case c : kShapes) {
    for (const bool bias : {false, true}) {
      c.bias = bias;
      EXPECT_TRUE(check(c, "direct", default_tolerance(c.dtype), 1));
      EXPECT_TRUE(check(c, "cudnn_then_act", default_tolerance(c.dtype), 1));
      const Call call(c);
      expect_close(call.run_on_gpu(1), call.expected(), default_tolerance(c.dtype));
      check(c, "cudnn", default_tolerance(c.dtype));
    }
  }
}

TEST_F(Conv2dActCuda, AddsItsOwnInput) {
  for (const char* kernel : {"cudnn", "cudnn_then_act", "direct"}) {
    SCOPED_TRACE(kernel);
    SampleMaker maker(5, DType::kFloat16);
    const Tensor x = maker.tensor({2, 14, 14, 64}, -1, 1), weight = maker.tensor({64, 3, 3, 64}, -1, 1);
    const Conv2dActOptions options{{.padding = {1, 1}, .layout = Layout::kNHWC}, fused::Activation::kRelu};
    const auto wide = [](const Tensor& tensor) { return cast(tensor, DType::kFloat64); };
    const std::vector<double> expected =
        conv2d_bias_act(wide(x), wide(weight), {}, wide(x), {}, options).to_vector<double>();
    const Tensor gpu_x = on_gpu(x);
    const ForcedKernel forced("conv2d_bias_act", kernel);
    const Tensor y = conv2d_bias_act(gpu_x, on_gpu(weight), {}, gpu_x, {}, options);
    expect_close(y, expected, default_tolerance(DType::kFloat16));
    EXPECT_EQ(cast(gpu_x.to(Device::cpu()), DType::kFloat32).to_vector<float>(),
              cast(x, DType::kFloat32).to_vector<float>())
        << "the addend was changed";
  }
}

TEST_F(Conv2dActCuda, KeepsInfinitiesAndNaNs) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const char* kernel : {"cudnn", "cudnn_then_act", "direct"}) {
    for (const fused::Activation activation : {fused::Activation::kRelu, fused::Activation::kPRelu}) {
      SCOPED_TRACE(fmt::format("{} {}", kernel, to_string(activation)));
      const Tensor x = Tensor::full({1, 8, 8, 64}, 0.0, DType::kFloat16),
                   weight = Tensor::full({64, 1, 1, 64}, 1.0, DType::kFloat16);
      std::vector<float> values(64, 1.0F);
      values[0] = kInf, values[1] = -kInf, values[2] = kNaN, values[3] = -2.0F;
      const Tensor bias = cast(Tensor::from_values(values, {64}), DType::kFloat16);
      const Tensor slope = activation == fused::Activation::kPRelu
                               ? on_gpu(Tensor::full({64}, 0.5, DType::kFloat16))
                               : Tensor();
      const ForcedKernel forced("conv2d_bias_act", kernel);
      Tensor y;
      const std::string error = message_of([&] {
        y = conv2d_bias_act(on_gpu(x), on_gpu(weight), on_gpu(bias), {}, slope,
                            {{.layout = Layout::kNHWC}, activation});
      });
      if (!y.defined() && activation == fused::Activation::kPRelu && kernel == std::string("cudnn")) continue;
      ASSERT_TRUE(y.defined()) << error;
      const std::vector<double> got = as_double(y).to_vector<double>();
      EXPECT_EQ(got[0], kInf);
      EXPECT_EQ(got[1], activation == fused::Activation::kRelu ? 0.0 : -kInf);
      EXPECT_TRUE(std::isnan(got[2])) << got[2];
      EXPECT_EQ(got[3], activation == fused::Activation::kRelu ? 0.0 : -1.0);
      EXPECT_EQ(got[4], 1.0);
    }
  }
}

TEST_F(Conv2dActCuda, AgreesWithTheCpuOnMeasuredKernels) {
  settings::set_autotune(true);
  for (Case c : {kShapes[0], kShapes[1], kShapes[3]}) {
    c.n = 8;
    SCOPED_TRACE(to_string(c));
    const Call call(c);
    for (int run = 0; run < 2; ++run)
      expect_close(call.run_on_gpu(), call.expected(), default_tolerance(c.dtype));
  }
}

TEST_F(Conv2dActCuda, GivesNothingForNothing) {
  const Tensor x = Tensor::empty({0, 3, 8, 8}, DType::kFloat16, Device::cuda());
  const Tensor weight = Tensor::full({4, 3, 3, 3}, 1.0, DType::kFloat16).to(Device::cuda());
  EXPECT_EQ(conv2d_bias_act(x, weight, {}, {}, {}, {{}, fused::Activation::kRelu}).shape(),
            (Shape{0, 4, 6, 6}));
}

}  // namespace
}  // namespace sinter::ops
