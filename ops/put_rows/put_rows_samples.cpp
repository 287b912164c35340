#include <numeric>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/put_rows/put_rows.h>

namespace sinter::ops {
namespace {

/// Some of the numbers below `limit`, each at most once, in any order.
Tensor distinct_indices(SampleMaker& maker, int64_t limit) {
  std::vector<int64_t> all(static_cast<size_t>(limit));
  std::iota(all.begin(), all.end(), int64_t{0});
  for (int64_t i = limit - 1; i > 0; --i) {
    std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(maker.integer(0, i))]);
  }
  all.resize(static_cast<size_t>(maker.integer(0, limit)));
  return Tensor::from_values(all, {static_cast<int64_t>(all.size())});
}

OpSample make_put_rows(SampleMaker& maker) {
  const Shape table = {maker.integer(1, 40), maker.shape(1, 80)[0]};
  const Tensor indices = distinct_indices(maker, table[0]);
  return {{maker.tensor(table), indices, maker.tensor({indices.size(0), table[1]})}, {}};
}

std::vector<ReferenceTensor> put_rows_reference(const OpSample& sample) {
  ReferenceTensor target = reference_of(sample.inputs[0]);
  const ReferenceTensor indices = reference_of(sample.inputs[1]), rows = reference_of(sample.inputs[2]);
  const int64_t columns = target.shape[1];
  for (int64_t i = 0; i < rows.shape.numel(); ++i) {
    target[static_cast<int64_t>(indices[i / columns]) * columns + i % columns] = rows[i];
  }
  return {target};
}

}  // namespace

void register_put_rows_samples(SampleRegistry& registry);
void register_put_rows_samples(SampleRegistry& registry) {
  registry.add(
      {.op = "put_rows_", .make = make_put_rows, .reference = put_rows_reference, .check_gradient = false});
}

}  // namespace sinter::ops
