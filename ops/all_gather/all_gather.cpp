#include <sinter/core/base/checked.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

/// Input 0 with another first extent.
TensorSpec with_rows(const InferContext& context, int64_t rows) {
  TensorSpec spec = context.input(0);
  Shape shape{rows};
  for (int axis = 1; axis < spec.shape.rank(); ++axis) shape = shape.inserted(axis, spec.shape[axis]);
  spec.shape = shape;
  return spec;
}

int64_t checked_ranks(const InferContext& context) {
  const auto& attributes = context.attributes<AllGatherAttributes>();
  context.expect_float(0);
  SINTER_CHECK(context.shape(0).rank() > 0, "[{}] expected a tensor with a first axis but got a scalar",
               context.tag());
  SINTER_CHECK(attributes.ranks > 0 && attributes.rank >= 0 && attributes.rank < attributes.ranks,
               "[{}] expected a rank below the number of ranks but got {} of {}", context.tag(),
               attributes.rank, attributes.ranks);
  return attributes.ranks;
}

std::vector<TensorSpec> infer_all_gather(const InferContext& context) {
  const int64_t ranks = checked_ranks(context);
  return {with_rows(context, checked_multiply("all_gather", context.shape(0)[0], ranks))};
}

std::vector<TensorSpec> infer_reduce_scatter(const InferContext& context) {
  const int64_t ranks = checked_ranks(context), rows = context.shape(0)[0];
  SINTER_CHECK(rows % ranks == 0, "[{}] expected a multiple of {} rows, one part for each rank, but got {}",
               context.tag(), ranks, rows);
  return {with_rows(context, rows / ranks)};
}

std::vector<Tensor> all_gather_gradient(const GradientContext& context) {
  static const Op& op = builtin("reduce_scatter");
  return {call(op, {context.grad()}, context.attributes()).front()};
}

std::vector<Tensor> reduce_scatter_gradient(const GradientContext& context) {
  static const Op& op = builtin("all_gather");
  return {call(op, {context.grad()}, context.attributes()).front()};
}

}  // namespace

AllGatherAttributes all_gather_attributes(const Communicator& communicator) {
  return {communicator.id(), communicator.rank(), communicator.size()};
}

Tensor all_gather(const Tensor& x, const Communicator& communicator) {
  update::check_on_ranks("all_gather", x.spec(), communicator);
  static const Op& op = builtin("all_gather");
  return call_single(op, {x}, all_gather_attributes(communicator));
}

Tensor reduce_scatter(const Tensor& x, const Communicator& communicator) {
  update::check_on_ranks("reduce_scatter", x.spec(), communicator);
  static const Op& op = builtin("reduce_scatter");
  return call_single(op, {x}, all_gather_attributes(communicator));
}

void register_all_gather(OpRegistry& registry);
void register_all_gather(OpRegistry& registry) {
  registry.add({.name = "all_gather",
                .inputs = {{"x"}},
                .outputs = {{"all"}},
                .infer = infer_all_gather,
                .gradient = all_gather_gradient,
                .traits = {.precision = Precision::kFollow, .captured = false}});
  registry.add({.name = "reduce_scatter",
                .inputs = {{"x"}},
                .outputs = {{"part"}},
                .infer = infer_reduce_scatter,
                .gradient = reduce_scatter_gradient,
                .traits = {.precision = Precision::kFollow, .captured = false}});
}

}  // namespace sinter::ops
