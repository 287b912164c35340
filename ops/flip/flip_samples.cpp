#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>
#include <sinter/ops/flip/flip.h>

namespace sinter::ops {
namespace {

OpSample make_flip(SampleMaker& maker) {
  const int rank = static_cast<int>(maker.integer(1, 5));
  Shape shape = maker.shape(rank, rank > 3 ? 4 : 9);
  if (maker.chance(0.2)) shape = shape.with(rank - 1, maker.integer(40, 90));  // pieces of several packs
  FlipAttributes flip;
  for (int axis = 0; axis < rank; ++axis) {
    if (maker.chance(0.5)) flip.axes.push_back(maker.chance(0.3) ? axis - rank : axis);
  }
  if (flip.axes.empty()) flip.axes.push_back(maker.integer(0, rank - 1));
  return {{maker.tensor(shape)}, flip};
}

std::vector<ReferenceTensor> flip_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y(x.shape);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    std::vector<int64_t> index = unravel(x.shape, i);
    for (const int64_t axis : sample.attributes.as<FlipAttributes>().axes) {
      const int which = static_cast<int>(axis < 0 ? axis + x.shape.rank() : axis);
      int64_t& at = index[static_cast<size_t>(which)];
      at = x.shape[which] - 1 - at;
    }
    y[i] = x[ravel(x.shape, index)];
  }
  return {y};
}

}  // namespace

void register_flip_samples(SampleRegistry& registry);
void register_flip_samples(SampleRegistry& registry) {
  registry.add({.op = "flip", .make = make_flip, .reference = flip_reference});
}

}  // namespace sinter::ops
