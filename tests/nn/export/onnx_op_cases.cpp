// Cases of all ops that are not of images, and what cases share.
#include <cmath>
#include <limits>

#include <sinter/nn/layers/simple.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/cumsum/cumsum.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/flip/flip.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/topk/topk.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/upsample/pixel_shuffle.h>
#include <sinter/ops/where/where.h>

#include "nn/export/onnx_cases.h"
#include "nn/nn_test_support.h"

namespace sinter::nn::testing {

using Tensors = std::span<const Tensor>;
using Results = std::vector<Tensor>;
constexpr int64_t kN = OnnxCase::kBatch;

std::vector<TensorSpec> OnnxCase::specs(CaseNumbers numbers, int64_t batch) const {
  std::vector<TensorSpec> result = inputs;
  for (TensorSpec& spec : result) {
    if (spec.shape.rank() > 0 && spec.shape[0] == kBatch) spec.shape = spec.shape.with(0, batch);
    if (numbers == CaseNumbers::kHalf && is_float(spec.dtype)) spec.dtype = DType::kFloat16;
  }
  return result;
}

Tensor case_values(const Shape& shape, double low, double high, int64_t seed) {
  std::vector<float> values;
  for (const double value : pattern_values(shape.numel(), seed)) {
    values.push_back(static_cast<float>(low + (value + 0.5) * (high - low)));
  }
  return Tensor::from_values(values, shape);
}

Tensor CaseWeights::operator()(const Shape& shape, double low, double high) {
  const Tensor values = wide(shape, low, high);
  if (numbers_ == CaseNumbers::kFloat) return values;
  const Tensor half = ops::cast(values, DType::kFloat16);
  return numbers_ == CaseNumbers::kHalf ? half : ops::cast(half, DType::kFloat32);
}

Tensor CaseWeights::wide(const Shape& shape, double low, double high) {
  return case_values(shape, low, high, ++seed_);
}

OnnxCase function_case(std::string name, std::vector<TensorSpec> inputs, CaseFunction function) {
  const auto make = [function = std::move(function)](CaseNumbers numbers) {
    return CaseModel{std::make_shared<Identity>(), [function, numbers](Tensors x) {
                       CaseWeights weights(numbers);
                       return function(x, weights);
                     }};
  };
  return {std::move(name), std::move(inputs), make};
}

namespace {

Results unary(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];
  const Tensor positive = ops::abs(x) + 0.25;
  return {ops::relu(x),
          ops::sigmoid(x),
          ops::silu(x),
          ops::gelu(x),
          ops::hardsigmoid(x * 2.0),
          ops::hardswish(x * 2.0),
          ops::softplus(x),
          ops::softplus(x, 2.5),
          ops::leaky_relu(x, 0.2),
          ops::relu6(x * 5.0),
          ops::elu(x, 1.5),
          ops::mish(x * 2.0),
          ops::sign(ops::relu(x) - 0.5),
          ops::neg(x),
          ops::square(x),
          ops::exp(x),
          ops::log(positive),
          ops::sqrt(positive),
          ops::rsqrt(positive),
          ops::reciprocal(positive),
          ops::sin(x),
          ops::cos(x),
          ops::tanh(x),
          ops::erf(x),
          ops::pow(positive, 1.75),
          ops::pow(x, 2.0),
          ops::pow(x, 3.0),
          ops::clip(x, -0.5, 0.75),
          ops::clip(x, -std::numeric_limits<double>::infinity(), 0.25),
          ops::clip(x, 0.25, std::numeric_limits<double>::infinity()),
          ops::affine(x, 2.0, -1.0),
          ops::affine(x, 1.0, 0.5),
          ops::affine(x, 1.0, 0.0),
          ops::copy(x)};
}

Results binary(Tensors in, CaseWeights& weights) {
  const Tensor &a = in[0], &b = in[1];
  const Tensor row = weights({4}), column = weights({3, 1});
  const Tensor half_zero = ops::relu(a);
  return {a + b,
          a - row,
          column * a,
          ops::div(a, ops::abs(b) + 0.5),
          ops::maximum(a, b),
          ops::minimum(a, row),
          ops::mul_no_nan(half_zero, b),
          ops::equal(half_zero, ops::relu(b)),
          ops::not_equal(half_zero, ops::relu(b)),
          ops::less_equal(half_zero, ops::relu(b)),
          ops::greater_equal(half_zero, row),
          ops::logical_and(half_zero, ops::relu(b)),
          ops::logical_or(half_zero, ops::less(a, b).to(a.dtype())),
          ops::logical_xor(ops::less(a, b), ops::greater(a, row)),
          ops::where(ops::less(a, row), column, b),
          ops::less(a, b),
          ops::greater(a, row),
          ops::less(ops::less(a, b), ops::greater(a, row)),
          ops::greater(ops::less(a, b), ops::greater(a, row)),
          ops::equal(ops::less(a, b), ops::greater(a, row))};
}

Results whole_numbers(Tensors in, CaseWeights&) {
  const Tensor& i = in[0];
  const Tensor small = ops::cast(i, DType::kInt32);
  return {i * 3.0 - 2.0,
          ops::neg(i),
          ops::abs(ops::affine(i, 1.0, -2.0)),
          ops::square(small),
          ops::clip(i, 0.5, 2.5),
          ops::clip(small, -1e30, 1.0),
          ops::maximum(i, ops::affine(i, -1.0, 3.0)),
          ops::add(small, small),
          ops::equal(i, ops::square(i)),
          ops::sum(i, {1}),
          ops::sum(small, {1}, {.keep_dims = true}),
          ops::sum(ops::equal(i, ops::square(i)), {1}),
          ops::max(i, {1}),
          ops::min(small, {1}),
          ops::max(ops::less(i, ops::square(i)), {1}),
          ops::min(ops::equal(i, ops::square(i)), {1})};
}

/// What ONNX or its runtime takes of other dtypes only.
Results bools_and_bytes(Tensors in, CaseWeights&) {
  const Tensor& i = in[0];
  const Tensor byte = ops::cast(i, DType::kUInt8), truth = i > 1.0, other = i < 3.0;
  const auto [values, places] = ops::topk(truth, 2);
  const Tensor label = ops::max(i);
  return {ops::argmax(truth, 1),
          ops::argmin(truth, 1),
          values,
          places,
          ops::topk(other, 1).indices,
          ops::where(ops::equal(truth, other), truth, other),
          ops::where(truth, i, ops::neg(i)),
          ops::neg(byte),
          byte - 3.0,
          3.0 - byte,
          byte * -200.0 + 1000.0,
          ops::cast(i, DType::kInt32) * 4294967299.0 - 4294967294.0,
          ops::argmin(byte, 1),
          ops::one_hot(label, 4, DType::kFloat32),
          ops::one_hot(label, 5, DType::kBool)};
}

Results casts(Tensors in, CaseWeights&) {
  const Tensor &x = in[0], &i = in[1];
  return {ops::cast(x, DType::kInt64),
          ops::cast(x, DType::kInt32),
          ops::cast(ops::relu(x) * 8.0, DType::kUInt8),
          ops::cast(ops::relu(x), DType::kBool),
          ops::cast(i, x.dtype()),
          ops::cast(i, DType::kBool),
          ops::cast(ops::greater(x, ops::neg(x)), x.dtype())};
}

Results reductions(Tensors in, CaseWeights&) {
  const Tensor& x = in[0];
  return {ops::sum(x, {1}),
          ops::sum(x, {-1, 1}, {.keep_dims = true}),
          ops::sum(x),
          ops::cumsum(x, 1),
          ops::cumsum(x, -1),
          ops::prod(x, {1, 3}),
          ops::mean(x, {2, 3}),
          ops::mean(x, {0}, {.keep_dims = true}),
          ops::max(x, {1}),
          ops::max(x, {2, 3}, {.keep_dims = true}),
          ops::min(x),
          ops::sum_to(x, {3, 1, 5}),
          ops::sum_to(x, {1, 3, 4, 1}),
          ops::softmax(x),
          ops::softmax(x, 1),
          ops::log_softmax(x, -2),
          ops::l2_normalize(x),
          ops::l2_normalize(x, 1, 0.75)};
}

Results products(Tensors in, CaseWeights& weights) {
  const Tensor &x = in[0], &y = in[1];  // (N, 6), (N, 3, 6)
  const Tensor vector = weights({6}), w = weights({4, 6}), bias = weights({4});
  return {ops::matmul(x, weights({6, 2})),
          ops::matmul(x, w, {.transpose_b = true}),
          ops::matmul(x, x, {.transpose_a = true}),
          ops::matmul(x, x, {.transpose_b = true}),
          ops::matmul(y, weights({6, 2})),
          ops::matmul(y, y, {.transpose_b = true}),
          ops::matmul(y, y, {.transpose_a = true}),
          ops::matmul(weights({2, 1, 5, 3}), y),
          ops::linear(x, w, bias),
          ops::linear(x, w),
          ops::linear(y, w, bias),
          ops::linear(y, w),
          ops::matvec(y, vector),
          ops::matvec(y, weights({3}), {.transpose_a = true}),
          ops::matvec(y, x),
          ops::outer(x, weights({2})),
          ops::outer(x, x)};
}

Results shapes(Tensors in, CaseWeights& weights) {
  const Tensor& x = in[0];  // (N, 3, 4, 6)
  const int64_t batch = x.shape()[0];
  return {ops::flatten(x, 1),
          ops::reshape(x, {batch * 3, 24}),
          ops::reshape(x, {batch, 2, 6, 6}),
          ops::reshape(ops::matmul(ops::flatten(x, 1), ops::flatten(x, 1), {.transpose_b = true}),
                       {batch, 1, batch}),
          ops::unsqueeze(x, 0),
          ops::squeeze(ops::slice(x, 1, 1, 2), 1),
          ops::slice(x, 0, 0, batch),
          ops::slice(x, -1, 1, -2),
          ops::slice(x, 1, 1, 1),
          ops::reshape(ops::slice(x, 1, 1, 1), {batch, 6, 0, 2}),
          ops::permute(x, {2, 0, -1, 1}),
          ops::permute(x, {0, 2, 3, 1}),
          ops::transpose(x, 1, 2),
          ops::concat({x, x * 2.0, ops::slice(x, 1, 0, 1)}, 1),
          ops::concat({x, x}, 0),
          ops::broadcast_to(ops::slice(x, 1, 0, 1), {batch, 5, 4, 6}),
          ops::broadcast_to(weights({6}), {4, 6}),
          ops::full({batch, 3}, 0.25, x.dtype()),
          ops::full({3, 2}, 7.0, DType::kInt64),
          ops::full_like(x, -2.0) + x,
          ops::flip(x, {-1}),
          ops::flip(x, {0, 2}),
          ops::pixel_unshuffle(x, 2),
          ops::pixel_shuffle(ops::pixel_unshuffle(x, 2) * 2.0, 2)};
}

Results padding(Tensors in, CaseWeights&) {
  const Tensor &x = in[0], &i = in[1];
  return {ops::pad(x, {{0, 0}, {1, 0}, {2, 1}, {0, 3}}),
          ops::pad(x, {{0, 0}, {0, 0}, {1, 1}, {2, 2}}, {.mode = ops::PadMode::kConstant, .value = -0.5}),
          ops::pad(x, {{0, 0}, {0, 1}, {3, 2}, {1, 4}}, {.mode = ops::PadMode::kReflect}),
          ops::pad(x, {{0, 0}, {2, 0}, {5, 1}, {0, 7}}, {.mode = ops::PadMode::kReplicate}),
          ops::pad(i, {{0, 0}, {1, 2}}, {.mode = ops::PadMode::kConstant, .value = 9.0}),
          ops::cumsum(i, 1),
          ops::cumsum(ops::cast(i, DType::kBool), 1)};
}

Results indices(Tensors in, CaseWeights& weights) {
  const Tensor &x = in[0], &i = in[1];  // (N, 4, 6), (N, 3) of [0, 4)
  const auto [values, places] = ops::topk(x, 3);
  const auto [first, first_places] = ops::topk(x, 2, 1);
  return {ops::embedding(weights({4, 5}), i),
          ops::index_select(weights({4, 2, 3}), 0, i),
          ops::gather(x, 1, ops::reshape(ops::concat({i, i}, 1), {-1, 1, 6})),
          ops::gather(ops::slice(x, 2, 0, 4), -1, ops::reshape(i, {-1, 3, 1})),
          values,
          places,
          first,
          first_places,
          ops::argmax(x, 1),
          ops::argmax(x, -1, {.keep_dims = true}),
          ops::one_hot(i, 4, x.dtype()),
          ops::one_hot(i, 5, DType::kInt64),
          ops::one_hot(i, 4, DType::kUInt8),
          ops::one_hot(i, 4, DType::kBool)};
}

}  // namespace

std::vector<OnnxCase> onnx_op_cases() {
  const TensorSpec ints{{kN, 3}, DType::kInt64, {}};
  return {function_case("unary", {float_input({kN, 3, 4})}, unary),
          function_case("binary", {float_input({kN, 3, 4}), float_input({kN, 3, 4})}, binary),
          function_case("whole_numbers", {ints}, whole_numbers),
          function_case("bools_and_bytes", {ints}, bools_and_bytes),
          function_case("casts", {float_input({kN, 3}), ints}, casts),
          function_case("reductions", {float_input({kN, 3, 4, 5})}, reductions),
          function_case("products", {float_input({kN, 6}), float_input({kN, 3, 6})}, products),
          function_case("shapes", {float_input({kN, 3, 4, 6})}, shapes),
          function_case("padding", {float_input({kN, 3, 4, 6}), ints}, padding),
          function_case("indices", {float_input({kN, 4, 6}), ints}, indices)};
}

}  // namespace sinter::nn::testing
