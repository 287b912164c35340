#include <sinter/core/base/checked.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::ops {
namespace {

/// Checks `padding` for a tensor of shape `shape`; `sign` is 1 to add the padding and -1 to take it away.
Shape padded_shape(const Shape& shape, const PadAttributes& pad, int sign, const char* tag) {
  SINTER_CHECK(pad.padding.size() == static_cast<size_t>(shape.rank()),
               "[{}] expected {} pairs of padding for shape {} but got {}", tag, shape.rank(), shape,
               pad.padding.size());
  std::vector<int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto [before, after] = pad.padding[static_cast<size_t>(axis)];
    SINTER_CHECK(before >= 0 && after >= 0,
                 "[{}] expected padding >= 0 on axis {} but got {} before and {} after", tag, axis, before,
                 after);
    const int64_t around = checked_add(tag, before, after);
    const int64_t padded = sign > 0 ? checked_add(tag, shape[axis], around) : shape[axis] - around;
    const int64_t inner = sign > 0 ? shape[axis] : padded;  // of the tensor without padding
    SINTER_CHECK(inner >= 0, "[{}] padding {} and {} exceeds extent {} of axis {}", tag, before, after,
                 shape[axis], axis);
    SINTER_CHECK(
        pad.mode != PadMode::kReflect || (before == 0 && after == 0) || (before < inner && after < inner),
        "[{}] reflection needs padding smaller than extent {} of axis {} but got {} before and {} after", tag,
        inner, axis, before, after);
    SINTER_CHECK(pad.mode != PadMode::kReplicate || inner > 0 || (before == 0 && after == 0),
                 "[{}] there is nothing to replicate on axis {} of extent 0", tag, axis);
    extents.push_back(padded);
  }
  return Shape(extents);
}

std::vector<TensorSpec> infer_pad(const InferContext& context) {
  const TensorSpec& x = context.input(0);
  check_holds("pad", x.dtype, context.attributes<PadAttributes>().value);
  return {{padded_shape(x.shape, context.attributes<PadAttributes>(), 1, "pad"), x.dtype, x.device}};
}

std::vector<Tensor> pad_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<PadAttributes>();
  return {vjp::pad(context.grad(), attributes.padding, attributes.mode)};
}

std::vector<TensorSpec> infer_pad_grad(const InferContext& context) {
  context.expect_float(0);
  const TensorSpec& dy = context.input(0);
  return {{padded_shape(dy.shape, context.attributes<PadAttributes>(), -1, "pad_grad"), dy.dtype, dy.device}};
}

std::vector<Tensor> pad_grad_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<PadAttributes>();
  return {pad(context.grad(), attributes.padding, {.mode = attributes.mode})};
}

std::optional<Attributes> reorder_pad(const Attributes& attributes, std::span<const int64_t> order) {
  PadAttributes pad = attributes.as<PadAttributes>();
  for (size_t axis = 0; axis < order.size(); ++axis) {
    pad.padding[axis] = attributes.as<PadAttributes>().padding[static_cast<size_t>(order[axis])];
  }
  return pad;
}

}  // namespace

std::string_view to_string(PadMode mode) {
  switch (mode) {
    case PadMode::kConstant:
      return "constant";
    case PadMode::kReflect:
      return "reflect";
    case PadMode::kReplicate:
      return "replicate";
  }
  return "unknown";
}

Tensor pad(const Tensor& x, std::vector<std::array<int64_t, 2>> padding, const PadOptions& options) {
  static const Op& op = builtin("pad");
  return call_single(op, {x}, PadAttributes{std::move(padding), options.mode, options.value});
}

Tensor vjp::pad(const Tensor& dy, std::vector<std::array<int64_t, 2>> padding, PadMode mode) {
  static const Op& op = builtin("pad_grad");
  return call_single(op, {dy}, PadAttributes{std::move(padding), mode, 0.0});
}

void register_pad(OpRegistry& registry);
void register_pad(OpRegistry& registry) {
  registry.add({.name = "pad",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_pad,
                .gradient = pad_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_pad}}});
  registry.add({.name = "pad_grad",
                .inputs = {{"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_pad_grad,
                .gradient = pad_grad_gradient});
}

}  // namespace sinter::ops
