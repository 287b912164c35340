#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/embedding/embedding.h>

namespace sinter::ops {
namespace {

OpSample make_embedding(SampleMaker& maker) {
  const Shape table = {maker.integer(1, 9), maker.shape(1, 80)[0]};
  const Shape indices = maker.shape(static_cast<int>(maker.integer(0, 3)), 5);
  return {{maker.tensor(table), maker.indices(indices, 0, table[0] - 1)}, {}};
}

std::vector<ReferenceTensor> embedding_reference(const OpSample& sample) {
  const ReferenceTensor weight = reference_of(sample.inputs[0]);
  const ReferenceTensor indices = reference_of(sample.inputs[1]);
  const int64_t columns = weight.shape[1];
  ReferenceTensor y(indices.shape.inserted(indices.shape.rank(), columns));
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    y[i] = weight[static_cast<int64_t>(indices[i / columns]) * columns + i % columns];
  }
  return {y};
}

OpSample make_take_rows(SampleMaker& maker) {
  const Shape table = {maker.integer(1, 9), maker.shape(1, 80)[0]};
  const Tensor indices = maker.indices(maker.shape(1, 12), 0, table[0] - 1);
  return {{maker.tensor({indices.size(0), table[1]}), maker.tensor(table), indices}, {}};
}

std::vector<ReferenceTensor> take_rows_reference(const OpSample& sample) {
  return embedding_reference({{sample.inputs[1], sample.inputs[2]}, {}});
}

OpSample make_embedding_grad(SampleMaker& maker) {
  const int64_t rows = maker.integer(1, 9);
  const Shape indices = maker.shape(static_cast<int>(maker.integer(0, 3)), 5);
  const Shape dy = indices.inserted(indices.rank(), maker.shape(1, 80)[0]);
  return {{maker.tensor(dy), maker.indices(indices, 0, rows - 1)}, EmbeddingGradAttributes{rows}};
}

std::vector<ReferenceTensor> embedding_grad_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  const ReferenceTensor indices = reference_of(sample.inputs[1]);
  const int64_t columns = dy.shape[-1];
  ReferenceTensor dweight(Shape{sample.attributes.as<EmbeddingGradAttributes>().rows, columns});
  for (int64_t i = 0; i < dy.shape.numel(); ++i) {
    dweight[static_cast<int64_t>(indices[i / columns]) * columns + i % columns] += dy[i];
  }
  return {dweight};
}

}  // namespace

void register_embedding_samples(SampleRegistry& registry);
void register_embedding_samples(SampleRegistry& registry) {
  registry.add({.op = "embedding", .make = make_embedding, .reference = embedding_reference});
  registry.add({.op = "take_rows_",
                .make = make_take_rows,
                .reference = take_rows_reference,
                .check_gradient = false});
  registry.add({.op = "embedding_grad",
                .make = make_embedding_grad,
                .reference = embedding_grad_reference,
                .term_size = product_terms<embedding_grad_reference>});
}

}  // namespace sinter::ops
