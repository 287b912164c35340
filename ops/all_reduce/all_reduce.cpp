#include <sinter/core/base/checked.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_all_reduce(const InferContext& context) {
  context.expect_float(0);
  return {context.input(0)};
}

TensorSpec bucket_spec(const InferContext& context, size_t first) {
  std::vector<int64_t> counts;
  for (size_t i = first; i < context.input_count(); ++i) {
    context.expect_float(i);
    context.expect_same_dtype(i, first);
    counts.push_back(context.shape(i).numel());
  }
  return {Shape{update::bucket_places(counts).back()}, context.input(first).dtype,
          context.input(first).device};
}

std::vector<TensorSpec> infer_begin(const InferContext& context) {
  return {bucket_spec(context, 0)};
}

std::vector<TensorSpec> infer_end(const InferContext& context) {
  SINTER_CHECK(context.input_count() > 1, "[{}] expected sums and what they are of", context.tag());
  const TensorSpec spec = bucket_spec(context, 1);
  context.expect_shape(0, spec.shape);
  context.expect_same_dtype(0, 1);
  return {spec};
}

}  // namespace

std::vector<int64_t> update::bucket_places(std::span<const int64_t> counts) {
  std::vector<int64_t> places = {0};
  for (const int64_t count : counts) {
    const int64_t end = checked_add("all_reduce", places.back(), count);
    places.push_back(checked_add("all_reduce", end, kBucketAlignment - 1) / kBucketAlignment *
                     kBucketAlignment);
  }
  return places;
}

void update::check_on_ranks(const char* op, const TensorSpec& spec, const Communicator& communicator) {
  if (call_tracer() == nullptr && spec.device.is_cpu()) communicator.check_call(op, spec);
}

Tensor all_reduce(const Tensor& x, const Communicator& communicator) {
  update::check_on_ranks("all_reduce", x.spec(), communicator);
  static const Op& op = builtin("all_reduce");
  const NoGrad no_grad;
  return call_single(op, {x}, AllReduceAttributes{communicator.id()});
}

Tensor bucketed_all_reduce(const Tensor& x, const Communicator& communicator) {
  update::check_on_ranks("all_reduce", x.spec(), communicator);
  static const Op& op = builtin("all_reduce");
  const NoGrad no_grad;
  return call_single(op, {x}, AllReduceAttributes{communicator.id(), /*bucketed=*/true});
}

Tensor update::begin_all_reduce(std::span<const Tensor> tensors, const Communicator& communicator) {
  static const Op& op = builtin("begin_all_reduce");
  SINTER_CHECK(!tensors.empty(), "[begin_all_reduce] expected at least one tensor but got none");
  const NoGrad no_grad;
  return std::move(call(op, tensors, AllReduceAttributes{communicator.id()}).front());
}

Tensor update::end_all_reduce(const Tensor& sums, std::span<const Tensor> tensors,
                              const Communicator& communicator) {
  static const Op& op = builtin("end_all_reduce");
  std::vector<Tensor> inputs = {sums};
  inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  const NoGrad no_grad;
  return std::move(call(op, inputs, AllReduceAttributes{communicator.id()}).front());
}

void register_all_reduce(OpRegistry& registry);
void register_all_reduce(OpRegistry& registry) {
  registry.add({.name = "all_reduce",
                .inputs = {{"x"}},
                .outputs = {{.name = "sum", .differentiable = false}},
                .infer = infer_all_reduce,
                .traits = {.elementwise = true}});
  registry.add({.name = "begin_all_reduce",
                .inputs = {{"x"}},
                .variadic = true,
                .outputs = {{.name = "sums", .differentiable = false}},
                .infer = infer_begin,
                .traits = {.captured = false}});
  // What was begun reads and writes memory until here: its inputs are this call's too, and the result takes
  // the place of the sums.
  registry.add({.name = "end_all_reduce",
                .inputs = {{"x"}},
                .variadic = true,
                .outputs = {{.name = "sums", .differentiable = false}},
                .infer = infer_end,
                .traits = {.elementwise = true, .captured = false}});
}

}  // namespace sinter::ops
