#include <sinter/ops/common/op_support.h>
#include <sinter/ops/resize_images/resize_images.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_resize_images(const InferContext& context) {
  context.expect_rank(0, 1);
  context.expect_dtype(0, DType::kUInt8);
  context.expect_rank(1, 2);
  context.expect_dtype(1, DType::kInt64);
  context.expect_dtype(2, DType::kFloat64);
  const int64_t images = context.shape(1)[0];
  context.expect_shape(1, Shape{images, 3});
  context.expect_shape(2, Shape{images, 5});
  const auto& attributes = context.attributes<ResizeImagesAttributes>();
  SINTER_CHECK(attributes.channels == 1 || attributes.channels == 3,
               "[{}] expected 1 or 3 channels but got {}", context.tag(), attributes.channels);
  return {infer_image_output(attributes.output, images, attributes.channels, context.input(0).device,
                             context.tag())};
}

}  // namespace

std::string_view to_string(ResizeFilter filter) {
  return filter == ResizeFilter::kBicubic ? "bicubic" : "bilinear";
}

Tensor resize_images(const Tensor& pixels, const Tensor& extents, const Tensor& boxes,
                     const ImageOutput& output, const ResizeImagesOptions& options) {
  static const Op& op = builtin("resize_images");
  return call_single(op, {pixels, extents, boxes},
                     ResizeImagesAttributes{output, options.channels, options.filter});
}

void register_resize_images(OpRegistry& registry);
void register_resize_images(OpRegistry& registry) {
  registry.add({.name = "resize_images",
                .inputs = {{"pixels"}, {"extents"}, {"boxes"}},
                .outputs = {{"batch", false}},
                .infer = infer_resize_images});
}

}  // namespace sinter::ops
