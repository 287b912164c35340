#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>

namespace sinter::ops {
namespace {

/// `full` without some of its leading axes, and with extent 1 along others.
Shape thinned(SampleMaker& maker, Shape full) {
  if (maker.chance(0.4)) return full;
  for (int64_t drop = maker.chance(0.4) ? maker.integer(0, full.rank()) : 0; drop > 0; --drop)
    full = full.without(0);
  for (int axis = 0; axis < full.rank(); ++axis) {
    if (maker.chance(0.4)) full = full.with(axis, 1);
  }
  return full;
}

OpSample make_where(SampleMaker& maker) {
  const Shape full = maker.chance(0.1) ? Shape{maker.integer(1, 4), maker.integer(600, 1400)}
                                       : maker.shape(static_cast<int>(maker.integer(0, 4)), 7);
  const Shape condition = thinned(maker, full), a = thinned(maker, full), b = thinned(maker, full);
  return {{cast(maker.indices(condition, 0, 1), DType::kBool), maker.tensor(a), maker.tensor(b)}, {}};
}

std::vector<ReferenceTensor> where_reference(const OpSample& sample) {
  const ReferenceTensor condition = reference_of(sample.inputs[0]), a = reference_of(sample.inputs[1]),
                        b = reference_of(sample.inputs[2]);
  ReferenceTensor y(
      broadcast_shapes(condition.shape, broadcast_shapes(a.shape, b.shape, "reference"), "reference"));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] = condition[broadcast_index(y.shape, condition.shape, i)] != 0
               ? a[broadcast_index(y.shape, a.shape, i)]
               : b[broadcast_index(y.shape, b.shape, i)];
  }
  return {y};
}

}  // namespace

void register_where_samples(SampleRegistry& registry);
void register_where_samples(SampleRegistry& registry) {
  registry.add({.op = "where", .make = make_where, .reference = where_reference});
}

}  // namespace sinter::ops
