#include "norm_case.h"

#include <sinter/core/op/call.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::bench {
namespace {

/// Of one tensor, and of a mask, which has a bit for each of its elements.
double tensor_bytes(const NormCase& c) {
  const auto [n, channels, h, w] = c.nchw;
  return static_cast<double>(n * channels * h * w) * static_cast<double>(size_of(c.dtype));
}
double mask_bytes(const NormCase& c) {
  return tensor_bytes(c) / static_cast<double>(size_of(c.dtype)) / 8.0;
}

}  // namespace

std::string to_string(NormTail tail) {
  switch (tail) {
    case NormTail::kNone:
      return "BN";
    case NormTail::kRelu:
      return "BN+ReLU";
    case NormTail::kPRelu:
      return "BN+PReLU";
    case NormTail::kAddRelu:
      return "BN+Add+ReLU";
    default:
      return "BN+BN+Add+ReLU";
  }
}

NormTensors::NormTensors(const NormCase& c, const NormInputs& inputs) {
  const auto [n, channels, h, w] = c.nchw;
  const Shape shape = c.layout == Layout::kNCHW ? Shape{n, channels, h, w} : Shape{n, h, w, channels};
  const DType wide = accumulate_dtype(c.dtype);
  x = inputs.data(shape, c.dtype, 1);
  dy = inputs.data(shape, c.dtype, 2);
  if (c.two_gradients) dy2 = inputs.data(shape, c.dtype, 3);
  const auto parameters = [&, channels = channels](uint64_t which) {
    return ops::NormTensors{.weight = inputs.parameter(channels, wide, 1.0, which),
                            .bias = inputs.parameter(channels, wide, 0.1, which + 1),
                            .running_mean = Tensor::full({channels}, 0.0, wide, x.device()),
                            .running_var = Tensor::full({channels}, 1.0, wide, x.device())};
  };
  norm = parameters(6);
  options.layout = c.layout;
  options.activation = c.tail == NormTail::kNone    ? ops::fused::Activation::kNone
                       : c.tail == NormTail::kPRelu ? ops::fused::Activation::kPRelu
                                                    : ops::fused::Activation::kRelu;
  if (c.tail == NormTail::kPRelu) alpha = inputs.parameter(channels, wide, 0.25, 5);
  if (has_addend(c.tail)) addend = inputs.data(shape, c.dtype, 4);
  if (c.tail == NormTail::kAddNormRelu) {
    addend_norm = parameters(8);
    options.normalize_addend = true;
  }
}

std::vector<Tensor> NormTensors::forward(ops::NormBackend backend) const {
  static const Op& op = ops::builtin("batch_norm_act");
  ops::BatchNormActOptions wanted = options;
  wanted.backend = backend;
  const std::vector<Tensor> inputs = {x,
                                      norm.weight,
                                      norm.bias,
                                      norm.running_mean,
                                      norm.running_var,
                                      {},
                                      alpha,
                                      addend,
                                      addend_norm.weight,
                                      addend_norm.bias,
                                      addend_norm.running_mean,
                                      addend_norm.running_var,
                                      {},
                                      {},
                                      {},
                                      {},
                                      {},
                                      {}};
  if (backend == ops::NormBackend::kCudnn) {
    std::vector<const TensorSpec*> specs;
    for (const Tensor& input : inputs) specs.push_back(input.defined() ? &input.spec() : nullptr);
    wanted.reserve_bytes = ops::norm_reserve_bytes(specs, wanted);
  }
  return call(op, inputs, wanted);
}

ops::BatchNormActGrads NormTensors::backward(const std::vector<Tensor>& outputs,
                                             ops::NormBackend backend) const {
  const bool two = options.normalize_addend;
  const ops::BatchNormActGradOptions grad_options{.addend_grad = addend.defined(),
                                                  .layout = options.layout,
                                                  .activation = options.activation,
                                                  .normalize_addend = two,
                                                  .backend = backend};
  const bool masked = options.activation != ops::fused::Activation::kNone;
  return ops::vjp::batch_norm_act(
      dy, dy2, x, {norm.weight, norm.bias, outputs[1], outputs[2]}, two ? addend : Tensor(),
      two ? ops::NormState{addend_norm.weight, addend_norm.bias, outputs[4], outputs[5]} : ops::NormState{},
      alpha, masked ? outputs[3] : Tensor(), grad_options);
}

double norm_forward_bytes(const NormCase& c) {
  double tensors = 3.0;  // the statistics read x; the map reads it again and writes y
  if (c.tail == NormTail::kAddRelu) tensors += 1.0;
  if (c.tail == NormTail::kAddNormRelu) tensors += 2.0;
  return tensors * tensor_bytes(c) + (c.tail == NormTail::kNone ? 0.0 : mask_bytes(c));
}

double norm_backward_bytes(const NormCase& c) {
  double tensors = 5.0, masks = c.tail == NormTail::kNone ? 0.0 : 2.0;  // x and dy twice, dx
  if (c.tail == NormTail::kAddRelu) {
    tensors += c.two_gradients ? 2.0 : 1.0;  // dz is written, and read in place of dy and the mask
    masks = 1.0;
  }
  // The addend twice, and its gradient.
  if (c.tail == NormTail::kAddNormRelu) tensors += c.two_gradients ? 5.0 : 3.0;
  return tensors * tensor_bytes(c) + masks * mask_bytes(c);
}

}  // namespace sinter::bench
