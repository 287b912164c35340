#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/dropout/dropout.h>

namespace sinter::ops {
namespace {

OpSample make_dropout(SampleMaker& maker) {
  const std::vector<int64_t> key{maker.integer(-1000000, 1000000), maker.integer(0, 1000000)};
  const double p = maker.chance(0.1) ? 0.0 : maker.uniform(0.05, 0.9);
  return {
      {maker.tensor(maker.shape(static_cast<int>(maker.integer(0, 3)))), Tensor::from_values(key, Shape{2})},
      DropoutAttributes{p}};
}

std::vector<ReferenceTensor> dropout_reference(const OpSample& sample) {
  const double p = sample.attributes.as<DropoutAttributes>().p;
  const std::vector<int64_t> key = sample.inputs[1].to_vector<int64_t>();
  ReferenceTensor y = reference_of(sample.inputs[0]);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const PhiloxBlock block = philox(static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1] + i / 4));
    const bool kept = uniform_from_word(block.words[i % 4]) >= static_cast<float>(p);
    y[i] = kept ? y[i] / (1.0 - p) : 0.0;
  }
  return {y};
}

}  // namespace

void register_dropout_samples(SampleRegistry& registry);
void register_dropout_samples(SampleRegistry& registry) {
  registry.add({.op = "dropout", .make = make_dropout, .reference = dropout_reference});
}

}  // namespace sinter::ops
