#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/random_normal/random_normal.h>

namespace sinter::ops {
namespace {

OpSample make_random_normal(SampleMaker& maker) {
  const std::vector<int64_t> key{maker.integer(-1000000, 1000000), maker.integer(0, 1000000)};
  const Shape shape = maker.chance(0.1) ? Shape{maker.integer(900, 1200)}
                                        : maker.shape(static_cast<int>(maker.integer(0, 3)));
  return {{Tensor::from_values(key, Shape{2})},
          RandomNormalAttributes{{shape.begin(), shape.end()}, maker.dtype()}};
}

std::vector<ReferenceTensor> random_normal_reference(const OpSample& sample) {
  const std::vector<int64_t> key = sample.inputs[0].to_vector<int64_t>();
  ReferenceTensor draws{Shape(std::span(sample.attributes.as<RandomNormalAttributes>().shape))};
  Generator generator(RandomKey{static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1])});
  for (double& draw : draws.values) draw = generator.normal();
  return {draws};
}

}  // namespace

void register_random_normal_samples(SampleRegistry& registry);
void register_random_normal_samples(SampleRegistry& registry) {
  registry.add({.op = "random_normal",
                .make = make_random_normal,
                .reference = random_normal_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
