#include <cstdint>

#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_augment_images(const InferContext& context) {
  context.expect_rank(0, 4);
  context.expect_dtype(0, DType::kUInt8);
  context.expect_dtype(1, DType::kInt32);
  const Shape& images = context.shape(0);
  context.expect_shape(1, Shape{images[0], kStepFields});
  SINTER_CHECK(images[3] == 1 || images[3] == 3, "[augment_images] expected 1 or 3 channels but got {}",
               images[3]);
  const int64_t pixels = Shape{images[1], images[2]}.numel();
  SINTER_CHECK(pixels <= INT32_MAX / images[3],
               "[augment_images] expected images of less than 2^31 bytes but got {} x {} x {}", images[1],
               images[2], images[3]);
  return {context.input(0)};
}

}  // namespace

Tensor augment_images(const Tensor& images, const Tensor& steps) {
  static const Op& op = builtin("augment_images");
  return call_single(op, {images, steps});
}

void register_augment_images(OpRegistry& registry);
void register_augment_images(OpRegistry& registry) {
  registry.add({.name = "augment_images",
                .inputs = {{"images"}, {"steps"}},
                .outputs = {{"augmented", false}},
                .infer = infer_augment_images});
}

}  // namespace sinter::ops
