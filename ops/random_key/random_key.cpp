#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_key/random_key.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_random_key(const InferContext& context) {
  const Shape words{2};
  if (!context.has(0)) return {{words, DType::kInt64, context.attributes<RandomKeyAttributes>().device}};
  context.expect_dtype(0, DType::kInt64);
  context.expect_shape(0, words);
  return {context.input(0)};
}

}  // namespace

Tensor update::random_key(RandomKey key, Device device) {
  static const Op& op = builtin("random_key");
  return call_single(op, {Tensor()},
                     RandomKeyAttributes{.seed = key.seed, .offset = key.offset, .device = device});
}

Tensor update::random_key_behind(const Tensor& base, uint64_t offset) {
  static const Op& op = builtin("random_key");
  return call_single(op, {base}, RandomKeyAttributes{.offset = offset, .device = base.device()});
}

void register_random_key(OpRegistry& registry);
void register_random_key(OpRegistry& registry) {
  registry.add({.name = "random_key",
                .inputs = {{.name = "base", .optional = true}},
                .outputs = {{"key", false}},
                .infer = infer_random_key,
                .traits = {.role = Role::kRandomKey}});
}

}  // namespace sinter::ops
