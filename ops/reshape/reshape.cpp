#include <algorithm>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {
namespace {

/// The shape that `extents` describe for a tensor of shape `from`, with -1 worked out.
Shape resolve(const Shape& from, std::vector<int64_t> extents) {
  const auto inferred = std::find(extents.begin(), extents.end(), -1);
  if (inferred != extents.end()) {
    const auto unknown = std::count(extents.begin(), extents.end(), -1);
    SINTER_CHECK(unknown == 1, "[reshape] expected at most one extent of -1 but got {}", unknown);
    *inferred = 1;
    const int64_t known = Shape(extents).numel();
    SINTER_CHECK(known != 0, "[reshape] cannot infer an extent of -1 beside an extent of 0");
    SINTER_CHECK(from.numel() % known == 0,
                 "[reshape] cannot split the {} elements of shape {} into groups of {}", from.numel(), from,
                 known);
    *inferred = from.numel() / known;
  }
  const Shape shape(extents);
  SINTER_CHECK(shape.numel() == from.numel(), "[reshape] shape {} has {} elements but shape {} has {}", from,
               from.numel(), shape, shape.numel());
  return shape;
}

std::vector<TensorSpec> infer_reshape(const InferContext& context) {
  const TensorSpec& x = context.input(0);
  return {{resolve(x.shape, context.attributes<ReshapeAttributes>().extents), x.dtype, x.device}};
}

std::optional<int64_t> reshape_view(const InferContext&) {
  return 0;
}

std::vector<Tensor> reshape_gradient(const GradientContext& context) {
  const Shape& shape = context.input_spec(0).shape;
  return {reshape(context.grad(), {shape.begin(), shape.end()})};
}

}  // namespace

Tensor reshape(const Tensor& x, std::vector<int64_t> extents) {
  static const Op& op = builtin("reshape");
  const Shape shape = resolve(x.shape(), std::move(extents));
  return call_single(op, {x}, ReshapeAttributes{{shape.begin(), shape.end()}});
}

Tensor flatten(const Tensor& x, int64_t first_axis, int64_t last_axis) {
  if (x.rank() == 0) return reshape(x, {1});
  const int begin = normalize_axis(first_axis, x.rank(), "flatten"),
            end = normalize_axis(last_axis, x.rank(), "flatten") + 1;
  SINTER_CHECK(begin < end, "[flatten] expected axes in order but got {} and {}", first_axis, last_axis);
  const Shape& shape = x.shape();
  std::vector<int64_t> extents(shape.begin(), shape.begin() + begin);
  extents.push_back(shape.count(begin, end));
  extents.insert(extents.end(), shape.begin() + end, shape.end());
  return reshape(x, std::move(extents));
}

Tensor squeeze(const Tensor& x, int64_t axis) {
  const int which = normalize_axis(axis, x.rank(), "squeeze");
  SINTER_CHECK(x.size(which) == 1, "[squeeze] expected extent 1 on axis {} but got shape {}", which,
               x.shape());
  const Shape shape = x.shape().without(which);
  return reshape(x, {shape.begin(), shape.end()});
}

Tensor unsqueeze(const Tensor& x, int64_t axis) {
  const Shape shape = x.shape().inserted(normalize_axis(axis, x.rank() + 1, "unsqueeze"), 1);
  return reshape(x, {shape.begin(), shape.end()});
}

void register_reshape(OpRegistry& registry);
void register_reshape(OpRegistry& registry) {
  registry.add({.name = "reshape",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_reshape,
                .gradient = reshape_gradient,
                .view = reshape_view,
                .traits = {.precision = Precision::kFollow}});
}

}  // namespace sinter::ops
