#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {
namespace {

OpSample make_reshape(SampleMaker& maker) {
  // Factors in a row, grouped in two ways: both shapes have the same number of elements.
  const Shape factors = maker.shape(static_cast<int>(maker.integer(0, 5)), 4);
  const auto grouped = [&] {
    std::vector<int64_t> extents;
    for (int64_t factor : factors) {
      if (!extents.empty() && maker.chance(0.5)) {
        extents.back() *= factor;
      } else {
        extents.push_back(factor);
      }
    }
    return extents;
  };
  const std::vector<int64_t> from = grouped();
  std::vector<int64_t> to = grouped();
  if (factors.numel() > 0 && !to.empty() && maker.chance(0.5)) to[maker.generator().below(to.size())] = -1;
  return {{maker.tensor(Shape(from))}, ReshapeAttributes{to}};
}

std::vector<ReferenceTensor> reshape_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  std::vector<int64_t> extents = sample.attributes.as<ReshapeAttributes>().extents;
  int64_t known = 1;
  for (int64_t extent : extents) known *= extent == -1 ? 1 : extent;
  for (int64_t& extent : extents) extent = extent == -1 ? x.shape.numel() / known : extent;
  ReferenceTensor y{Shape(extents)};
  y.values = x.values;
  return {y};
}

}  // namespace

void register_reshape_samples(SampleRegistry& registry);
void register_reshape_samples(SampleRegistry& registry) {
  registry.add({.op = "reshape", .make = make_reshape, .reference = reshape_reference});
}

}  // namespace sinter::ops
