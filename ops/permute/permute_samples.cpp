#include <numeric>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/permute/permute.h>

namespace sinter::ops {
namespace {

OpSample make_permute(SampleMaker& maker) {
  // Now and then a matrix large enough for whole blocks and their edges, else many small axes.
  const bool large = maker.chance(0.25);
  const int rank = static_cast<int>(large ? maker.integer(2, 3) : maker.integer(0, 6));
  const Shape shape = large ? maker.shape(rank, rank == 2 ? 150 : 40) : maker.shape(rank, rank > 4 ? 4 : 7);
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  for (size_t i = axes.size(); i > 1; --i) std::swap(axes[i - 1], axes[maker.generator().below(i)]);
  for (int64_t& axis : axes) axis -= maker.chance(0.2) ? rank : 0;
  return {{maker.tensor(shape)}, PermuteAttributes{axes}};
}

std::vector<ReferenceTensor> permute_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  std::vector<int64_t> axes = sample.attributes.as<PermuteAttributes>().axes;
  std::vector<int64_t> extents, strides;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += x.shape.rank();
    extents.push_back(x.shape[static_cast<int>(axis)]);
    strides.push_back(x.shape.stride(static_cast<int>(axis)));
  }
  ReferenceTensor y{Shape(extents)};
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    int64_t rest = i, from = 0;
    for (size_t axis = axes.size(); axis-- > 0;) {
      from += rest % extents[axis] * strides[axis];
      rest /= extents[axis];
    }
    y[i] = x[from];
  }
  return {y};
}

}  // namespace

void register_permute_samples(SampleRegistry& registry);
void register_permute_samples(SampleRegistry& registry) {
  registry.add({.op = "permute", .make = make_permute, .reference = permute_reference});
}

}  // namespace sinter::ops
