#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::ops {
namespace {

/// The attributes with all three numbers counted from the front, checked.
SliceAttributes resolve(const Shape& shape, SliceAttributes slice) {
  const int axis = normalize_axis(slice.axis, shape.rank(), "slice");
  const int64_t extent = shape[axis];
  const int64_t begin = slice.begin < 0 ? slice.begin + extent : slice.begin;
  const int64_t end = slice.end < 0 ? slice.end + extent : slice.end;
  SINTER_CHECK(0 <= begin && begin <= end && end <= extent,
               "[slice] expected 0 <= begin <= end <= {} on axis {} of shape {} but got begin {} and end {}",
               extent, axis, shape, slice.begin, slice.end);
  return {axis, begin, end};
}

std::vector<TensorSpec> infer_slice(const InferContext& context) {
  const TensorSpec& x = context.input(0);
  const SliceAttributes slice = resolve(x.shape, context.attributes<SliceAttributes>());
  return {{x.shape.with(static_cast<int>(slice.axis), slice.end - slice.begin), x.dtype, x.device}};
}

std::optional<int64_t> slice_view(const InferContext& context) {
  const Shape& shape = context.shape(0);
  const SliceAttributes slice = resolve(shape, context.attributes<SliceAttributes>());
  const AxisSplit split = split_at(shape, static_cast<int>(slice.axis));
  if (split.outer != 1) return std::nullopt;
  return slice.begin * split.inner;
}

std::vector<Tensor> slice_gradient(const GradientContext& context) {
  const Shape& shape = context.input_spec(0).shape;
  const SliceAttributes slice = resolve(shape, context.attributes<SliceAttributes>());
  std::vector<std::array<int64_t, 2>> padding(static_cast<size_t>(shape.rank()));
  const auto axis = static_cast<size_t>(slice.axis);
  padding[axis] = {slice.begin, shape[static_cast<int>(axis)] - slice.end};
  return {pad(context.grad(), std::move(padding))};
}

}  // namespace

Tensor slice(const Tensor& x, int64_t axis, int64_t begin, int64_t end) {
  static const Op& op = builtin("slice");
  return call_single(op, {x}, resolve(x.shape(), {axis, begin, end}));
}

void register_slice(OpRegistry& registry);
void register_slice(OpRegistry& registry) {
  registry.add({.name = "slice",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_slice,
                .gradient = slice_gradient,
                .view = slice_view,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
}

}  // namespace sinter::ops
