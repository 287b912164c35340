#include <sinter/ops/advance_steps/advance_steps.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_advance_steps(const InferContext& context) {
  context.expect_rank(0, 1);
  context.expect_dtype(0, DType::kInt64);
  if (context.has(1)) {
    context.expect_shape(1, context.shape(0));
    context.expect_dtype(1, DType::kBool);
  }
  if (context.has(2)) {
    context.expect_shape(2, {});
    context.expect_dtype(2, DType::kFloat32);
  }
  return {};
}

}  // namespace

void update::advance_steps(const Tensor& counts, const Tensor& mask, const Tensor& gradient_factor) {
  static const Op& op = builtin("advance_steps");
  call(op, {counts, mask, gradient_factor});
}

void register_advance_steps(OpRegistry& registry);
void register_advance_steps(OpRegistry& registry) {
  registry.add({.name = "advance_steps",
                .inputs = {{.name = "counts", .mutated = true},
                           {.name = "mask", .optional = true},
                           {.name = "gradient_factor", .optional = true}},
                .outputs = {},
                .infer = infer_advance_steps});
}

}  // namespace sinter::ops
