// Images made of images of another size, on a GPU: packs of channels, several images to a thread and neither,
// in strips of rows, from views that are not aligned. Compared with the CPU in double precision; needs a GPU.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/upsample/upsample.h>

#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

/// Images of a random size: many or few of them, channels that are whole packs or not.
struct Images {
  Layout layout = Layout::kNCHW;
  int64_t batch = 1, channels = 1;
  std::array<int64_t, 2> coarse{1, 1}, fine{1, 1};

  Shape shape(std::array<int64_t, 2> size) const {
    return layout == Layout::kNCHW ? Shape{batch, channels, size[0], size[1]}
                                   : Shape{batch, size[0], size[1], channels};
  }
};

class AxisTapsCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    seed_ = test::random_seed(std::random_device{}());
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }

  int64_t draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  Images draw_images() {
    Images images;
    images.layout = draw(0, 1) == 0 ? Layout::kNCHW : Layout::kNHWC;
    images.batch = draw(0, 2) == 0 ? draw(30, 45) : draw(1, 4);
    images.channels = draw(0, 1) == 0 ? draw(1, 13) : 8 * draw(1, 3);
    for (size_t axis = 0; axis < 2; ++axis) {
      images.coarse[axis] = draw(1, 12);
      images.fine[axis] = draw(0, 1) == 0 ? 2 * images.coarse[axis] : draw(1, 40);
    }
    return images;
  }

  /// The op of values of this shape on the GPU, in `dtype`, beside the CPU's in float64.
  template <class Attributes>
  void check(const char* op, const Shape& shape, DType dtype, const Attributes& attributes) {
    SCOPED_TRACE(fmt::format("{} {} {} {} seed {}", op, shape, dtype, attributes.layout_text, seed_));
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (double& value : values) value = uniform(random_);
    const Tensor x = cast(Tensor::from_values(values, shape), dtype);
    const Tensor want = call(builtin(op), {cast(x, DType::kFloat64)}, attributes.value)[0];
    const Tensor got = call(builtin(op), {on_gpu(x, draw(0, 1) * draw(0, 3))}, attributes.value)[0];
    ASSERT_EQ(got.shape(), want.shape());
    const std::vector<double> expected = want.to_vector<double>();
    const std::vector<double> result = as_double(got).to_vector<double>();
    double largest = 1;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    const double rounding = dtype == DType::kFloat16    ? 0x1p-10
                            : dtype == DType::kBFloat16 ? 0x1p-7
                            : dtype == DType::kFloat32  ? 0x1p-19
                                                        : 0x1p-46;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result[i], expected[i], rounding * largest) << "element " << i;
    }
  }

  template <class Attributes>
  struct Described {
    Attributes value;
    std::string layout_text;
  };
  template <class Attributes>
  Described<Attributes> described(const Attributes& value, const Images& images) {
    return {value, fmt::format("{} coarse {}x{} fine {}x{}", to_string(images.layout), images.coarse[0],
                               images.coarse[1], images.fine[0], images.fine[1])};
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

TEST_F(AxisTapsCuda, UpsamplingAgreesWithTheCpu) {
  for (int round = 0; round < 60; ++round) {
    const Images images = draw_images();
    UpsampleAttributes attributes;
    attributes.layout = images.layout;
    attributes.mode = draw(0, 2) == 0 ? UpsampleMode::kNearest : UpsampleMode::kBilinear;
    attributes.align_corners = attributes.mode == UpsampleMode::kBilinear && draw(0, 1) == 0;
    for (const DType dtype : kDTypes) {
      attributes.size = images.fine;
      check("upsample", images.shape(images.coarse), dtype, described(attributes, images));
      attributes.size = images.coarse;
      check("upsample_grad", images.shape(images.fine), dtype, described(attributes, images));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AxisTapsCuda, LongImagesTakeNoTable) {
  UpsampleAttributes attributes;
  attributes.mode = UpsampleMode::kBilinear;
  Images images;
  images.batch = 2;
  images.channels = 3;
  images.coarse = {301, 3};
  images.fine = {700, 5};
  attributes.size = images.fine;
  check("upsample", images.shape(images.coarse), DType::kFloat32, described(attributes, images));
  attributes.size = images.coarse;
  check("upsample_grad", images.shape(images.fine), DType::kFloat32, described(attributes, images));
}

TEST_F(AxisTapsCuda, AdaptivePoolingAgreesWithTheCpu) {
  for (int round = 0; round < 40; ++round) {
    Images images = draw_images();
    AdaptivePoolAttributes attributes;
    attributes.layout = images.layout;
    for (const DType dtype : kDTypes) {
      attributes.size = images.coarse;
      check("adaptive_avg_pool2d", images.shape(images.fine), dtype, described(attributes, images));
      attributes.size = images.fine;
      check("adaptive_avg_pool2d_grad", images.shape(images.coarse), dtype, described(attributes, images));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AxisTapsCuda, AveragesAgreeWithTheCpu) {
  for (int round = 0; round < 60; ++round) {
    Images images = draw_images();
    const int64_t kernel = draw(1, 4), stride = draw(1, 3);
    for (int64_t& side : images.fine) side += kernel;
    PoolAttributes options{.kernel = {kernel, kernel},
                           .stride = {stride, stride},
                           .padding = {draw(0, kernel / 2), draw(0, kernel / 2)},
                           .layout = images.layout,
                           .ceil_mode = draw(0, 1) == 0,
                           .count_include_pad = draw(0, 1) == 0,
                           .divisor = draw(0, 3) == 0 ? 5 : 0};
    for (const DType dtype : kDTypes) {
      check("avg_pool2d", images.shape(images.fine), dtype, described(options, images));
      const Shape pooled = call_single(builtin("avg_pool2d"),
                                       {Tensor::zeros(images.shape(images.fine), DType::kFloat32)}, options)
                               .shape();
      PoolGradOptions back;
      back.pool = options;
      back.height = images.fine[0];
      back.width = images.fine[1];
      check("avg_pool2d_grad", pooled, dtype, described(back, images));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AxisTapsCuda, PixelsWithoutWeightHoldNothingBack) {
  // Row 1 of 2 is made of input row 1 alone, and so is the gradient of input row 0 of output row 0.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Shape shape = layout == Layout::kNCHW ? Shape{1, 1, 2, 2} : Shape{1, 2, 2, 1};
    const Tensor x = Tensor::from_values(std::vector<double>{nan, nan, 1, 2}, shape);
    const UpsampleAttributes same_size{
        .mode = UpsampleMode::kBilinear, .align_corners = true, .layout = layout, .size = {2, 2}};
    const std::vector<double> y =
        as_double(call_single(builtin("upsample"), {on_gpu(x)}, same_size)).to_vector<double>();
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], 1);
    EXPECT_EQ(y[3], 2);
    const std::vector<double> dx = as_double(vjp::upsample(on_gpu(x), same_size)).to_vector<double>();
    EXPECT_TRUE(std::isnan(dx[0]) && std::isnan(dx[1]));
    EXPECT_EQ(dx[2], 1);
    EXPECT_EQ(dx[3], 2);
  }
}

}  // namespace
}  // namespace sinter::ops
