#include <cmath>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/upsample/upsample.h>

namespace sinter::ops {
namespace {

constexpr int64_t kLargestSize = int64_t{1} << 30;  // products of two such sizes and 2 fit

int height_axis(Layout layout) {
  return layout == Layout::kNCHW ? 2 : 1;
}

std::array<int64_t, 2> image_size(const Shape& shape, Layout layout) {
  const int axis = height_axis(layout);
  return {shape[axis], shape[axis + 1]};
}

void check_size(const char* tag, const char* what, std::array<int64_t, 2> size) {
  for (const int64_t extent : size) {
    SINTER_CHECK(extent >= 1 && extent <= kLargestSize, "[{}] expected {} from 1 to {} but got ({}, {})", tag,
                 what, kLargestSize, size[0], size[1]);
  }
}

/// The same for both ops: images of one size in, images of `size` out.
std::vector<TensorSpec> infer_resampled(const InferContext& context) {
  const auto& attributes = context.attributes<UpsampleAttributes>();
  context.expect_rank(0, 4);
  context.expect_float(0);
  SINTER_CHECK(!attributes.align_corners || attributes.mode == UpsampleMode::kBilinear,
               "[{}] align_corners has no meaning with the mode nearest", context.tag());
  check_size(context.tag(), "an image with sides", image_size(context.shape(0), attributes.layout));
  check_size(context.tag(), "a size", attributes.size);
  const int axis = height_axis(attributes.layout);
  TensorSpec spec = context.input(0);
  spec.shape = spec.shape.with(axis, attributes.size[0]).with(axis + 1, attributes.size[1]);
  return {spec};
}

UpsampleAttributes with_size(UpsampleAttributes attributes, std::array<int64_t, 2> size) {
  attributes.size = size;
  return attributes;
}

Tensor resample(const Tensor& x, const UpsampleAttributes& attributes) {
  static const Op& op = builtin("upsample");
  return call_single(op, {x}, attributes);
}

/// The size of the image that a gradient rule of the two ops gives the gradient of.
UpsampleAttributes to_input(const GradientContext& context) {
  const auto& attributes = context.attributes<UpsampleAttributes>();
  return with_size(attributes, image_size(context.input_spec(0).shape, attributes.layout));
}

// Both ops are linear and each other's transpose.
std::vector<Tensor> upsample_gradient_rule(const GradientContext& context) {
  return {vjp::upsample(context.grad(), to_input(context))};
}

std::vector<Tensor> upsample_grad_gradient_rule(const GradientContext& context) {
  return {resample(context.grad(), to_input(context))};
}

}  // namespace

std::string_view to_string(UpsampleMode mode) {
  return mode == UpsampleMode::kNearest ? "nearest" : "bilinear";
}

Tensor upsample(const Tensor& x, const UpsampleOptions& options) {
  SINTER_CHECK(x.rank() == 4, "[upsample] expected images (rank 4) but got shape {}", x.shape());
  const auto image = image_size(x.shape(), options.layout);
  const auto scaled = [&](int64_t extent) {
    return static_cast<int64_t>(std::floor(static_cast<double>(extent) * options.scale));
  };
  SINTER_CHECK(options.size || (options.scale > 0.0 && options.scale <= static_cast<double>(kLargestSize)),
               "[upsample] expected a scale in (0, {}] but got {}", kLargestSize, options.scale);
  return resample(x, {.mode = options.mode,
                      .align_corners = options.align_corners,
                      .layout = options.layout,
                      .size = options.size.value_or(Size2d(scaled(image[0]), scaled(image[1])))});
}

Tensor vjp::upsample(const Tensor& dy, const UpsampleAttributes& attributes) {
  static const Op& op = builtin("upsample_grad");
  return call_single(op, {dy}, attributes);
}

void register_upsample(OpRegistry& registry);
void register_upsample(OpRegistry& registry) {
  registry.add({.name = "upsample",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_resampled,
                .gradient = upsample_gradient_rule,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
  registry.add({.name = "upsample_grad",
                .inputs = {{"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_resampled,
                .gradient = upsample_grad_gradient_rule,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
}

}  // namespace sinter::ops
