#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_matmul(const InferContext& context) {
  const auto& options = context.attributes<MatmulOptions>();
  const Shape& a = context.shape(0);
  const Shape& b = context.shape(1);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  SINTER_CHECK(a.rank() >= 2 && b.rank() >= 2,
               "[matmul] expected matrices of rank 2 or more but got shapes {} and {}", a, b);
  const int64_t m = a[options.transpose_a ? -1 : -2], k = a[options.transpose_a ? -2 : -1];
  const int64_t n = b[options.transpose_b ? -2 : -1], b_rows = b[options.transpose_b ? -1 : -2];
  SINTER_CHECK(k == b_rows, "[matmul] expected inner extents that agree but got shapes {}{} and {}{}", a,
               options.transpose_a ? " transposed" : "", b, options.transpose_b ? " transposed" : "");
  const Shape batch = broadcast_shapes(batch_shape(a, 2), batch_shape(b, 2), "matmul");
  const int rank = batch.rank();
  return {{batch.inserted(rank, m).inserted(rank + 1, n), context.input(0).dtype, context.input(0).device}};
}

// With op(A) = A or A^T as read: dop(A) = dY op(B)^T and dop(B) = op(A)^T dY, stored transposed where it is
// read transposed. Matrices that were broadcast get the sum over what they were broadcast along.
std::vector<Tensor> matmul_gradient(const GradientContext& context) {
  const auto [transpose_a, transpose_b] = context.attributes<MatmulOptions>();
  const Tensor dy = context.grad();
  const Shape& a_shape = context.input_spec(0).shape;
  const Shape& b_shape = context.input_spec(1).shape;
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    const Tensor b = context.input(1);
    const Tensor da = transpose_a ? matmul(b, dy, {transpose_b, true}) : matmul(dy, b, {false, !transpose_b});
    gradients[0] = da.shape() == a_shape ? da : sum_to(da, a_shape);
  }
  if (context.needs(1)) {
    const Tensor a = context.input(0);
    if (b_shape.rank() == 2 && !transpose_a) {
      // One matrix for the whole batch: the batch's sum is part of the product.
      gradients[1] = transpose_b ? vjp::linear_weight(dy, a) : vjp::linear_weight(a, dy);
    } else {
      const Tensor db =
          transpose_b ? matmul(dy, a, {true, transpose_a}) : matmul(a, dy, {!transpose_a, false});
      gradients[1] = db.shape() == b_shape ? db : sum_to(db, b_shape);
    }
  }
  return gradients;
}

std::vector<TensorSpec> infer_linear(const InferContext& context) {
  const Shape& x = context.shape(0);
  const Shape& weight = context.shape(1);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_rank(1, 2);
  SINTER_CHECK(x.rank() >= 1 && x[-1] == weight[1],
               "[linear] expected x of {} features but got shape {} (weight {})", weight[1], x, weight);
  if (context.has(2)) {
    context.expect_same_dtype(2, 0);
    context.expect_shape(2, {weight[0]});
  }
  return {{x.with(x.rank() - 1, weight[0]), context.input(0).dtype, context.input(0).device}};
}

std::vector<Tensor> linear_gradient(const GradientContext& context) {
  const Tensor dy = context.grad();
  std::vector<Tensor> gradients(3);
  if (context.needs(0)) {
    const Tensor weight = context.input(1);
    gradients[0] = dy.rank() == 1 ? matvec(weight, dy, {.transpose_a = true}) : matmul(dy, weight);
  }
  if (context.needs(1) && context.needs(2) && dy.rank() > 1) {
    auto [weight, bias] = vjp::linear_weight_bias(dy, context.input(0));
    gradients[1] = std::move(weight);
    gradients[2] = std::move(bias);
    return gradients;
  }
  if (context.needs(1)) gradients[1] = vjp::linear_weight(dy, context.input(0));
  if (context.needs(2)) gradients[2] = dy.rank() == 1 ? dy : sum_to(dy, {dy.shape()[-1]});
  return gradients;
}

std::vector<TensorSpec> infer_linear_grad_weight(const InferContext& context) {
  const Shape& dy = context.shape(0);
  const Shape& x = context.shape(1);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  SINTER_CHECK(dy.rank() >= 1 && x.rank() == dy.rank() && batch_shape(dy, 1) == batch_shape(x, 1),
               "[{}] expected equal leading axes but got shapes {} and {}", context.tag(), dy, x);
  return {{{dy[-1], x[-1]}, context.input(0).dtype, context.input(0).device}};
}

// W = sum dy x^T, so d dy = x G^T and d x = dy G.
std::vector<Tensor> linear_grad_weight_gradient(const GradientContext& context) {
  const Tensor grad = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) gradients[0] = linear(context.input(1), grad);
  if (context.needs(1)) {
    const Tensor dy = context.input(0);
    gradients[1] = dy.rank() == 1 ? matvec(grad, dy, {.transpose_a = true}) : matmul(dy, grad);
  }
  return gradients;
}

std::vector<TensorSpec> infer_linear_grad_weight_bias(const InferContext& context) {
  std::vector<TensorSpec> specs = infer_linear_grad_weight(context);
  const TensorSpec& dy = context.input(0);
  SINTER_CHECK(dy.shape.rank() >= 2, "[{}] expected a leading axis but got shape {}", context.tag(),
               dy.shape);
  specs.push_back({{dy.shape[-1]}, dy.dtype, dy.device});
  return specs;
}

// Each row of dy also adds to the bias's gradient, so that d dy = x G^T + g: a linear layer.
std::vector<Tensor> linear_grad_weight_bias_gradient(const GradientContext& context) {
  const Tensor weight_grad = context.grad(0), bias_grad = context.grad(1);
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    gradients[0] = weight_grad.defined() ? linear(context.input(1), weight_grad, bias_grad)
                                         : broadcast_to(bias_grad, context.input_spec(0).shape);
  }
  if (context.needs(1) && weight_grad.defined()) gradients[1] = matmul(context.input(0), weight_grad);
  return gradients;
}

/// A product of an m x k and a k x n matrix: 2 m k n operations, times the batch that comes out.
double matmul_flops(const InferContext& context, std::span<const TensorSpec> outputs) {
  const int64_t k = context.shape(0)[context.attributes<MatmulOptions>().transpose_a ? -2 : -1];
  return 2.0 * static_cast<double>(outputs[0].shape.numel()) * static_cast<double>(k);
}

/// 2 M K N for M rows of K features in and N out; a bias is left out.
double linear_flops(const InferContext& context, std::span<const TensorSpec> outputs) {
  return 2.0 * static_cast<double>(outputs[0].shape.numel()) * static_cast<double>(context.shape(1)[1]);
}

/// 2 M K N as linear; the bias's sum is left out.
double linear_grad_weight_flops(const InferContext& context, std::span<const TensorSpec>) {
  return 2.0 * static_cast<double>(context.shape(0).numel()) * static_cast<double>(context.shape(1)[-1]);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  static const Op& op = builtin("matmul");
  return call_single(op, {a, b}, options);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  static const Op& op = builtin("linear");
  return call_single(op, {x, weight, bias});
}

Tensor vjp::linear_weight(const Tensor& dy, const Tensor& x) {
  static const Op& op = builtin("linear_grad_weight");
  return call_single(op, {dy, x});
}

LinearGradients vjp::linear_weight_bias(const Tensor& dy, const Tensor& x) {
  static const Op& op = builtin("linear_grad_weight_bias");
  std::vector<Tensor> gradients = call(op, {dy, x});
  return {std::move(gradients[0]), std::move(gradients[1])};
}

void register_matmul(OpRegistry& registry);
void register_matmul(OpRegistry& registry) {
  registry.add({.name = "matmul",
                .inputs = {{"a"}, {"b"}},
                .outputs = {{"y"}},
                .infer = infer_matmul,
                .gradient = matmul_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = matmul_flops,
                .choose = choose_by_time});
  registry.add({.name = "linear",
                .inputs = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                .outputs = {{"y"}},
                .infer = infer_linear,
                .gradient = linear_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = linear_flops,
                .choose = choose_by_time});
  registry.add({.name = "linear_grad_weight",
                .inputs = {{"dy"}, {"x"}},
                .outputs = {{"dweight"}},
                .infer = infer_linear_grad_weight,
                .gradient = linear_grad_weight_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = linear_grad_weight_flops});
  registry.add({.name = "linear_grad_weight_bias",
                .inputs = {{"dy"}, {"x"}},
                .outputs = {{"dweight"}, {"dbias"}},
                .infer = infer_linear_grad_weight_bias,
                .gradient = linear_grad_weight_bias_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced},
                .flops = linear_grad_weight_flops});
}

}  // namespace sinter::ops
