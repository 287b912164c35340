#include <cmath>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/metrics/metrics.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_count_ranks(const InferContext& context) {
  context.expect_rank(0, 1);
  context.expect_dtype(0, DType::kInt64);
  SINTER_CHECK(context.shape(0)[0] >= 1, "[count_ranks_] expected at least one count but got shape {}",
               context.shape(0));
  context.expect_rank(1, 2);
  context.expect_float(1);
  context.expect_dtype(2, DType::kInt64);
  context.expect_shape(2, {context.shape(1)[0]});
  return {};
}

std::vector<TensorSpec> infer_add_to_mean(const InferContext& context) {
  const double weight = context.attributes<AddToMeanAttributes>().weight;
  SINTER_CHECK(std::isfinite(weight) && weight >= 0,
               "[add_to_mean_] expected a finite weight >= 0 but got {}", weight);
  context.expect_dtype(0, DType::kFloat64);
  context.expect_shape(0, {kMeanTotals});
  context.expect_float(1);
  context.expect_shape(1, {});
  return {};
}

}  // namespace

void update::count_ranks_(const Tensor& counts, const Tensor& logits, const Tensor& target) {
  static const Op& op = builtin("count_ranks_");
  call(op, {counts, logits, target});
}

void update::add_to_mean_(const Tensor& totals, const Tensor& value, double weight) {
  static const Op& op = builtin("add_to_mean_");
  call(op, {totals, value}, AddToMeanAttributes{weight});
}

void register_metrics(OpRegistry& registry);
void register_metrics(OpRegistry& registry) {
  registry.add({.name = "count_ranks_",
                .inputs = {{.name = "counts", .mutated = true}, {"logits"}, {"target"}},
                .outputs = {},
                .infer = infer_count_ranks});
  registry.add({.name = "add_to_mean_",
                .inputs = {{.name = "totals", .mutated = true}, {"value"}},
                .outputs = {},
                .infer = infer_add_to_mean});
}

}  // namespace sinter::ops
