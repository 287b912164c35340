#include <algorithm>

#include <fmt/ranges.h>

#include <sinter/core/base/checked.h>
#include <sinter/ops/common/axis_order.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_concat(const InferContext& context) {
  const TensorSpec& first = context.input(0);
  const int rank = first.shape.rank();
  const int axis = normalize_axis(context.attributes<ConcatAttributes>().axis, rank, "concat");
  int64_t extent = 0;
  for (size_t i = 0; i < context.input_count(); ++i) {
    context.expect_rank(i, rank);
    context.expect_same_dtype(i, 0);
    const int64_t own = context.shape(i)[axis];
    context.expect_shape(i, first.shape.with(axis, own));
    extent = checked_add(context.tag(), extent, own);
  }
  return {{first.shape.with(axis, extent), first.dtype, first.device}};
}

std::vector<Tensor> concat_gradient(const GradientContext& context) {
  const int rank = context.output_spec(0).shape.rank();
  const int axis = normalize_axis(context.attributes<ConcatAttributes>().axis, rank, "concat");
  std::vector<Tensor> gradients(context.input_count());
  int64_t begin = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t end = begin + context.input_spec(i).shape[axis];
    if (context.needs(i)) gradients[i] = slice(context.grad(), axis, begin, end);
    begin = end;
  }
  return gradients;
}

}  // namespace

Tensor concat(const std::vector<Tensor>& tensors, int64_t axis) {
  static const Op& op = builtin("concat");
  SINTER_CHECK(!tensors.empty(), "[concat] expected at least one tensor but got none");
  const int checked = normalize_axis(axis, tensors.front().rank(), "concat");
  return std::move(call(op, tensors, ConcatAttributes{checked}).front());
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t axis) {
  SINTER_CHECK(!tensors.empty(), "[stack] expected at least one tensor but got none");
  std::vector<Tensor> parts;
  for (const Tensor& tensor : tensors) {
    SINTER_CHECK(tensor.shape() == tensors.front().shape(),
                 "[stack] expected tensors of one shape but got {} and {}", tensors.front().shape(),
                 tensor.shape());
    parts.push_back(unsqueeze(tensor, axis));
  }
  return concat(parts, axis);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int64_t axis) {
  const int checked = normalize_axis(axis, x.rank(), "split");
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t extent : extents) {
    SINTER_CHECK(extent >= 0 && extent <= x.size(checked) - begin,
                 "[split] expected extents that fill axis {} of {} but got {}", checked, x.shape(),
                 fmt::join(extents, ", "));
    parts.push_back(slice(x, checked, begin, begin + extent));
    begin += extent;
  }
  SINTER_CHECK(begin == x.size(checked), "[split] expected extents that fill axis {} of {} but got {}",
               checked, x.shape(), fmt::join(extents, ", "));
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t extent, int64_t axis) {
  const int checked = normalize_axis(axis, x.rank(), "split");
  SINTER_CHECK(extent > 0, "[split] expected an extent > 0 but got {}", extent);
  std::vector<int64_t> extents;
  for (int64_t left = x.size(checked); left > 0; left -= extents.back())
    extents.push_back(std::min(left, extent));
  if (extents.empty()) extents.push_back(0);  // an empty axis is one empty part
  return split(x, extents, checked);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t axis) {
  const int checked = normalize_axis(axis, x.rank(), "chunk");
  SINTER_CHECK(chunks > 0, "[chunk] expected at least one chunk but got {}", chunks);
  const int64_t extent = x.size(checked) / chunks + (x.size(checked) % chunks > 0 ? 1 : 0);
  return split(x, std::max<int64_t>(extent, 1), checked);
}

void register_concat(OpRegistry& registry);
void register_concat(OpRegistry& registry) {
  registry.add({.name = "concat",
                .inputs = {{"x"}},
                .variadic = true,
                .outputs = {{"y"}},
                .infer = infer_concat,
                .gradient = concat_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAnyOrder, .reordered = reorder_axis}}});
}

}  // namespace sinter::ops
