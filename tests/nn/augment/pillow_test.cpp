// The steps of RandAugment and of colour jitter against pictures that Pillow made (tests/data/images/
// make_augmented.py).
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/rand_augment_steps.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/netpbm.h>
#include <sinter/nn/data/sample/frame.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn {
namespace {

data::Image picture(const std::string& name) {
  data::Image image;
  data::decode_netpbm(data::testing::load_picture(name), name, {}, image);
  return image;
}

/// The steps in the order of the script.
std::vector<PixelStep> all_steps(int64_t height, int64_t width) {
  std::vector<PixelStep> steps;
  for (const auto& [strength, sign] :
       {std::pair{0.3, 1.0}, std::pair{0.3, -1.0}, std::pair{28.0 / 30, 1.0}}) {
    for (uint64_t step = 0; step < kRandAugmentSteps; ++step) {
      steps.push_back(rand_augment_step(static_cast<RandAugmentStep>(step), strength, sign, height, width));
    }
  }
  steps.push_back(fixed_step(ops::ImageStep::kHue, 0.25));
  steps.push_back(fixed_step(ops::ImageStep::kHue, -0.125));
  return steps;
}

TEST(AugmentationSteps, AreThoseOfPillow) {
  const data::Image column = picture("augmented.ppm"), whole = picture("rgb.ppm");
  data::Image image;
  data::crop(whole, 3, 5, 17, 27, image);
  const std::vector<PixelStep> steps = all_steps(image.height, image.width);
  const auto count = static_cast<int64_t>(steps.size());
  ASSERT_EQ(column.height, count * image.height);
  std::vector<uint8_t> copies;
  for (int64_t n = 0; n < count; ++n) copies.insert(copies.end(), image.pixels.begin(), image.pixels.end());
  const Tensor batch = Tensor::from_values(copies, {count, image.height, image.width, 3});
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    const auto values = apply_steps(batch.to(device), {steps}).to_vector<uint8_t>();
    const size_t size = image.pixels.size();
    for (size_t n = 0; n < steps.size(); ++n) {
      const bool moves = steps[n].step == ops::ImageStep::kAffine || steps[n].step == ops::ImageStep::kNone;
      // Pillow keeps hues in 256 steps, which are up to 6 levels wide; it rounds a few other things once
      // more.
      const int most = moves ? 0 : steps[n].step == ops::ImageStep::kHue ? 6 : 1;
      int largest = 0;
      for (size_t i = n * size; i < (n + 1) * size; ++i) {
        largest = std::max(largest, std::abs(int{values[i]} - int{column.pixels[i]}));
      }
      EXPECT_LE(largest, most) << to_string(device) << ", picture " << n;
    }
  }
}

// tests/data/images/make_rotated.py.
TEST(Rotation, IsThatOfPillow) {
  const data::Image column = picture("rotated.ppm"), whole = picture("rgb.ppm");
  data::Image image, out;
  data::crop(whole, 3, 5, 17, 27, image);
  const double angles[] = {10, -37.5, 90, 180};
  ASSERT_EQ(column.height, 4 * image.height);
  for (int64_t n = 0; n < 4; ++n) {
    data::Frame frame(image.height, image.width);
    frame.rotate(angles[n]);
    data::show(frame, image, out);
    int64_t largest = 0, apart = 0;
    for (size_t i = 0; i < out.pixels.size(); ++i) {
      const int64_t expected = column.row(n * image.height)[i];
      const int64_t difference = std::abs(int64_t{out.pixels[i]} - expected);
      largest = std::max(largest, difference);
      if (difference > 1) ++apart;
    }
    // Pillow cuts a blend's fraction off, or rounds it. A pixel on the very edge may count as beyond it
    // there.
    EXPECT_LE(largest, 1) << angles[n] << ", " << apart << " values apart";
  }
}

}  // namespace
}  // namespace sinter::nn
