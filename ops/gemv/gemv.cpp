#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

Tensor summed_to(const Tensor& gradient, const Shape& shape) {
  return gradient.shape() == shape ? gradient : sum_to(gradient, shape);
}

std::vector<TensorSpec> infer_matvec(const InferContext& context) {
  const bool transpose = context.attributes<MatvecOptions>().transpose_a;
  const Shape& a = context.shape(0);
  const Shape& x = context.shape(1);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  SINTER_CHECK(a.rank() >= 2 && x.rank() >= 1,
               "[matvec] expected a matrix and a vector but got shapes {} and {}", a, x);
  const int64_t rows = a[transpose ? -1 : -2], columns = a[transpose ? -2 : -1];
  SINTER_CHECK(x[-1] == columns, "[matvec] expected a vector of {} elements but got shape {} (matrix {}{})",
               columns, x, a, transpose ? " transposed" : "");
  const Shape batch = broadcast_shapes(batch_shape(a, 2), batch_shape(x, 1), "matvec");
  return {{batch.inserted(batch.rank(), rows), context.input(0).dtype, context.input(0).device}};
}

std::vector<Tensor> matvec_gradient(const GradientContext& context) {
  const bool transpose = context.attributes<MatvecOptions>().transpose_a;
  const Tensor dy = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    const Tensor x = context.input(1);
    gradients[0] = summed_to(transpose ? outer(x, dy) : outer(dy, x), context.input_spec(0).shape);
  }
  if (context.needs(1)) {
    gradients[1] =
        summed_to(matvec(context.input(0), dy, {.transpose_a = !transpose}), context.input_spec(1).shape);
  }
  return gradients;
}

std::vector<TensorSpec> infer_outer(const InferContext& context) {
  const Shape& u = context.shape(0);
  const Shape& v = context.shape(1);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  SINTER_CHECK(u.rank() >= 1 && v.rank() >= 1, "[outer] expected two vectors but got shapes {} and {}", u, v);
  const Shape batch = broadcast_shapes(batch_shape(u, 1), batch_shape(v, 1), "outer");
  const int rank = batch.rank();
  return {{batch.inserted(rank, u[-1]).inserted(rank + 1, v[-1]), context.input(0).dtype,
           context.input(0).device}};
}

std::vector<Tensor> outer_gradient(const GradientContext& context) {
  const Tensor dy = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) gradients[0] = summed_to(matvec(dy, context.input(1)), context.input_spec(0).shape);
  if (context.needs(1))
    gradients[1] =
        summed_to(matvec(dy, context.input(0), {.transpose_a = true}), context.input_spec(1).shape);
  return gradients;
}

/// 2 m k for an m x k matrix, times the batch that comes out.
double matvec_flops(const InferContext& context, std::span<const TensorSpec> outputs) {
  return 2.0 * static_cast<double>(outputs[0].shape.numel()) * static_cast<double>(context.shape(1)[-1]);
}

/// As the product of an m x 1 and a 1 x n matrix: 2 m n, times the batch that comes out.
double outer_flops(const InferContext&, std::span<const TensorSpec> outputs) {
  return 2.0 * static_cast<double>(outputs[0].shape.numel());
}

}  // namespace

Tensor matvec(const Tensor& a, const Tensor& x, const MatvecOptions& options) {
  static const Op& op = builtin("matvec");
  return call_single(op, {a, x}, options);
}

Tensor outer(const Tensor& u, const Tensor& v) {
  static const Op& op = builtin("outer");
  return call_single(op, {u, v});
}

void register_gemv(OpRegistry& registry);
void register_gemv(OpRegistry& registry) {
  registry.add({.name = "matvec",
                .inputs = {{"a"}, {"x"}},
                .outputs = {{"y"}},
                .infer = infer_matvec,
                .gradient = matvec_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = matvec_flops,
                .choose = choose_by_time});
  registry.add({.name = "outer",
                .inputs = {{"u"}, {"v"}},
                .outputs = {{"y"}},
                .infer = infer_outer,
                .gradient = outer_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = outer_flops});
}

}  // namespace sinter::ops
