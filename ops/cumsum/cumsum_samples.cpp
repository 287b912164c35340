#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>
#include <sinter/ops/cumsum/cumsum.h>

namespace sinter::ops {
namespace {

OpSample make_cumsum(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(1, 4));
  Shape shape = maker.shape(rank, 6);
  const int axis = static_cast<int>(maker.integer(0, rank - 1));
  if (maker.chance(0.2)) shape = shape.with(axis, maker.integer(10, 300));
  return {{maker.tensor(shape)}, CumsumAttributes{maker.chance(0.3) ? axis - rank : axis, maker.chance(0.3)}};
}

std::vector<ReferenceTensor> cumsum_reference(const OpSample& sample) {
  const auto& [axis, reverse] = sample.attributes.as<CumsumAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const auto which = static_cast<size_t>(axis < 0 ? axis + x.shape.rank() : axis);
  ReferenceTensor y(x.shape);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    std::vector<int64_t> index = unravel(x.shape, i);
    const int64_t last = index[which];
    for (int64_t at = 0; at < x.shape[static_cast<int>(which)]; ++at) {
      if (reverse ? at < last : at > last) continue;
      index[which] = at;
      y[i] += x[ravel(x.shape, index)];
    }
  }
  return {y};
}

}  // namespace

void register_cumsum_samples(SampleRegistry& registry);
void register_cumsum_samples(SampleRegistry& registry) {
  registry.add({.op = "cumsum",
                .make = make_cumsum,
                .reference = cumsum_reference,
                .term_size = product_terms<cumsum_reference>});
}

}  // namespace sinter::ops
