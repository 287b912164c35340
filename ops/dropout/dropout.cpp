#include <sinter/ops/common/op_support.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/random_key/random_key.h>

namespace sinter::ops {
namespace {

void check_probability(double p) {
  SINTER_CHECK(p >= 0.0 && p < 1.0, "[dropout] expected p in [0, 1) but got {}", p);
}

std::vector<TensorSpec> infer_dropout(const InferContext& context) {
  context.expect_float(0);
  context.expect_dtype(1, DType::kInt64);
  context.expect_shape(1, Shape{2});
  check_probability(context.attributes<DropoutAttributes>().p);
  return {context.input(0)};
}

std::vector<Tensor> dropout_gradient(const GradientContext& context) {
  return {
      update::dropout_with_key(context.grad(), context.input(1), context.attributes<DropoutAttributes>().p),
      {}};
}

}  // namespace

Tensor dropout(const Tensor& x, double p, Generator& generator) {
  check_probability(p);
  if (p == 0.0) return x;
  return update::dropout_with_key(x, update::random_key(generator.next(x.numel()), x.device()), p);
}

Tensor update::dropout_with_key(const Tensor& x, const Tensor& key, double p) {
  static const Op& op = builtin("dropout");
  return call_single(op, {x, key}, DropoutAttributes{p});
}

void register_dropout(OpRegistry& registry);
void register_dropout(OpRegistry& registry) {
  // Its layout is fixed: which elements are dropped goes by their places in memory.
  registry.add({.name = "dropout",
                .inputs = {{"x"}, {"key"}},
                .outputs = {{"y"}},
                .infer = infer_dropout,
                .gradient = dropout_gradient,
                .gradient_reads = {.inputs = reads_of({1})},
                .traits = {.elementwise = true, .precision = Precision::kFollow}});
}

}  // namespace sinter::ops
