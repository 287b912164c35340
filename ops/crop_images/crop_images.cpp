#include <sinter/ops/common/op_support.h>
#include <sinter/ops/crop_images/crop_images.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_crop_images(const InferContext& context) {
  context.expect_rank(0, 4);
  context.expect_dtype(0, DType::kUInt8);
  context.expect_dtype(1, DType::kInt32);
  const Shape& images = context.shape(0);
  context.expect_shape(1, Shape{images[0], 3});
  return {infer_image_output(context.attributes<CropImagesAttributes>().output, images[0], images[3],
                             context.input(0).device, context.tag())};
}

}  // namespace

Tensor crop_images(const Tensor& images, const Tensor& windows, const ImageOutput& output,
                   const CropImagesOptions& options) {
  static const Op& op = builtin("crop_images");
  return call_single(op, {images, windows}, CropImagesAttributes{output, options.border});
}

void register_crop_images(OpRegistry& registry);
void register_crop_images(OpRegistry& registry) {
  registry.add({.name = "crop_images",
                .inputs = {{"images"}, {"windows"}},
                .outputs = {{"batch", false}},
                .infer = infer_crop_images});
}

}  // namespace sinter::ops
