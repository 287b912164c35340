#include <sinter/ops/common/dispatch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/unary/unary_math.h>

namespace sinter::ops {
namespace {

template <class F>
Tensor apply(const Tensor& x) {
  static const Op& op = builtin(F::kName);
  return call_single(op, {x});
}

template <class F>
std::vector<TensorSpec> infer_unary(const InferContext& context) {
  if constexpr (F::kIntegers) {
    expect_number(context, 0);
  } else {
    context.expect_float(0);
  }
  return {context.input(0)};
}

std::vector<TensorSpec> infer_unary_grad(const InferContext& context) {
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  context.expect_shape(1, context.shape(0));
  return {context.input(0)};
}

template <class F>
std::vector<Tensor> unary_gradient(const GradientContext& context) {
  if constexpr (F::kReads == UnaryReads::kNothing) {
    return {apply<F>(context.grad())};
  } else {
    static const Op& op = builtin(std::string(F::kName) + "_grad");
    return {call_single(
        op, {F::kReads == UnaryReads::kInput ? context.input(0) : context.output(0), context.grad()})};
  }
}

template <class F>
constexpr GradientReads reads_of_unary() {
  return {.inputs = F::kReads == UnaryReads::kInput ? reads_of({0}) : 0,
          .outputs = F::kReads == UnaryReads::kOutput ? reads_of({0}) : 0};
}

}  // namespace

Tensor neg(const Tensor& x) {
  return apply<Neg>(x);
}
Tensor abs(const Tensor& x) {
  return apply<Abs>(x);
}
Tensor square(const Tensor& x) {
  return apply<Square>(x);
}
Tensor exp(const Tensor& x) {
  return apply<Exp>(x);
}
Tensor log(const Tensor& x) {
  return apply<Log>(x);
}
Tensor sqrt(const Tensor& x) {
  return apply<Sqrt>(x);
}
Tensor rsqrt(const Tensor& x) {
  return apply<Rsqrt>(x);
}
Tensor reciprocal(const Tensor& x) {
  return apply<Reciprocal>(x);
}
Tensor sin(const Tensor& x) {
  return apply<Sin>(x);
}
Tensor cos(const Tensor& x) {
  return apply<Cos>(x);
}
Tensor tanh(const Tensor& x) {
  return apply<Tanh>(x);
}
Tensor erf(const Tensor& x) {
  return apply<Erf>(x);
}
Tensor sigmoid(const Tensor& x) {
  return apply<Sigmoid>(x);
}
Tensor silu(const Tensor& x) {
  return apply<Silu>(x);
}
Tensor gelu(const Tensor& x) {
  return apply<Gelu>(x);
}

void register_unary(OpRegistry& registry);
void register_unary(OpRegistry& registry) {
  for_each_unary([&]<class F>(F) {
    registry.add({.name = F::kName,
                  .inputs = {{"x"}},
                  .outputs = {{"y"}},
                  .infer = infer_unary<F>,
                  .gradient = unary_gradient<F>,
                  .gradient_reads = reads_of_unary<F>()});
    if constexpr (F::kReads != UnaryReads::kNothing) {
      registry.add({.name = std::string(F::kName) + "_grad",
                    .inputs = {{F::kReads == UnaryReads::kInput ? "x" : "y"}, {"dy"}},
                    .outputs = {{"dx"}},
                    .infer = infer_unary_grad});
    }
  });
}

}  // namespace sinter::ops
