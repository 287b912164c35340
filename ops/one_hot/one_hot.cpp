#include <sinter/ops/common/op_support.h>
#include <sinter/ops/one_hot/one_hot.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_one_hot(const InferContext& context) {
  const auto& [classes, dtype] = context.attributes<OneHotAttributes>();
  context.expect_dtype(0, DType::kInt64);
  SINTER_CHECK(classes >= 1, "[one_hot] expected at least 1 class but got {}", classes);
  const TensorSpec& labels = context.input(0);
  return {{labels.shape.inserted(labels.shape.rank(), classes), dtype, labels.device}};
}

}  // namespace

Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype) {
  static const Op& op = builtin("one_hot");
  return call_single(op, {labels}, OneHotAttributes{classes, dtype});
}

void register_one_hot(OpRegistry& registry);
void register_one_hot(OpRegistry& registry) {
  registry.add(
      {.name = "one_hot", .inputs = {{"labels"}}, .outputs = {{"y", false}}, .infer = infer_one_hot});
}

}  // namespace sinter::ops
