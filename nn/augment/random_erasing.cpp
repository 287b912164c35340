#include <array>
#include <cmath>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/augment/device_table.h>
#include <sinter/nn/augment/random_erasing.h>
#include <sinter/ops/erase_images/erase_images.h>

namespace sinter::nn {
namespace {

constexpr int kAttempts = 10;

/// Top, left, height and width; all 0: nothing is erased.
std::array<int32_t, 4> draw_box(const RandomErasingOptions& options, data::SampleRandom random,
                                int64_t height, int64_t width) {
  if (static_cast<double>(random.uniform()) >= options.probability) return {};
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = pixels * random.uniform(options.min_area, options.max_area);
    const double aspect =
        std::exp(random.uniform(std::log(options.min_aspect), std::log(options.max_aspect)));
    const auto h = std::llround(std::sqrt(area * aspect)), w = std::llround(std::sqrt(area / aspect));
    if (h >= height || w >= width) continue;
    const auto top = random.below(static_cast<uint64_t>(height - h + 1));
    const auto left = random.below(static_cast<uint64_t>(width - w + 1));
    return {static_cast<int32_t>(top), static_cast<int32_t>(left), static_cast<int32_t>(h),
            static_cast<int32_t>(w)};
  }
  return {};
}

}  // namespace

RandomErasing::RandomErasing(const RandomErasingOptions& options) : options_(options) {
  SINTER_CHECK(options.probability >= 0 && options.probability <= 1,
               "[random_erasing] expected a probability but got {}", options.probability);
  SINTER_CHECK(options.min_area > 0 && options.min_area <= options.max_area && options.max_area <= 1,
               "[random_erasing] expected 0 < min_area <= max_area <= 1 but got {} and {}", options.min_area,
               options.max_area);
  SINTER_CHECK(
      options.min_aspect > 0 && options.min_aspect <= options.max_aspect && options.max_aspect <= 1e6,
      "[random_erasing] expected 0 < min_aspect <= max_aspect <= 1e6 but got {} and {}", options.min_aspect,
      options.max_aspect);
}

Tensor RandomErasing::apply(const Tensor& images, Layout layout, const data::BatchRandom& draws) const {
  SINTER_CHECK(images.rank() == 4 && images.shape()[0] == draws.size(),
               "[random_erasing] expected {} images of rank 4 but got shape {}", draws.size(),
               images.shape());
  const bool last = layout == Layout::kNHWC;
  const int64_t height = images.shape()[last ? 1 : 2], width = images.shape()[last ? 2 : 3];
  std::vector<int32_t> boxes;
  for (int64_t n = 0; n < draws.size(); ++n) {
    const std::array<int32_t, 4> box = draw_box(options_, draws.of(n), height, width);
    boxes.insert(boxes.end(), box.begin(), box.end());
  }
  const NoGrad no_grad;
  return ops::erase_images(images, device_table(boxes, {draws.size(), 4}, images.device()),
                           {.values = options_.values, .layout = layout});
}

}  // namespace sinter::nn
