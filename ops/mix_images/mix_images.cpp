#include <sinter/ops/common/op_support.h>
#include <sinter/ops/mix_images/mix_images.h>

namespace sinter::ops {
namespace {

constexpr int64_t kFarthest = int64_t{1} << 40;  // of a box's edges, so that their sums do not overflow

std::vector<TensorSpec> infer_mix_images(const InferContext& context) {
  const auto& options = context.attributes<MixImagesOptions>();
  context.expect_float(0);
  if (options.boxed) context.expect_rank(0, 4);
  SINTER_CHECK(context.shape(0).rank() >= 1, "[mix_images] expected rows but got a scalar");
  SINTER_CHECK(options.share >= 0 && options.share <= 1,
               "[mix_images] expected a share from 0 to 1 but got {}", options.share);
  SINTER_CHECK(options.height >= 0 && options.width >= 0 && options.height <= kFarthest &&
                   options.width <= kFarthest && options.top >= -kFarthest && options.top <= kFarthest &&
                   options.left >= -kFarthest && options.left <= kFarthest,
               "[mix_images] expected a box of size >= 0 near the images but got {} x {} at ({}, {})",
               options.height, options.width, options.top, options.left);
  return {context.input(0)};
}

}  // namespace

Tensor mix_images(const Tensor& x, const MixImagesOptions& options) {
  static const Op& op = builtin("mix_images");
  return call_single(op, {x}, options);
}

void register_mix_images(OpRegistry& registry);
void register_mix_images(OpRegistry& registry) {
  registry.add(
      {.name = "mix_images", .inputs = {{"x"}}, .outputs = {{"mixed", false}}, .infer = infer_mix_images});
}

}  // namespace sinter::ops
