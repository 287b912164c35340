#include <cmath>

#include <sinter/ops/common/image_output.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/erase_images/erase_images.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_erase_images(const InferContext& context) {
  const auto& [values, layout] = context.attributes<EraseImagesOptions>();
  context.expect_rank(0, 4);
  context.expect_float(0);
  context.expect_dtype(1, DType::kInt32);
  const Shape& images = context.shape(0);
  context.expect_shape(1, Shape{images[0], 4});
  const int64_t channels = images[layout == Layout::kNHWC ? 3 : 1];
  SINTER_CHECK(channels <= kMaxImageChannels, "[erase_images] expected at most {} channels but got {}",
               kMaxImageChannels, channels);
  SINTER_CHECK(values.size() == 1 || values.size() == static_cast<size_t>(channels),
               "[erase_images] expected 1 or {} values but got {}", channels, values.size());
  for (const float value : values)
    SINTER_CHECK(std::isfinite(value), "[erase_images] expected a finite value but got {}", value);
  return {context.input(0)};
}

}  // namespace

Tensor erase_images(const Tensor& images, const Tensor& boxes, const EraseImagesOptions& options) {
  static const Op& op = builtin("erase_images");
  return call_single(op, {images, boxes}, options);
}

void register_erase_images(OpRegistry& registry);
void register_erase_images(OpRegistry& registry) {
  registry.add({.name = "erase_images",
                .inputs = {{"images"}, {"boxes"}},
                .outputs = {{"erased", false}},
                .infer = infer_erase_images});
}

}  // namespace sinter::ops
