#include <sinter/ops/common/op_support.h>
#include <sinter/ops/embedding/embedding.h>
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

Tensor take_rows(const Tensor& x, const Tensor& indices) {
  SINTER_CHECK(x.rank() >= 1, "[take_rows] expected x of rank 1 or more but got shape {}", x.shape());
  const Shape row = x.shape().without(0);
  std::vector<int64_t> extents(indices.shape().begin(), indices.shape().end());
  extents.insert(extents.end(), row.begin(), row.end());
  return reshape(embedding(reshape(x, {x.size(0), row.numel()}), indices), extents);
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
  registry.add({.name = "embedding_grad",
                .inputs = {{"dy"}, {"indices"}},
                .outputs = {{"dweight"}},
                .infer = infer_embedding_grad,
                .gradient = embedding_grad_gradient,
                .gradient_reads = {.inputs = reads_of({1})}});
}

}  // namespace sinter::ops
