// Mixing, erasing and cropping on a GPU: packs inside one pixel, inside one row and across rows, odd sizes,
// views that are not aligned. Compared with the CPU; needs a GPU.
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/mix_images/mix_images.h>

#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class ImageBoxesCuda : public GpuTest {
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
  Layout draw_layout() { return draw(0, 1) == 0 ? Layout::kNCHW : Layout::kNHWC; }
  Tensor draw_images(Layout layout, DType dtype) {
    const int64_t batch = draw(1, 4), channels = draw(0, 1) == 0 ? draw(1, 11) : 8 * draw(1, 2);
    const int64_t height = draw(1, 20), width = draw(0, 1) == 0 ? draw(1, 40) : 8 * draw(1, 4);
    const Shape shape = layout == Layout::kNCHW ? Shape{batch, channels, height, width}
                                                : Shape{batch, height, width, channels};
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& value : values) value = static_cast<double>(draw(-64, 64)) / 8;
    return cast(Tensor::from_values(values, shape), dtype);
  }
  void expect_equal(const Tensor& got, const Tensor& want, double tolerance) {
    ASSERT_EQ(got.shape(), want.shape());
    const std::vector<double> result = as_double(got).to_vector<double>();
    const std::vector<double> expected = as_double(want).to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result[i], expected[i], tolerance)
          << "element " << i << " of " << fmt::format("{}", want.shape()) << ", seed " << seed_;
    }
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

TEST_F(ImageBoxesCuda, MixingAgreesWithTheCpu) {
  for (int round = 0; round < 200; ++round) {
    MixImagesOptions options;
    options.layout = draw_layout();
    options.boxed = draw(0, 3) != 0;
    options.share = static_cast<double>(draw(0, 2)) / 2;
    options.top = draw(-3, 12);
    options.left = draw(-3, 20);
    options.height = draw(0, 12);
    options.width = draw(0, 25);
    const Tensor x = draw_images(options.layout, kDTypes[draw(0, 3)]);
    const Tensor got = call(builtin("mix_images"), {on_gpu(x, draw(0, 1) * draw(0, 3))}, options)[0];
    expect_equal(got, call(builtin("mix_images"), {x}, options)[0], 0.05);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ImageBoxesCuda, ErasingAgreesWithTheCpu) {
  for (int round = 0; round < 200; ++round) {
    EraseImagesOptions options;
    options.layout = draw_layout();
    const Tensor x = draw_images(options.layout, kDTypes[draw(0, 3)]);
    options.values.clear();
    const int64_t channels = x.shape()[options.layout == Layout::kNCHW ? 1 : 3];
    for (int64_t c = 0; c < channels; ++c) options.values.push_back(static_cast<float>(c) + 20);
    std::vector<int32_t> boxes;
    for (int64_t i = 0; i < 4 * x.shape()[0]; ++i) {
      boxes.push_back(static_cast<int32_t>(i % 4 < 2 ? draw(-4, 20) : draw(0, 20)));
    }
    const Tensor box = Tensor::from_values(boxes, Shape{x.shape()[0], 4});
    const Tensor got =
        call(builtin("erase_images"), {on_gpu(x, draw(0, 1) * draw(0, 3)), on_gpu(box)}, options)[0];
    expect_equal(got, call(builtin("erase_images"), {x, box}, options)[0], 0.0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ImageBoxesCuda, CroppingAgreesWithTheCpu) {
  for (int round = 0; round < 200; ++round) {
    const int64_t batch = draw(1, 40), height = draw(1, 30), width = draw(1, 30);
    const Shape shape{batch, height, width, 3};
    std::vector<uint8_t> bytes(static_cast<size_t>(shape.numel()));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw(0, 255));
    CropImagesAttributes options;
    options.output.layout = draw_layout();
    options.output.height = draw(1, 30);
    options.output.width = draw(1, 30);
    options.output.dtype = draw(0, 1) == 0 ? DType::kFloat32 : DType::kFloat16;
    std::vector<int32_t> windows;
    for (int64_t n = 0; n < batch; ++n) {
      windows.push_back(static_cast<int32_t>(draw(-5, 8)));
      windows.push_back(static_cast<int32_t>(draw(-5, 8)));
      windows.push_back(static_cast<int32_t>(draw(0, 1)));
    }
    const Tensor images = Tensor::from_values(bytes, shape);
    const Tensor window = Tensor::from_values(windows, Shape{batch, 3});
    const Tensor got = call(builtin("crop_images"), {on_gpu(images, draw(0, 3)), on_gpu(window)}, options)[0];
    expect_equal(got, call(builtin("crop_images"), {images, window}, options)[0], 0.002);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace sinter::ops
