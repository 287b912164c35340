#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::ops {
namespace {

/// Mostly small, sometimes beyond one block of the kernels, now and then empty.
int64_t extent(SampleMaker& maker) {
  return maker.chance(0.04) ? 0 : maker.integer(1, maker.chance(0.1) ? 70 : 7);
}

OpSample make_matmul(SampleMaker& maker) {
  const MatmulOptions options{maker.chance(0.5), maker.chance(0.5)};
  const int64_t m = extent(maker), n = extent(maker), k = extent(maker);
  std::vector<int64_t> a, b;
  // Batch axes of each side: the full extent or 1, of different number.
  const int axes = static_cast<int>(maker.integer(0, 2));
  for (int axis = 0; axis < axes; ++axis) {
    const int64_t batch = maker.integer(1, 4);
    if (axis > 0 || maker.chance(0.7)) a.push_back(maker.chance(0.3) ? 1 : batch);
    if (axis > 0 || maker.chance(0.7)) b.push_back(maker.chance(0.3) ? 1 : batch);
  }
  if (maker.chance(0.2)) b.clear();
  a.insert(a.end(), {options.transpose_a ? k : m, options.transpose_a ? m : k});
  b.insert(b.end(), {options.transpose_b ? n : k, options.transpose_b ? k : n});
  return {{maker.tensor(Shape(a)), maker.tensor(Shape(b))}, options};
}

/// Row-major strides of the batch axes of `shape` for a batch of `rank` axes; 0 where it broadcasts.
std::vector<int64_t> batch_strides(const Shape& shape, int rank) {
  std::vector<int64_t> strides(static_cast<size_t>(rank), 0);
  for (int axis = 3; axis <= shape.rank(); ++axis) {
    if (shape[-axis] != 1) strides[static_cast<size_t>(rank - axis + 2)] = shape.stride(shape.rank() - axis);
  }
  return strides;
}

std::vector<ReferenceTensor> matmul_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<MatmulOptions>();
  const ReferenceTensor a = reference_of(sample.inputs[0]), b = reference_of(sample.inputs[1]);
  const int64_t rows_a = a.shape[-2], columns_a = a.shape[-1], columns_b = b.shape[-1];
  const int64_t m = options.transpose_a ? columns_a : rows_a, k = options.transpose_a ? rows_a : columns_a;
  const int64_t n = options.transpose_b ? b.shape[-2] : columns_b;
  const Shape batch = broadcast_shapes(batch_shape(a.shape, 2), batch_shape(b.shape, 2), "reference");
  const std::vector<int64_t> a_strides = batch_strides(a.shape, batch.rank());
  const std::vector<int64_t> b_strides = batch_strides(b.shape, batch.rank());
  ReferenceTensor y(batch.inserted(batch.rank(), m).inserted(batch.rank() + 1, n));
  for (int64_t matrix = 0; matrix < batch.numel(); ++matrix) {
    int64_t a_first = 0, b_first = 0, rest = matrix;
    for (int axis = batch.rank() - 1; axis >= 0; --axis) {
      a_first += rest % batch[axis] * a_strides[static_cast<size_t>(axis)];
      b_first += rest % batch[axis] * b_strides[static_cast<size_t>(axis)];
      rest /= batch[axis];
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += a[a_first + (options.transpose_a ? l * columns_a + i : i * columns_a + l)] *
                 b[b_first + (options.transpose_b ? j * columns_b + l : l * columns_b + j)];
        }
        y[(matrix * m + i) * n + j] = sum;
      }
    }
  }
  return {y};
}

Shape leading_axes(SampleMaker& maker, int64_t last) {
  Shape shape = maker.shape(static_cast<int>(maker.integer(0, 2)), 6);
  return shape.inserted(shape.rank(), last);
}

OpSample make_linear(SampleMaker& maker) {
  const int64_t in = extent(maker), out = extent(maker);
  const Tensor bias = maker.chance(0.5) ? maker.tensor({out}) : Tensor();
  return {{maker.tensor(leading_axes(maker, in)), maker.tensor({out, in}), bias}, {}};
}

std::vector<ReferenceTensor> linear_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]), weight = reference_of(sample.inputs[1]);
  const int64_t out = weight.shape[0], in = weight.shape[1];
  ReferenceTensor y(x.shape.with(x.shape.rank() - 1, out));
  const ReferenceTensor bias =
      sample.inputs[2].defined() ? reference_of(sample.inputs[2]) : ReferenceTensor({out});
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    const int64_t row = i / out, o = i % out;
    y[i] = bias[o];
    for (int64_t l = 0; l < in; ++l) y[i] += x[row * in + l] * weight[o * in + l];
  }
  return {y};
}

OpSample make_linear_grad_weight(SampleMaker& maker) {
  const Shape dy = leading_axes(maker, extent(maker));
  return {{maker.tensor(dy), maker.tensor(dy.with(dy.rank() - 1, extent(maker)))}, {}};
}

std::vector<ReferenceTensor> linear_grad_weight_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]), x = reference_of(sample.inputs[1]);
  const int64_t out = dy.shape[-1], in = x.shape[-1], rows = dy.shape.count(0, dy.shape.rank() - 1);
  ReferenceTensor dweight({out, in});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) dweight[o * in + i] += dy[row * out + o] * x[row * in + i];
    }
  }
  return {dweight};
}

OpSample make_linear_grad_weight_bias(SampleMaker& maker) {
  const Shape rows = maker.shape(static_cast<int>(maker.integer(1, 2)), 6);
  return {{maker.tensor(rows.inserted(rows.rank(), extent(maker))),
           maker.tensor(rows.inserted(rows.rank(), extent(maker)))},
          {}};
}

std::vector<ReferenceTensor> linear_grad_weight_bias_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  ReferenceTensor dbias({dy.shape[-1]});
  for (int64_t i = 0; i < dy.shape.numel(); ++i) dbias[i % dy.shape[-1]] += dy[i];
  return {linear_grad_weight_reference(sample)[0], dbias};
}

}  // namespace

void register_matmul_samples(SampleRegistry& registry);
void register_matmul_samples(SampleRegistry& registry) {
  registry.add({.op = "matmul",
                .make = make_matmul,
                .reference = matmul_reference,
                .term_size = product_terms<matmul_reference>});
  registry.add({.op = "linear",
                .make = make_linear,
                .reference = linear_reference,
                .term_size = product_terms<linear_reference>});
  registry.add({.op = "linear_grad_weight",
                .make = make_linear_grad_weight,
                .reference = linear_grad_weight_reference,
                .term_size = product_terms<linear_grad_weight_reference>});
  registry.add({.op = "linear_grad_weight_bias",
                .make = make_linear_grad_weight_bias,
                .reference = linear_grad_weight_bias_reference,
                .term_size = product_terms<linear_grad_weight_bias_reference>});
}

}  // namespace sinter::ops
