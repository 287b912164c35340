#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/prelu/prelu.h>

namespace sinter::ops {
namespace {

/// In the dtype under test or, beside the 16-bit ones, in float32.
Tensor make_slopes(SampleMaker& maker, int64_t count) {
  if (!is_half(maker.dtype()) || maker.chance(0.5)) return maker.tensor(Shape{count}, -0.5, 0.5);
  std::vector<float> slopes(static_cast<size_t>(count));
  for (float& slope : slopes) slope = static_cast<float>(maker.uniform(-0.5, 0.5));
  return Tensor::from_values(slopes, Shape{count});
}

/// x, alpha and attributes; x stays off the corner at 0.
OpSample make_prelu(SampleMaker& maker) {
  const Layout layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  const Shape shape = maker.shape(static_cast<int>(maker.integer(1, 4)));
  const int64_t channels = shape[shape.rank() <= 2 || layout == Layout::kNHWC ? -1 : 1];
  const int64_t slopes = maker.chance(0.3) ? 1 : channels;
  const Tensor x = maker.tensor_off(shape, {0.0});
  return {{x, make_slopes(maker, slopes)}, PReluAttributes{layout}};
}

int64_t alpha_index(const OpSample& sample, int64_t i) {
  const Shape& shape = sample.inputs[0].shape();
  if (sample.inputs[1].numel() == 1) return 0;
  const bool last = shape.rank() <= 2 || sample.attributes.as<PReluAttributes>().layout == Layout::kNHWC;
  return last ? i % shape[-1] : i / shape.stride(1) % shape[1];
}

std::vector<ReferenceTensor> prelu_reference(const OpSample& sample) {
  ReferenceTensor y = reference_of(sample.inputs[0]);
  const ReferenceTensor alpha = reference_of(sample.inputs[1]);
  for (int64_t i = 0; i < y.shape.numel(); ++i) {
    if (y[i] < 0) y[i] *= alpha[alpha_index(sample, i)];
  }
  return {y};
}

OpSample make_prelu_grad(SampleMaker& maker) {
  OpSample sample = make_prelu(maker);
  sample.inputs.push_back(maker.tensor(sample.inputs[0].shape()));
  return sample;
}

std::vector<ReferenceTensor> prelu_grad_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]), alpha = reference_of(sample.inputs[1]);
  ReferenceTensor dx = reference_of(sample.inputs[2]), dalpha(alpha.shape);
  for (int64_t i = 0; i < dx.shape.numel(); ++i) {
    if (x[i] > 0) continue;
    dalpha[alpha_index(sample, i)] += x[i] * dx[i];
    dx[i] *= alpha[alpha_index(sample, i)];
  }
  return {dx, dalpha};
}

/// Of dalpha, the sums over the elements that a slope belongs to; dx is a product.
double prelu_grad_terms(const OpSample& sample, size_t output) {
  if (output == 0) return 0.0;
  const ReferenceTensor x = reference_of(sample.inputs[0]), dy = reference_of(sample.inputs[2]);
  ReferenceTensor sums(sample.inputs[1].shape());
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    if (x[i] < 0) sums[alpha_index(sample, i)] += std::abs(x[i] * dy[i]);
  }
  return largest_of(sums);
}

std::vector<ReferenceTensor> prelu_grad_x_reference(const OpSample& sample) {
  return {prelu_grad_reference(sample).front()};
}

}  // namespace

void register_prelu_samples(SampleRegistry& registry);
void register_prelu_samples(SampleRegistry& registry) {
  registry.add({.op = "prelu", .make = make_prelu, .reference = prelu_reference});
  registry.add({.op = "prelu_grad",
                .make = make_prelu_grad,
                .reference = prelu_grad_reference,
                .term_size = prelu_grad_terms,
                .check_gradient = false});
  registry.add({.op = "prelu_grad_x",
                .make = make_prelu_grad,
                .reference = prelu_grad_x_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
