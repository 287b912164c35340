#include <numeric>

#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/plan/permute_plan.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_permute(const InferContext& context) {
  const Shape& shape = context.shape(0);
  const auto axes = check_permutation(context.attributes<PermuteAttributes>().axes, shape.rank());
  std::vector<int64_t> extents;
  for (size_t i = 0; i < static_cast<size_t>(shape.rank()); ++i) extents.push_back(shape[axes[i]]);
  return {{Shape(extents), context.input(0).dtype, context.input(0).device}};
}

std::vector<Tensor> permute_gradient(const GradientContext& context) {
  const int rank = context.input_spec(0).shape.rank();
  const auto axes = check_permutation(context.attributes<PermuteAttributes>().axes, rank);
  std::vector<int64_t> inverse(static_cast<size_t>(rank));
  for (size_t i = 0; i < inverse.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
  return {permute(context.grad(), inverse)};
}

}  // namespace

Tensor permute(const Tensor& x, std::vector<int64_t> axes) {
  static const Op& op = builtin("permute");
  const auto checked = check_permutation(axes, x.rank());
  std::copy_n(checked.begin(), axes.size(), axes.begin());
  return call_single(op, {x}, PermuteAttributes{std::move(axes)});
}

Tensor transpose(const Tensor& x, int64_t axis0, int64_t axis1) {
  const int first = normalize_axis(axis0, x.rank(), "transpose");
  const int second = normalize_axis(axis1, x.rank(), "transpose");
  std::vector<int64_t> axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  std::swap(axes[static_cast<size_t>(first)], axes[static_cast<size_t>(second)]);
  return permute(x, std::move(axes));
}

void register_permute(OpRegistry& registry);
void register_permute(OpRegistry& registry) {
  registry.add({.name = "permute",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_permute,
                .gradient = permute_gradient,
                .traits = {.precision = Precision::kFollow, .role = Role::kPermutation},
                .choose = choose_by_time});
}

}  // namespace sinter::ops
