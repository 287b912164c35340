// shard_cross_entropy as ops: the sums of one rank, the loss of all, and its gradient.
#include <sinter/core/op/node.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_registration.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::ops {
namespace {

/// Logits and rows, inputs 0 and 1; gives the spec of one number per row.
TensorSpec check_inputs(const InferContext& context) {
  context.expect_rank(0, 2);
  context.expect_float(0);
  const TensorSpec& logits = context.input(0);
  SINTER_CHECK(logits.shape[1] > 0, "[{}] expected at least one class but got logits of shape {}",
               context.tag(), logits.shape);
  context.expect_dtype(1, DType::kInt64);
  context.expect_shape(1, Shape{logits.shape[0]});
  return {Shape{logits.shape[0]}, accumulate_dtype(logits.dtype), logits.device};
}

std::vector<TensorSpec> infer_sums(const InferContext& context) {
  const TensorSpec row = check_inputs(context);
  return {row, row};
}

void expect_row_numbers(const InferContext& context, size_t i, const TensorSpec& row, int64_t parts) {
  context.expect_dtype(i, row.dtype);
  context.expect_shape(i, Shape{row.shape[0] / parts});
}

std::vector<TensorSpec> infer_loss(const InferContext& context) {
  const TensorSpec row = check_inputs(context);
  const int64_t ranks = context.attributes<AllGatherAttributes>().ranks;
  SINTER_CHECK(ranks > 0 && row.shape[0] % ranks == 0,
               "[{}] expected as many rows of each of {} ranks but got {}", context.tag(), ranks,
               row.shape[0]);
  expect_row_numbers(context, 2, row, 1);
  expect_row_numbers(context, 3, row, ranks);
  return {context.input(3)};
}

std::vector<TensorSpec> infer_grad(const InferContext& context) {
  const TensorSpec row = check_inputs(context);
  expect_row_numbers(context, 2, row, 1);
  expect_row_numbers(context, 3, row, 1);
  return {context.input(0)};
}

std::vector<Tensor> loss_gradient(const GradientContext& context) {
  static const Op &all_gather = builtin("all_gather"), &grad = builtin("shard_cross_entropy_grad");
  const Tensor dlosses = call(all_gather, {context.grad()}, context.attributes()).front();
  return {
      call(grad, {context.input(0), context.input(1), context.input(2), dlosses}, {}).front(), {}, {}, {}};
}

}  // namespace

Tensor shard_cross_entropy(const Tensor& logits, const Tensor& rows, const Communicator& communicator) {
  static const Op &sums_of = builtin("shard_log_sums"), &loss_of = builtin("shard_cross_entropy");
  const int64_t ranks = communicator.size(), rank = communicator.rank();
  Tensor log_sum, losses;
  {
    const NoGrad no_grad;
    const std::vector<Tensor> own = call(sums_of, {logits, rows}, {});
    const int64_t count = own[0].numel(), share = count / ranks;
    const Tensor all = all_gather(reshape(concat({own[0], own[1]}, 0), {1, 2 * count}), communicator);
    const Tensor log_sums = slice(all, 1, count, 2 * count);
    const Tensor logit = sum(slice(all, 1, 0, count), {0});  // on all ranks but the class's own it is 0
    const Tensor largest = max(log_sums, {0}, {.keep_dims = true});
    log_sum = add(reshape(largest, {count}), log(sum(exp(sub(log_sums, largest)), {0})));
    losses = slice(sub(log_sum, logit), 0, rank * share, (rank + 1) * share);
  }
  return call_single(loss_of, {logits, rows, log_sum, losses}, all_gather_attributes(communicator));
}

void register_shard_cross_entropy(OpRegistry& registry) {
  registry.add({.name = "shard_log_sums",
                .inputs = {{"logits"}, {"rows"}},
                .outputs = {{"logit", false}, {"log_sum", false}},
                .infer = infer_sums,
                .traits = {.precision = Precision::kFloat32}});
  registry.add({.name = "shard_cross_entropy",
                .inputs = {{"logits"}, {"rows"}, {"log_sum"}, {"losses"}},
                .outputs = {{"loss"}},
                .infer = infer_loss,
                .gradient = loss_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1, 2}), .outputs = 0},
                .traits = {.precision = Precision::kFloat32}});
  registry.add({.name = "shard_cross_entropy_grad",
                .inputs = {{"logits"}, {"rows"}, {"log_sum"}, {"dloss"}},
                .outputs = {{"dlogits"}},
                .infer = infer_grad});
}

void run_shard_cross_entropy(const KernelContext& context) {
  const TensorView &losses = context.input(3), &y = context.output(0);
  const size_t bytes = static_cast<size_t>(y.numel()) * size_of(y.dtype);
  const Stream& stream = context.stream();
  if (bytes > 0)
    backend_of(stream.device).copy(y.data, stream.device, losses.data, stream.device, bytes, stream);
}

}  // namespace sinter::ops
