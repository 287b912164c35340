#include <sinter/ops/common/op_support.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/embedding/take_rows.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_embedding(const InferContext& context) {
  context.expect_rank(0, 2);
  context.expect_dtype(1, DType::kInt64);
  const TensorSpec& weight = context.input(0);
  const Shape& indices = context.shape(1);
  return {{indices.inserted(indices.rank(), weight.shape[1]), weight.dtype, weight.device}};
}

std::vector<TensorSpec> infer_take_rows(const InferContext& context) {
  context.expect_rank(1, 2);
  context.expect_rank(2, 1);
  context.expect_dtype(2, DType::kInt64);
  context.expect_same_dtype(0, 1);
  context.expect_shape(0, {context.shape(2)[0], context.shape(1)[1]});
  return {};
}

std::vector<Tensor> embedding_gradient(const GradientContext& context) {
  return {vjp::embedding(context.grad(), context.input(1), context.input_spec(0).shape[0]), {}};
}

std::vector<TensorSpec> infer_embedding_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_dtype(1, DType::kInt64);
  const TensorSpec& dy = context.input(0);
  const int64_t rows = context.attributes<EmbeddingGradAttributes>().rows;
  SINTER_CHECK(rows >= 0, "[embedding_grad] expected rows >= 0 but got {}", rows);
  context.expect_rank(0, context.shape(1).rank() + 1);
  const int64_t columns = dy.shape[-1];
  context.expect_shape(1, dy.shape.without(dy.shape.rank() - 1));
  return {{{rows, columns}, dy.dtype, dy.device}};
}

std::vector<Tensor> embedding_grad_gradient(const GradientContext& context) {
  return {embedding(context.grad(), context.input(1)), {}};
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  static const Op& op = builtin("embedding");
  return call_single(op, {weight, indices});
}

void update::take_rows_(const Tensor& target, const Tensor& table, const Tensor& indices) {
  static const Op& op = builtin("take_rows_");
  call(op, {target, table, indices});
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& indices) {
  SINTER_CHECK(x.rank() >= 1, "[index_select] expected x of rank 1 or more but got shape {}", x.shape());
  const int which = normalize_axis(axis, x.rank(), "index_select");
  const Tensor first = which == 0 ? x : transpose(x, 0, which);
  const Shape row = first.shape().without(0);
  const Tensor rows = embedding(reshape(first, {first.size(0), row.numel()}), flatten(indices, 0));
  std::vector<int64_t> picked(row.begin(), row.end());
  picked.insert(picked.begin(), indices.numel());
  const Tensor parts = reshape(rows, picked);
  const Shape& shape = x.shape();
  std::vector<int64_t> extents(shape.begin(), shape.begin() + which);
  extents.insert(extents.end(), indices.shape().begin(), indices.shape().end());
  extents.insert(extents.end(), shape.begin() + which + 1, shape.end());
  return reshape(which == 0 ? parts : transpose(parts, 0, which), std::move(extents));
}

Tensor vjp::embedding(const Tensor& dy, const Tensor& indices, int64_t rows) {
  static const Op& op = builtin("embedding_grad");
  return call_single(op, {dy, indices}, EmbeddingGradAttributes{rows});
}

void register_embedding(OpRegistry& registry);
void register_embedding(OpRegistry& registry) {
  registry.add({.name = "embedding",
                .inputs = {{"weight"}, {"indices"}},
                .outputs = {{"y"}},
                .infer = infer_embedding,
                .gradient = embedding_gradient,
                .gradient_reads = {.inputs = reads_of({1})},
                .traits = {.precision = Precision::kReduced}});
  registry.add({.name = "take_rows_",
                .inputs = {{.name = "target", .mutated = true}, {"table"}, {"indices"}},
                .infer = infer_take_rows});
  registry.add({.name = "embedding_grad",
                .inputs = {{"dy"}, {"indices"}},
                .outputs = {{"dweight"}},
                .infer = infer_embedding_grad,
                .gradient = embedding_grad_gradient,
                .gradient_reads = {.inputs = reads_of({1})}});
}

}  // namespace sinter::ops
