#include <sinter/ops/common/op_support.h>
#include <sinter/ops/loss_scale/loss_scale.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_loss_scale(const InferContext& context) {
  const auto& options = context.attributes<LossScaleOptions>();
  SINTER_CHECK(options.max_norm >= 0, "[loss_scale] expected max_norm >= 0 but got {}", options.max_norm);
  SINTER_CHECK(options.growth >= 1, "[loss_scale] expected growth >= 1 but got {}", options.growth);
  SINTER_CHECK(options.backoff > 0 && options.backoff <= 1,
               "[loss_scale] expected backoff in (0, 1] but got {}", options.backoff);
  SINTER_CHECK(options.growth_interval > 0, "[loss_scale] expected growth_interval > 0 but got {}",
               options.growth_interval);
  SINTER_CHECK(options.min_scale > 0, "[loss_scale] expected min_scale > 0 but got {}", options.min_scale);
  context.expect_dtype(0, DType::kFloat64);
  context.expect_shape(0, {});
  SINTER_CHECK(context.has(1) == context.has(2), "[loss_scale] expected both scale and counts, or neither");
  if (context.has(1)) {
    context.expect_dtype(1, DType::kFloat32);
    context.expect_shape(1, {});
    context.expect_dtype(2, DType::kInt64);
    context.expect_shape(2, {3});
  }
  return {{Shape{}, DType::kFloat32, context.input(0).device}};
}

const Op& loss_scale_op() {
  static const Op& op = builtin("loss_scale");
  return op;
}

}  // namespace

Tensor update::loss_scale(const Tensor& norm, const LossScaleState& state, const LossScaleOptions& options) {
  return call_single(loss_scale_op(), {norm, state.scale, state.counts}, options);
}

Tensor update::clip_factor(const Tensor& norm, double max_norm) {
  SINTER_CHECK(max_norm > 0, "[clip_factor] expected max_norm > 0 but got {}", max_norm);
  return call_single(loss_scale_op(), {norm, Tensor(), Tensor()}, LossScaleOptions{.max_norm = max_norm});
}

void register_loss_scale(OpRegistry& registry);
void register_loss_scale(OpRegistry& registry) {
  registry.add({.name = "loss_scale",
                .inputs = {{"norm"},
                           {.name = "scale", .optional = true, .mutated = true},
                           {.name = "counts", .optional = true, .mutated = true}},
                .outputs = {{.name = "factor", .differentiable = false}},
                .infer = infer_loss_scale});
}

}  // namespace sinter::ops
