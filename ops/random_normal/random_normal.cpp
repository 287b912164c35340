#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/random_normal/random_normal.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_random_normal(const InferContext& context) {
  const auto& attributes = context.attributes<RandomNormalAttributes>();
  context.expect_dtype(0, DType::kInt64);
  context.expect_shape(0, Shape{2});
  SINTER_CHECK(is_float(attributes.dtype), "[{}] expected a floating-point dtype but got {}", context.tag(),
               attributes.dtype);
  return {{Shape(std::span(attributes.shape)), attributes.dtype, context.input(0).device}};
}

}  // namespace

Tensor random_normal(const Shape& shape, DType dtype, Device device, Generator& generator) {
  // A block of four words for each element.
  return update::random_normal_with_key(update::random_key(generator.next(4 * shape.numel()), device), shape,
                                        dtype);
}

Tensor update::random_normal_with_key(const Tensor& key, const Shape& shape, DType dtype) {
  static const Op& op = builtin("random_normal");
  return call_single(op, {key}, RandomNormalAttributes{{shape.begin(), shape.end()}, dtype});
}

void register_random_normal(OpRegistry& registry);
void register_random_normal(OpRegistry& registry) {
  registry.add({.name = "random_normal",
                .inputs = {{"key"}},
                .outputs = {{"draws", false}},
                .infer = infer_random_normal});
}

}  // namespace sinter::ops
