#include <sinter/ops/common/op_support.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/put_rows/put_rows.h>
#include <sinter/ops/reshape/reshape.h>

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

void index_copy_(const Tensor& target, int64_t axis, const Tensor& indices, const Tensor& source) {
  static const Op& op = builtin("put_rows_");
  const int which = normalize_axis(axis, target.rank(), "index_copy_");
  if (which != 0) {
    const Tensor turned = transpose(target.detach(), 0, which);
    index_copy_(turned, 0, indices, transpose(source, 0, which));
    copy_(target, transpose(turned, 0, which));
  } else if (target.rank() == 2) {
    call(op, {target, indices, source});
  } else {
    // Rows of any rank are rows of a table: views of the same memory.
    const Shape row = target.shape().without(0);
    SINTER_CHECK(source.rank() == target.rank() && source.shape().without(0) == row,
                 "[index_copy_] expected a source with parts of shape {} but got shape {}", row,
                 source.shape());
    call(op, {reshape(target, {target.size(0), row.numel()}), indices,
              reshape(source, {source.size(0), row.numel()})});
  }
}

void register_put_rows(OpRegistry& registry);
void register_put_rows(OpRegistry& registry) {
  registry.add({.name = "put_rows_",
                .inputs = {{.name = "target", .mutated = true}, {"indices"}, {"rows"}},
                .infer = infer_put_rows});
}

}  // namespace sinter::ops
