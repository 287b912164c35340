#include <sinter/ops/common/op_support.h>
#include <sinter/ops/put_rows/put_rows.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_put_rows(const InferContext& context) {
  context.expect_rank(0, 2);
  context.expect_rank(1, 1);
  context.expect_dtype(1, DType::kInt64);
  context.expect_same_dtype(2, 0);
  context.expect_shape(2, {context.shape(1)[0], context.shape(0)[1]});
  return {};
}

}  // namespace

void put_rows_(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  static const Op& op = builtin("put_rows_");
  call(op, {target, indices, rows});
}

void register_put_rows(OpRegistry& registry);
void register_put_rows(OpRegistry& registry) {
  registry.add({.name = "put_rows_",
                .inputs = {{.name = "target", .mutated = true}, {"indices"}, {"rows"}},
                .infer = infer_put_rows});
}

}  // namespace sinter::ops
