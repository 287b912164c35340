#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/random_key/random_key.h>

namespace sinter::ops {
namespace {

// Small enough for a double to hold the sums.
constexpr int64_t kMost = int64_t{1} << 51;

OpSample make_random_key(SampleMaker& maker) {
  const auto word = [&maker] { return maker.integer(0, kMost); };
  const RandomKeyAttributes attributes{.seed = static_cast<uint64_t>(word()),
                                       .offset = static_cast<uint64_t>(word())};
  if (maker.chance(0.5)) return {{Tensor()}, attributes};
  return {{Tensor::from_values(std::vector<int64_t>{word(), word()}, Shape{2})}, attributes};
}

std::vector<ReferenceTensor> random_key_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<RandomKeyAttributes>();
  ReferenceTensor key{Shape{2}};
  key[0] = static_cast<double>(attributes.seed);
  key[1] = static_cast<double>(attributes.offset);
  if (!sample.inputs[0].defined()) return {key};
  const ReferenceTensor base = reference_of(sample.inputs[0]);
  return {[&] {
    for (int64_t i = 0; i < 2; ++i) key[i] += base[i];
    return key;
  }()};
}

}  // namespace

void register_random_key_samples(SampleRegistry& registry);
void register_random_key_samples(SampleRegistry& registry) {
  registry.add({.op = "random_key",
                .make = make_random_key,
                .reference = random_key_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
